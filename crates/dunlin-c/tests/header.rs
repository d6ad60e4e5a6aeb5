//! `include/dunlin.h` is what cbindgen makes of the sources, and declares what the library has.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use common::{here, is_there, run, said, skipped};

/// The version whose words the header has. It is a tool and no dependency: its licence, MPL-2.0, is not one of those
/// that `.ci/licences` takes.
const CBINDGEN: &str = "cbindgen 0.29.4";

fn header() -> String {
    std::fs::read_to_string(here().join("include/dunlin.h")).expect("the header is there")
}

/// cbindgen in this version: below `target/tools`, or as the system finds it.
fn cbindgen() -> Option<PathBuf> {
    let ours = here().join("../../target/tools/bin/cbindgen");
    [ours, "cbindgen".into()].into_iter().find(|path| {
        let version = Command::new(path).arg("--version").output();
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == CBINDGEN)
    })
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    let Some(cbindgen) = cbindgen() else {
        let install = "cargo install cbindgen --version 0.29.4 --locked --root target/tools";
        skipped("dunlin.h", &format!("no {CBINDGEN} here: {install}"));
        return;
    };
    let made = run(Command::new(cbindgen)
        .args(["--quiet", "--config", "cbindgen.toml", "."])
        .current_dir(here()));
    assert!(
        said(&made) == header(),
        "include/dunlin.h differs from what cbindgen makes of src: in crates/dunlin-c run \
         ../../target/tools/bin/cbindgen --config cbindgen.toml --output include/dunlin.h ."
    );
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let prototypes = common::prototypes().into_iter();
    let functions = prototypes.filter(|(_, words)| !words.starts_with("typedef"));
    functions.map(|(name, _)| name).collect()
}

#[test]
fn the_header_declares_what_the_library_has() {
    if !is_there("nm") {
        skipped("the library's symbols", "no nm here");
        return;
    }
    let library = common::built().join("libdunlin_c.so");
    let listed = said(&run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(library)));
    let exported: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    assert_eq!(declared(), exported);
}

#[test]
fn every_function_is_called_wrongly_by_a_test() {
    let misuse = std::fs::read_to_string(here().join("tests/c/misuse.c")).expect("it is there");
    let forgotten: Vec<String> = declared()
        .into_iter()
        .filter(|name| !misuse.contains(&format!("{name}(")))
        .collect();
    assert!(forgotten.is_empty(), "not in misuse.c: {forgotten:?}");
}
