//! The binary interface is the recorded one: symbols and prototypes, sizes, offsets, numbers.
//!
//! What programs were compiled with must not change under them. Something added is recorded anew, by
//! `DUNLIN_ABI_RECORD=1 cargo test -p dunlin-c --test abi`; something changed or gone needs another
//! `DUNLIN_ABI_VERSION`, and another soname in `build.rs`, too.

mod common;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use common::{compile, header_code, here, is_there, prototypes, run, said, skipped, Link};

fn recorded() -> PathBuf {
    here().join("abi.txt")
}

/// What a C compiler says of the types and numbers in the header. The program that prints it is made of the header, so
/// that nothing is left out.
fn types() -> Option<String> {
    let header = header_code();
    let mut source = String::from("#include <dunlin.h>\n#include <stdio.h>\nint main(void) {\n");
    let mut number = |name: &str| {
        writeln!(
            source,
            "printf(\"number {name} %lld\\n\", (long long){name});"
        )
        .expect("a string takes it");
    };
    let mut open: Option<String> = None;
    let mut lines = Vec::new();
    for line in header.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["#define", name, _] if name.starts_with("DUNLIN_") => number(name),
            [name, "=", _] if name.starts_with("DUNLIN_") => number(name),
            ["typedef", "struct", name, "{"] => {
                lines.push(format!("printf(\"size {name} %zu\\n\", sizeof({name}));"));
                open = Some(name.to_owned());
            }
            ["typedef", "enum", name, "{"] => {
                lines.push(format!("printf(\"size {name} %zu\\n\", sizeof({name}));"));
            }
            [.., last] if line.ends_with(';') && line.starts_with("  ") => {
                if let Some(of) = &open {
                    let field = last.trim_end_matches(';').trim_start_matches('*');
                    lines.push(format!(
                        "printf(\"offset {of}.{field} %zu\\n\", offsetof({of}, {field}));"
                    ));
                }
            }
            _ if line.starts_with('}') => open = None,
            _ => {}
        }
    }
    for line in lines {
        source.push_str(&line);
        source.push('\n');
    }
    source.push_str("return 0;\n}\n");
    let path = common::folder("abi").join("abi.c");
    std::fs::write(&path, source).expect("a file can be written");
    // An absolute path stays as it is.
    let path = compile(&path.display().to_string(), Link::Header, &[])?;
    Some(said(&run(&mut Command::new(path))))
}

fn symbols() -> String {
    let library = common::built().join("libdunlin_c.so");
    let listed = said(&run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(&library)));
    let mut names: Vec<&str> = listed.lines().collect();
    names.sort_unstable();
    let mut text: String = names
        .iter()
        .map(|name| format!("symbol {name}\n"))
        .collect();
    for prototype in prototypes().values() {
        writeln!(text, "prototype {prototype}").expect("a string takes it");
    }
    let dynamic = said(&run(Command::new("readelf").arg("-d").arg(library)));
    let soname = dynamic.lines().find(|line| line.contains("SONAME"));
    let name = soname.and_then(|line| line.split(['[', ']']).nth(1));
    writeln!(text, "soname {}", name.unwrap_or("none")).expect("a string takes it");
    text
}

#[test]
fn the_binary_interface_is_the_recorded_one() {
    if !is_there("nm") || !is_there("readelf") {
        skipped("the binary interface", "no nm and readelf here");
        return;
    }
    let Some(types) = types() else { return };
    let now = types + &symbols();
    if std::env::var_os("DUNLIN_ABI_RECORD").is_some() {
        std::fs::write(recorded(), &now).expect("the record can be written");
    }
    let before = std::fs::read_to_string(recorded()).expect("the record is there");
    let gone: Vec<&str> = before
        .lines()
        .filter(|line| !now.lines().any(|l| l == *line))
        .collect();
    let new: Vec<&str> = now
        .lines()
        .filter(|line| !before.lines().any(|l| l == *line))
        .collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "changed or gone, which needs another DUNLIN_ABI_VERSION: {gone:#?}\n\
         new, to be recorded by DUNLIN_ABI_RECORD=1: {new:#?}"
    );
    let version = before
        .lines()
        .find_map(|line| line.strip_prefix("number DUNLIN_ABI_VERSION "));
    let soname = before
        .lines()
        .find_map(|line| line.strip_prefix("soname libdunlin.so."));
    assert_eq!(version, soname, "the soname follows DUNLIN_ABI_VERSION");
}
