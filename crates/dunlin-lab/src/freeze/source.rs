//! What of a source a freeze is about: its code, without comments and tests. `build.rs` compiles this file too.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The lines of a source that are compiled into the program: comment lines and the module `tests` at its root left out,
/// so that a better sentence is no new model.
#[allow(
    dead_code,
    reason = "the program has the hashes alone; the build script and the tests read sources"
)]
fn code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let tests = |next: &&str| next.starts_with("mod tests {");
        if line == "#[cfg(test)]" && lines.peek().is_some_and(tests) {
            // rustfmt puts the end of a module at the root alone into the first column.
            lines.by_ref().find(|line| *line == "}");
        } else if !line.trim_start().starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// What of a file a freeze is about: of Rust its code, of a figure in TOML all lines that are no comments, of data all
/// but the words of remarks.
#[allow(dead_code, reason = "as above")]
pub(crate) fn kept(name: &str, text: &str) -> String {
    let lines = text.lines();
    let kept: Vec<&str> = if name.ends_with(".toml") {
        lines.filter(|line| !line.starts_with('#')).collect()
    } else if name.ends_with("/remarks.csv") {
        // A row's name and its class stand before them.
        let words = |line: &'_ str| {
            line.match_indices(',')
                .nth(1)
                .map_or(line.len(), |(at, _)| at)
        };
        lines.map(|line| &line[..words(line)]).collect()
    } else if name.ends_with(".csv") {
        lines.collect()
    } else {
        return code(text);
    };
    kept.into_iter().flat_map(|line| [line, "\n"]).collect()
}

/// A hash as `sha256sum` prints it.
pub(crate) fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
