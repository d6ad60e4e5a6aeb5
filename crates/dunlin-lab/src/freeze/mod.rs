//! The freeze: what the scorecard was frozen with. It covers parameter files, by their hashes and with what each was
//! fitted to; the simulator's sources; the prices of instructions; the figures and loads with their constants.
//!
//! `data/frozen.toml` is checked in. Whatever differs from it has been changed since it was frozen; claims of the class
//! `predict` are then not judged, because nobody could tell whether the change was made for their sake. Freezing anew
//! is a decision: `dunlin lab freeze` requires a scorecard of exactly this code in which every calibrating row holds
//! (or misses by name: `admitted`), and prints a manifest to be checked in. Sources count without comments and tests.
//!
//! The code that is experimented on, protocols and verbs, has one hash. A change of it does not prevent judging,
//! because the claims are about this code; the scorecard then says so, and that no verdict is a first one. Where only
//! protocols changed, the scorecard of those before may be used for them, and the manifest says of which protocols it
//! is.

mod source;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use self::source::sha256;
use crate::claims::{claims, Use};
use crate::score::{reason, Failed, Verdict};

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

const FROZEN: &str = include_str!("../../data/frozen.toml");

/// The manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The day of the freeze.
    pub date: String,
    /// What changed since the freeze before it, and why.
    pub why: String,
    /// Calibrating rows that missed at the freeze.
    pub admitted: Vec<String>,
    /// The hash of the protocols' code.
    pub protocols: String,
    /// The scorecard that it is based on; manifests before the fifty-fifth freeze do not have it.
    pub card: Option<Rests>,
    /// The parameter files.
    pub file: Vec<Entry>,
    /// The sources and their hashes.
    pub sources: BTreeMap<String, String>,
}

/// A manifest's data about its scorecard.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rests {
    /// The hash of the protocols with which it was made: not the manifest's if they changed after it.
    pub protocols: String,
    /// Number of seeds.
    pub seeds: u16,
}

/// A file of the manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name in `crates/dunlin-sim/params/`.
    pub name: String,
    /// Its hash, in the format of `sha256sum`.
    pub sha256: String,
    /// What its values were fitted to: ids of `claims.csv`, or descriptions of rows of the calibration data.
    pub fitted_to: Vec<String>,
}

/// Comparison of the parameters with the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The day of the freeze.
    pub date: String,
    /// One hash of all compiled-in parameter files and sources, 16 hexadecimal digits.
    pub hash: String,
    /// Differences, in words; empty when everything is frozen.
    pub differences: Vec<String>,
    /// Calibrating rows that missed at the freeze.
    pub admitted: Vec<String>,
    /// The hash of the compiled-in protocols.
    pub protocols: String,
    /// Whether they differ from those at the freeze.
    pub protocols_changed: bool,
    /// What the user has replaced of the papers' NICs, processors and switches; no claim is judged with it.
    pub replaced: Vec<String>,
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

/// Compares the compiled-in files with the manifest.
pub fn check() -> Freeze {
    let sources = SOURCES.iter().copied();
    compare(&manifest(), &parameters(), sources, PROTOCOLS)
}

/// Names and hashes of the parameter files.
fn parameters() -> Vec<(&'static str, String)> {
    let files = dunlin_sim::parameter_files();
    files.map(|(name, text)| (name, sha256(text))).collect()
}

fn compare<'a>(
    manifest: &Manifest,
    parameters: &'a [(&'a str, String)],
    sources: impl Iterator<Item = (&'a str, &'a str)>,
    protocols: &str,
) -> Freeze {
    let files = manifest.file.iter();
    let mut frozen: BTreeMap<&str, &str> = files
        .map(|entry| (entry.name.as_str(), entry.sha256.as_str()))
        .collect();
    frozen.extend(
        manifest
            .sources
            .iter()
            .map(|(name, hash)| (name.as_str(), hash.as_str())),
    );
    let parameters = parameters.iter().map(|(name, hash)| (*name, hash.as_str()));
    let mut differences = Vec::new();
    let mut all = String::new();
    for (name, hash) in parameters.chain(sources) {
        match frozen.remove(name) {
            None => differences.push(format!("{name} is not in the manifest")),
            Some(known) if known != hash => {
                differences.push(format!("{name} was changed after the freeze"));
            }
            Some(_) => {}
        }
        let _ = writeln!(all, "{hash}  {name}");
    }
    differences.extend(frozen.keys().map(|name| format!("{name} is missing")));
    Freeze {
        date: manifest.date.clone(),
        hash: sha256(&all)[..16].to_owned(),
        differences,
        admitted: manifest.admitted.clone(),
        protocols: protocols.to_owned(),
        protocols_changed: protocols != manifest.protocols,
        replaced: Vec::new(),
    }
}

/// The part of a scorecard that a freeze needs, as `dunlin lab score --json` prints it.
#[derive(Clone, Debug, Deserialize)]
pub struct Card {
    /// The parameters with which it was made.
    pub parameters: CardParameters,
    /// Its rows.
    pub rows: Vec<CardRow>,
    /// Whether all requested figures have run; a card that does not say so is not complete.
    #[serde(default)]
    pub complete: bool,
    /// Figures that could not run.
    #[serde(default)]
    pub failed: Vec<Failed>,
}

/// The parameters of a scorecard.
#[derive(Clone, Debug, Deserialize)]
pub struct CardParameters {
    /// One hash of parameters and sources.
    pub hash: String,
    /// The hash of the protocols.
    pub protocols: String,
    /// Whether figures ran with little effort.
    pub quick: bool,
    /// Number of seeds with which each figure ran.
    pub seeds: u16,
}

/// A row of a scorecard.
#[derive(Clone, Debug, Deserialize)]
pub struct CardRow {
    /// Id of the row.
    pub id: String,
    /// Its class.
    pub class: Use,
    /// Its verdict.
    pub verdict: Verdict,
    /// What was measured, or why nothing was.
    pub why: String,
    /// Its answers, if there are several.
    #[serde(default)]
    pub parts: Vec<CardPart>,
}

/// One of several answers of a row.
#[derive(Clone, Debug, Deserialize)]
pub struct CardPart {
    /// Id of the answer.
    pub id: String,
    /// Its verdict.
    pub verdict: Verdict,
}

/// Measurements that parameters were fitted to and that are not claims: they have rows of their own behind the claims'.
const MEASUREMENTS: [&str; 8] = [
    "symmetric UC WRITE 16 B, Connect-IB",
    "symmetric RC WRITE 32 B all signaled, Connect-IB",
    "outbound READ from 1 machine, Connect-IB",
    "one READ at a time, Connect-IB",
    "one thread, READ, selective signaling",
    "one thread, READ, all signaled",
    "calibration.csv ConnectX-3",
    "calibration.csv Connect-IB",
];

/// Checks whether a freeze may be based on this scorecard. It may not if the card is of other code or of a quick run,
/// if figures could not be run or were left out, or if a calibrating row is missing, has a figure and was not judged,
/// or misses and is not admitted by name. Other protocols are no reason.
///
/// # Errors
/// The reasons, each a sentence.
pub fn allowed(card: &Card, admitted: &[String]) -> Result<(), Vec<String>> {
    let mut reasons = Vec::new();
    let CardParameters {
        hash: theirs,
        quick,
        seeds,
        ..
    } = &card.parameters;
    let hash = check().hash;
    if *theirs != hash {
        reasons.push(format!(
            "the scorecard is for {theirs}, but this program is {hash}"
        ));
    }
    if *quick {
        let words =
            "the scorecard is from a quick run, which measures less than the claims require";
        reasons.push(words.to_owned());
    }
    if *seeds == 0 {
        reasons.push("the scorecard does not state the number of seeds".to_owned());
    }
    let panicked = card.failed.iter();
    reasons.extend(panicked.map(|failed| format!("the figure {failed}")));
    if !card.complete && card.failed.is_empty() {
        let words = "the scorecard is incomplete, or does not state that it is complete: figures were omitted";
        reasons.push(words.to_owned());
    }
    let claims = claims();
    let calibrating = claims.iter().filter(|claim| claim.used == Use::Calibrate);
    let mut wanted: Vec<&str> = calibrating.map(|claim| claim.id.as_str()).collect();
    wanted.extend(MEASUREMENTS);
    for id in &wanted {
        if !card.rows.iter().any(|row| row.id == *id) {
            reasons.push(format!("{id}, a calibrating row, is not in the scorecard"));
        }
    }
    // Rows that this program classifies as calibrating count whatever the card says.
    let matters = |row: &&CardRow| row.class == Use::Calibrate || wanted.contains(&row.id.as_str());
    for row in card.rows.iter().filter(matters) {
        let id = &row.id;
        let unknown = row
            .parts
            .iter()
            .find(|part| part.verdict == Verdict::NotRun);
        match row.verdict {
            Verdict::Miss if !admitted.contains(id) => {
                reasons.push(format!("{id}, a calibrating row, misses"));
            }
            Verdict::NotRun if reason(id).is_none_or(|known| known != row.why) => {
                reasons.push(format!("{id}, a calibrating row, was not run: {}", row.why));
            }
            Verdict::NotRun => {}
            _ => reasons.extend(
                unknown.map(|part| format!("{}, of a calibrating row, was not measured", part.id)),
            ),
        }
    }
    for id in admitted {
        let misses = |row: &CardRow| row.id == *id && row.verdict == Verdict::Miss;
        if !card.rows.iter().filter(matters).any(misses) {
            reasons.push(format!(
                "{id} cannot be admitted: it is not a calibrating row that misses"
            ));
        }
    }
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(reasons)
    }
}

/// A remark if a scorecard was made with other protocols than this program's.
pub fn of_other_protocols(card: &Card) -> Option<String> {
    let theirs = &card.parameters.protocols;
    (theirs != PROTOCOLS).then(|| {
        format!(
            "the scorecard is for other protocols, {theirs}; this program's are {PROTOCOLS}: they have not run any \
             calibrating row"
        )
    })
}

/// A manifest for the present files, keeping the old one's data on each; to be checked in after thought.
pub fn renewed(date: &str, why: &str, admitted: &[String], card: &Card) -> String {
    let old = manifest();
    let mut text = format!(
        "date = {date:?}\nwhy = {why:?}\nadmitted = {admitted:?}\nprotocols = {PROTOCOLS:?}\n\n"
    );
    if let Some(words) = of_other_protocols(card) {
        let _ = writeln!(text, "# {words}");
    }
    let CardParameters {
        protocols, seeds, ..
    } = &card.parameters;
    let _ = writeln!(text, "[card]\nprotocols = {protocols:?}\nseeds = {seeds}");
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
    text.push_str("\n[sources]\n");
    for (name, hash) in SOURCES {
        let _ = writeln!(text, "{name:?} = {hash:?}");
    }
    text
}

#[cfg(test)]
mod tests;
