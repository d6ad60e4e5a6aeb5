//! The part of a source that a freeze covers: its code, without comments and tests. `build.rs` compiles this file too.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The lines of a source that are compiled into the program: comment lines and the module `tests` at its root are left
/// out, so that an improved comment does not make a new model.
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
            // rustfmt puts only the end of a module at the root into the first column.
            lines.by_ref().find(|line| *line == "}");
        } else if !line.trim_start().starts_with("//") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The part of a file that a freeze covers: of Rust its code, of a figure in TOML all lines that are not comments, of
/// data everything but the text of remarks.
#[allow(dead_code, reason = "as above")]
pub(crate) fn kept(name: &str, text: &str) -> String {
    let lines = text.lines();
    let kept: Vec<&str> = if name.ends_with(".toml") {
        lines.filter(|line| !line.starts_with('#')).collect()
    } else if name.ends_with("/remarks.csv") {
        // A row's name and its class precede them.
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

/// A hash in the format of `sha256sum`.
pub(crate) fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
