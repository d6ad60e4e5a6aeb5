//! The freeze: which parameter files the scorecard may be read with, by their hashes, and what each was fitted to.
//!
//! `data/frozen.toml` is checked in. A file that differs from it has been changed since it was frozen; claims of the
//! class `predict` are then not judged, because nobody could tell whether the change was made for their sake. Freezing
//! anew is a decision: look at what the change was fitted to, then check in what `dunlin lab freeze` prints.

use std::fmt::Write;

use serde::Deserialize;
use sha2::{Digest, Sha256};

const FROZEN: &str = include_str!("../data/frozen.toml");

/// The manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The day of the freeze.
    pub date: String,
    /// What changed since the freeze before it, and why.
    pub why: String,
    /// The files.
    pub file: Vec<Entry>,
}

/// A file of the manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name in `crates/dunlin-sim/params/`.
    pub name: String,
    /// Its hash, as `sha256sum` gives it.
    pub sha256: String,
    /// What its values were fitted to: ids of `claims.csv`, or rows of the calibration data in words.
    pub fitted_to: Vec<String>,
}

/// How the parameters stand to the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The day of the freeze.
    pub date: String,
    /// One hash of all files that are compiled in, 16 hexadecimal digits.
    pub hash: String,
    /// What differs, in words; empty when the parameters are frozen.
    pub differences: Vec<String>,
}

impl Freeze {
    /// Whether nothing differs.
    pub fn holds(&self) -> bool {
        self.differences.is_empty()
    }
}

impl std::fmt::Display for Freeze {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (hash, date) = (&self.hash, &self.date);
        if self.holds() {
            return write!(f, "parameters {hash}, frozen {date}");
        }
        write!(f, "parameters {hash}, NOT FROZEN: ")?;
        f.write_str(&self.differences.join("; "))
    }
}

/// The manifest that is checked in.
///
/// # Panics
/// Never: it is compiled in, and a test reads it.
pub fn manifest() -> Manifest {
    toml::from_str(FROZEN).expect("the manifest is right")
}

/// Compares the compiled-in parameter files with the manifest.
pub fn check() -> Freeze {
    compare(&manifest(), dunlin_sim::parameter_files())
}

fn compare<'a>(
    manifest: &Manifest,
    files: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Freeze {
    let mut differences = Vec::new();
    for (name, text) in files.clone() {
        match manifest.file.iter().find(|entry| entry.name == name) {
            None => differences.push(format!("{name} is not in the manifest")),
            Some(entry) if entry.sha256 != sha256(text) => {
                differences.push(format!("{name} was changed after the freeze"));
            }
            Some(_) => {}
        }
    }
    for entry in &manifest.file {
        if !files.clone().any(|(name, _)| name == entry.name) {
            differences.push(format!("{} is gone", entry.name));
        }
    }
    let all: String = files
        .map(|(name, text)| format!("{}  {name}\n", sha256(text)))
        .collect();
    Freeze {
        date: manifest.date.clone(),
        hash: sha256(&all)[..16].to_owned(),
        differences,
    }
}

fn sha256(text: &str) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A manifest for the files as they are now, keeping what the old one says of each; to be checked in after thought.
pub fn renewed(date: &str, why: &str) -> String {
    let old = manifest();
    let mut text = format!("date = {date:?}\nwhy = {why:?}\n");
    for (name, content) in dunlin_sim::parameter_files() {
        let fitted: Vec<String> = old
            .file
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.fitted_to.clone())
            .unwrap_or_default();
        let _ = write!(
            text,
            "\n[[file]]\nname = {name:?}\nsha256 = \"{}\"\nfitted_to = {fitted:?}\n",
            sha256(content)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{claims, Use};

    /// This fails when a parameter file was changed and not frozen anew.
    #[test]
    fn the_parameters_are_frozen() {
        let freeze = check();
        assert!(freeze.holds(), "{freeze}; see `dunlin lab freeze`");
    }

    #[test]
    fn nothing_was_fitted_to_a_prediction() {
        let claims = claims();
        for entry in manifest().file {
            for row in &entry.fitted_to {
                let claim = claims.iter().find(|claim| claim.id == *row);
                assert!(
                    claim.is_none_or(|claim| claim.used == Use::Calibrate),
                    "{}: {row} is not a calibrate row",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn a_changed_file_is_told() {
        let manifest = manifest();
        let files: Vec<(&str, String)> = dunlin_sim::parameter_files()
            .map(|(name, text)| {
                let mut text = text.to_owned();
                if name == "connectx-5.toml" {
                    text.push('#');
                }
                (name, text)
            })
            .collect();
        let freeze = compare(
            &manifest,
            files.iter().map(|(name, text)| (*name, text.as_str())),
        );
        assert_eq!(
            freeze.differences,
            ["connectx-5.toml was changed after the freeze"]
        );
        assert_ne!(freeze.hash, check().hash);
        assert!(freeze.to_string().contains("NOT FROZEN"));
        let fewer = compare(
            &manifest,
            files[1..].iter().map(|(name, text)| (*name, text.as_str())),
        );
        assert!(fewer.differences.iter().any(|why| why.ends_with("is gone")));
    }
}
