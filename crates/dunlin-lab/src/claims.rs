//! The papers' claims: every quantitative statement of the five papers, with a class that says what it may be used for.
//!
//! `data/claims.csv` contains facts with their place in the paper; a row is referred to by its id everywhere else.

use std::collections::BTreeMap;

use crate::csv;

/// What a row may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Parameters may be fitted to it.
    Calibrate,
    /// It must be reproduced with frozen parameters, and nothing may be fitted to it.
    Predict,
    /// It follows from a definition or a limit, and must hold exactly.
    Exact,
    /// A default or a shape.
    Shape,
    /// No figure can be compared with it.
    Qualitative,
    /// It follows from arithmetic or from a constant that was set from it: nothing is tested by it.
    Tautology,
    /// Another row has the same datum, and is judged instead.
    Duplicate,
    /// Not a claim of a paper but a promise of ours.
    Promise,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its id, such as `FL-032`.
    pub id: String,
    /// Place in the paper.
    pub place: String,
    /// The set-up and the quantity measured.
    pub what: String,
    /// The paper's value.
    pub value: String,
    /// The tolerance, in words.
    pub tolerance: String,
    /// What it may be used for.
    pub used: Use,
    /// A remark that a reader of its verdict must know.
    pub remark: String,
    /// The result of its first run, and the commit that has it.
    pub first: Option<First>,
}

/// The verdict of a claim's first run, before anybody could act on it. Recorded once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct First {
    /// The verdict.
    pub verdict: FirstVerdict,
    /// The commit whose code ran, or whose documents report that run.
    pub commit: String,
    /// A remark about the run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

/// Outcome of a first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstVerdict {
    /// Within the tolerance.
    Within,
    /// Not within it.
    Miss,
}

const FIRST: &str = include_str!("../data/first.csv");
const REMARKS: &str = include_str!("../data/remarks.csv");

fn firsts() -> BTreeMap<String, First> {
    let first = |line: &str| {
        let row = csv::split(line);
        let verdict = match row[1].as_str() {
            "within" => FirstVerdict::Within,
            "miss" => FirstVerdict::Miss,
            other => panic!("{}: no verdict {other}", row[0]),
        };
        let (commit, remark) = (row[2].clone(), row[3].clone());
        (
            row[0].clone(),
            First {
                verdict,
                commit,
                remark,
            },
        )
    };
    FIRST.lines().skip(1).map(first).collect()
}

/// The lab's data about rows, separate from the evidence, which stays as it is: the class, where it differs, and a
/// remark.
fn remarks() -> BTreeMap<String, (Option<Use>, String)> {
    let remark = |line: &str| {
        let row = csv::split(line);
        let used = match row[1].as_str() {
            "" => None,
            "tautology" => Some(Use::Tautology),
            "duplicate" => Some(Use::Duplicate),
            other => panic!("{}: no class {other}", row[0]),
        };
        (row[0].clone(), (used, row[2].clone()))
    };
    REMARKS.lines().skip(1).map(remark).collect()
}

const CLAIMS: &str = include_str!("../data/claims.csv");

/// All claims, in the order of the file.
///
/// # Panics
/// Never: the file is compiled in, and a test reads it.
pub fn claims() -> Vec<Claim> {
    let (mut firsts, mut remarks) = (firsts(), remarks());
    let complete = |line| {
        let mut claim = claim(line);
        claim.first = firsts.remove(&claim.id);
        if let Some((used, remark)) = remarks.remove(&claim.id) {
            claim.used = used.unwrap_or(claim.used);
            claim.remark = remark;
        }
        claim
    };
    CLAIMS.lines().skip(1).map(complete).collect()
}

fn claim(line: &str) -> Claim {
    let row = csv::split(line);
    let used = match row[11].as_str() {
        "calibrate" => Use::Calibrate,
        "predict" => Use::Predict,
        "exact" => Use::Exact,
        "shape" => Use::Shape,
        "qualitative" => Use::Qualitative,
        other => panic!("{}: no class {other}", row[0]),
    };
    Claim {
        id: row[0].clone(),
        place: format!("§{} {}", row[2], row[3]),
        what: format!("{}: {}", row[4], row[5]),
        value: row[7].clone(),
        tolerance: row[8].clone(),
        used,
        remark: String::new(),
        first: None,
    }
}

/// The claim that an answer belongs to: answers may add words to its id, as in `SR-004 at 800`.
pub fn id_of(answer: &str) -> &str {
    answer.split_whitespace().next().unwrap_or(answer)
}

/// What an answer may be used for, according to its claim; an answer without a claim is a promise of `auto`, or of the
/// calibration data.
pub fn use_of(claims: &[Claim], answer: &str) -> Use {
    let claim = claims.iter().find(|claim| claim.id == id_of(answer));
    match claim {
        Some(claim) => claim.used,
        None if answer.starts_with("auto,") => Use::Promise,
        None => Use::Calibrate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_rows_is_said_of_rows_that_there_are() {
        let claims = claims();
        let known = |id: &String| claims.iter().any(|claim| claim.id == *id);
        assert!(firsts().keys().chain(remarks().keys()).all(known));
        assert_eq!(firsts().len(), FIRST.lines().count() - 1);
        assert_eq!(remarks().len(), REMARKS.lines().count() - 1);
        let judged_twice = |claim: &&Claim| claim.used == Use::Duplicate;
        for claim in claims.iter().filter(judged_twice) {
            assert!(claim.first.is_none(), "{} is counted elsewhere", claim.id);
        }
    }

    #[test]
    fn every_row_is_read_once() {
        let claims = claims();
        assert_eq!(claims.len(), 285);
        let ids: std::collections::BTreeSet<&str> = claims.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids.len(), claims.len());
        let predict = claims.iter().filter(|c| c.used == Use::Predict).count();
        assert!(predict > 150, "{predict}");
        assert!(claims
            .iter()
            .all(|claim| !claim.value.is_empty() && claim.id.len() == 6));
    }
}
