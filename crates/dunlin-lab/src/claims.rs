//! The papers' claims: every quantitative statement of the five papers, with the class that says what it may be used
//! for.
//!
//! `data/claims.csv` holds facts with their place in the paper; a row's id names it everywhere else.

use crate::csv;

/// What a row may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Parameters may be fitted to it.
    Calibrate,
    /// It must be shown with frozen parameters, and nothing may be fitted to it.
    Predict,
    /// It follows from a definition or a limit, and must hold exactly.
    Exact,
    /// A default or a shape.
    Shape,
    /// No figure can be held against it.
    Qualitative,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name, such as `FL-032`.
    pub id: String,
    /// Where in the paper.
    pub place: String,
    /// The set-up and what is measured there.
    pub what: String,
    /// The paper's value.
    pub value: String,
    /// How near is near enough, in words.
    pub tolerance: String,
    /// What it may be used for.
    pub used: Use,
}

const CLAIMS: &str = include_str!("../data/claims.csv");

/// All claims, in the order of the file.
///
/// # Panics
/// Never: the file is compiled in, and a test reads it.
pub fn claims() -> Vec<Claim> {
    CLAIMS.lines().skip(1).map(claim).collect()
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
    }
}

/// The claim that an answer belongs to: answers may add words to its id, as in `SR-004 at 800`.
pub fn id_of(answer: &str) -> &str {
    answer.split_whitespace().next().unwrap_or(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

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
