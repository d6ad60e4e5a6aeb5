//! Hashes the sources that affect a figure, so that the scorecard records what it was made with: `src/freeze` compares
//! them with the manifest.

use std::fmt::Write;
use std::path::{Path, PathBuf};

#[path = "src/freeze/source.rs"]
mod source;

/// The files that a freeze covers in addition to parameter files: the simulator, the prices of instructions, figures
/// and loads, the code that runs the figures that are files, and the code that makes verdicts of findings. A new file
/// in one of these folders is covered unless it is left out below.
const FROZEN: [&str; 19] = [
    "dunlin-sim/src",
    "dunlin-flor/src/effort.rs",
    "dunlin-rpc/src/effort.rs",
    "dunlin-ring/src/effort.rs",
    "dunlin-txn/src/effort.rs",
    "dunlin-lab/data/claims.csv",
    "dunlin-lab/data/reads.csv",
    "dunlin-lab/data/remarks.csv",
    "dunlin-lab/src/calibration/mod.rs",
    "dunlin-lab/src/calibration/sweep.rs",
    "dunlin-lab/src/claims.rs",
    "dunlin-lab/src/csv.rs",
    "dunlin-lab/src/dice.rs",
    "dunlin-lab/src/experiment",
    "dunlin-lab/src/figure.rs",
    "dunlin-lab/src/figures",
    "dunlin-lab/src/load",
    "dunlin-lab/src/parallel.rs",
    "dunlin-lab/src/score.rs",
];

/// The files of these that affect no figure and no verdict: lists of modules, such as that of the figures; code that no
/// figure uses (flows, networks of other simulators) or that is for people (error messages, tables of keys, comparisons
/// with others); tests.
const LEFT_OUT: [&str; 9] = [
    "dunlin-lab/src/experiment/beside.rs",
    "dunlin-lab/src/experiment/flows/",
    "dunlin-lab/src/experiment/mistake.rs",
    "dunlin-lab/src/experiment/network.rs",
    "dunlin-lab/src/experiment/observed.rs",
    "dunlin-lab/src/experiment/reference.rs",
    "dunlin-lab/src/figures/files.rs",
    "dunlin-lab/src/figures/mod.rs",
    "dunlin-lab/src/load/mod.rs",
];

fn is_left_out(name: &str) -> bool {
    name.ends_with("tests.rs") || LEFT_OUT.iter().any(|place| name.starts_with(place))
}

/// The code that is experimented on.
const PROTOCOLS: [&str; 10] = [
    "dunlin-verbs/src",
    "dunlin-link/src",
    "dunlin-flor/src",
    "dunlin-ring/src",
    "dunlin-bootstrap/src",
    "dunlin-rpc/src",
    "dunlin-store/src",
    "dunlin-txn/src",
    "dunlin-fs/src",
    "dunlin/src",
];

fn main() -> std::io::Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut list = String::from("pub(super) const SOURCES: &[(&str, &str)] = &[\n");
    for (name, hash) in hashes(&crates, &FROZEN)? {
        if !is_left_out(&name) {
            let _ = writeln!(list, "    ({name:?}, {hash:?}),");
        }
    }
    let protocols: String = hashes(&crates, &PROTOCOLS)?
        .into_iter()
        .map(|(name, hash)| format!("{hash}  {name}\n"))
        .collect();
    let _ = writeln!(
        list,
        "];\npub(super) const PROTOCOLS: &str = {:?};",
        source::sha256(&protocols)
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("sources.rs"), list)
}

/// Names and hashes of the files at these places, in order: Rust sources, figures in TOML, and data.
fn hashes(crates: &Path, places: &[&str]) -> std::io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for place in places {
        let path = crates.join(place);
        // A package of this crate alone has no siblings: all of it then counts as changed, and nothing is judged.
        if !path.exists() {
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        walk(&path, place, &mut files)?;
    }
    files.sort();
    let read = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(path)?;
        let kept = source::kept(&name, &text);
        Ok((name, source::sha256(&kept)))
    };
    files.into_iter().map(read).collect()
}

fn walk(path: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    if path.is_file() {
        if [".rs", ".toml", ".csv"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            files.push((name.to_owned(), path.to_owned()));
        }
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let below = format!("{name}/{}", entry.file_name().to_string_lossy());
        walk(&entry.path(), &below, files)?;
    }
    Ok(())
}
