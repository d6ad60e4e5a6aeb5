//! Tests of what a freeze covers, and on which scorecards it may be based.

use super::*;
use crate::claims::{claims, Use};

/// Fails when a parameter file was changed and not frozen anew.
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

/// The freeze with one file's text changed, and the names of all sources as they are read now.
fn with_change(file: &str, from: &str, to: &str) -> Freeze {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(file);
    let text = std::fs::read_to_string(path).expect("a source");
    let hash = sha256(&source::kept(file, &text));
    assert!(
        SOURCES.contains(&(file, hash.as_str())),
        "{file} is hashed as it is"
    );
    assert!(text.contains(from), "{file} has {from}");
    let changed = sha256(&source::kept(file, &text.replacen(from, to, 1)));
    let sources = SOURCES
        .iter()
        .map(|&(name, hash)| (name, if name == file { changed.as_str() } else { hash }));
    compare(&manifest(), &parameters(), sources, PROTOCOLS)
}

/// Checks that no prediction is judged with this change.
fn not_judged(freeze: &Freeze, file: &str) {
    use crate::figure::{Figure, Findings};
    const FIGURE: Figure = Figure {
        name: "test",
        title: "",
        says: "",
        run: |_| Findings::default(),
    };
    assert_eq!(
        freeze.differences,
        [format!("{file} was changed after the freeze")]
    );
    assert_ne!(freeze.hash, check().hash);
    assert!(freeze.to_string().contains("NOT FROZEN"));
    let mut findings = Findings::default();
    findings.answer("RB-004", "1", 1.0, (0.5, 2.0), "a number");
    findings.answer("RB-010", "1", 1.0, (0.5, 2.0), "a number");
    let card = crate::score::Scorecard::new(&[(&FIGURE, findings)], freeze);
    let row = |id| card.rows.iter().find(|row| row.id == id).expect("a row");
    assert_eq!(row("RB-004").verdict, Verdict::NotRun);
    assert!(row("RB-004").why.contains(file), "{}", row("RB-004").why);
    assert_eq!(row("RB-010").verdict, Verdict::Within);
    assert_eq!(card.predictions.within, 0);
}

#[test]
fn no_prediction_is_judged_by_another_price() {
    let file = "dunlin-rpc/src/effort.rs";
    not_judged(
        &with_change(file, "Instructions(500)", "Instructions(400)"),
        file,
    );
}

#[test]
fn no_prediction_is_judged_by_another_mechanism() {
    let file = "dunlin-sim/src/nic/acknowledge.rs";
    not_judged(&with_change(file, "fn ", "fn other_"), file);
}

#[test]
fn no_prediction_is_judged_by_another_constant_of_a_figure() {
    let file = "dunlin-lab/src/figures/flock_rpc.rs";
    not_judged(
        &with_change(
            file,
            "HARDWARE_THREADS: usize = 64",
            "HARDWARE_THREADS: usize = 32",
        ),
        file,
    );
}

#[test]
fn no_prediction_is_judged_by_another_value_of_a_figure_that_is_a_file() {
    let file = "dunlin-lab/src/figures/flock-9.toml";
    not_judged(&with_change(file, "cores = 64", "cores = 32"), file);
    assert!(with_change(file, "# FLOCK", "# Another word. FLOCK").holds());
}

#[test]
fn no_prediction_is_judged_by_what_reads_figures_and_judges_them_in_another_way() {
    for (file, from, to) in [
        ("dunlin-lab/src/experiment/unit.rs", "1e3", "1e4"),
        ("dunlin-lab/src/experiment/plot.rs", "fn ", "fn other_"),
        (
            "dunlin-lab/src/figure.rs",
            "contains(&ours)",
            "contains(&0.0)",
        ),
        (
            "dunlin-lab/src/score.rs",
            "Verdict::Within",
            "Verdict::Miss",
        ),
        ("dunlin-lab/src/calibration/sweep.rs", "fn ", "fn other_"),
        ("dunlin-lab/data/reads.csv", "ConnectX-3", "ConnectX-4"),
        ("dunlin-lab/data/claims.csv", ",predict", ",calibrate"),
        ("dunlin-lab/data/remarks.csv", ",duplicate,", ",,"),
    ] {
        not_judged(&with_change(file, from, to), file);
    }
    let other_words = with_change("dunlin-lab/data/remarks.csv", "the same datum", "the datum");
    assert_eq!(other_words, check());
}

#[test]
fn comments_and_tests_are_no_change() {
    let file = "dunlin-lab/src/figures/auto.rs";
    assert!(with_change(file, "//! ", "//! Another word. ").holds());
    assert!(with_change(file, "fn the_worst_point_is_named", "fn the_worst_is_named").holds());
    assert!(!with_change(file, "const LEAST: f64 = 0.95", "const LEAST: f64 = 0.9").holds());
}

#[test]
fn a_changed_parameter_is_told() {
    let mut parameters = parameters();
    let place = parameters
        .iter()
        .position(|(name, _)| *name == "connectx-5.toml");
    parameters[place.expect("a file")].1 = sha256("another");
    let sources = || SOURCES.iter().copied();
    let freeze = compare(&manifest(), &parameters, sources(), PROTOCOLS);
    not_judged(&freeze, "connectx-5.toml");
    parameters.remove(0);
    let fewer = compare(&manifest(), &parameters, sources(), PROTOCOLS);
    assert!(fewer
        .differences
        .iter()
        .any(|why| why.ends_with("is missing")));
}

#[test]
fn other_protocols_are_told_and_judged() {
    let sources = SOURCES.iter().copied();
    let freeze = compare(&manifest(), &parameters(), sources, "other");
    assert!(freeze.holds() && freeze.protocols_changed);
}

/// A row of a scorecard.
fn row(id: &str, class: Use, verdict: Verdict, why: &str) -> CardRow {
    let (id, why) = (id.to_owned(), why.to_owned());
    let parts = Vec::new();
    CardRow {
        id,
        class,
        verdict,
        why,
        parts,
    }
}

/// A scorecard of this program in which all calibrating rows with a figure hold.
fn card() -> Card {
    let calibrate = |id: &str| match reason(id) {
        Some(why) => row(id, Use::Calibrate, Verdict::NotRun, &why),
        None => row(id, Use::Calibrate, Verdict::Within, "a number"),
    };
    let claims = claims();
    let calibrating = claims.iter().filter(|claim| claim.used == Use::Calibrate);
    let ids = calibrating.map(|claim| claim.id.as_str());
    let mut rows: Vec<CardRow> = ids.chain(MEASUREMENTS).map(calibrate).collect();
    rows.push(row("SR-041", Use::Predict, Verdict::Miss, ""));
    let parameters = CardParameters {
        hash: check().hash,
        protocols: PROTOCOLS.to_owned(),
        quick: false,
        seeds: 2,
    };
    Card {
        parameters,
        rows,
        complete: true,
        failed: Vec::new(),
    }
}

/// The only reason why nothing may be frozen on this card.
fn refused(card: &Card, admitted: &[String]) -> String {
    let reasons = allowed(card, admitted).unwrap_err();
    let [reason] = <[String; 1]>::try_from(reasons).expect("one reason");
    reason
}

fn of<'a>(card: &'a mut Card, id: &str) -> &'a mut CardRow {
    let found = card.rows.iter_mut().find(|row| row.id == id);
    found.expect("a row")
}

#[test]
fn a_card_without_a_figure_that_was_asked_for_refuses_a_freeze() {
    let mut card = card();
    card.complete = false;
    assert!(refused(&card, &[]).contains("incomplete"));
    card.failed.push(Failed {
        figure: "scalerpc-machines".to_owned(),
        why: "no such core".to_owned(),
    });
    assert_eq!(
        refused(&card, &[]),
        "the figure scalerpc-machines: no such core"
    );
    // A card that was edited to be complete still lacks the figure.
    card.complete = true;
    assert!(refused(&card, &[]).contains("scalerpc-machines"));
}

#[test]
fn a_calibrating_row_that_misses_refuses_a_freeze() {
    let mut card = card();
    assert_eq!(allowed(&card, &[]), Ok(()));
    let admitted = ["SR-036".to_owned()];
    assert!(refused(&card, &admitted).starts_with("SR-036 cannot be admitted"));
    of(&mut card, "SR-036").verdict = Verdict::Miss;
    assert_eq!(refused(&card, &[]), "SR-036, a calibrating row, misses");
    assert_eq!(allowed(&card, &admitted), Ok(()));
    // The card cannot make it a prediction, nor a prediction a row to admit.
    of(&mut card, "SR-036").class = Use::Predict;
    assert_eq!(refused(&card, &[]), "SR-036, a calibrating row, misses");
    let prediction = ["SR-036".to_owned(), "SR-041".to_owned()];
    assert!(refused(&card, &prediction).starts_with("SR-041 cannot be admitted"));
    card.parameters.hash = "another".to_owned();
    assert!(refused(&card, &admitted).contains("another"));
}

#[test]
fn a_calibrating_row_that_is_not_there_refuses_a_freeze() {
    let mut card = card();
    card.rows.retain(|row| row.id != "FS-016");
    assert_eq!(
        refused(&card, &[]),
        "FS-016, a calibrating row, is not in the scorecard"
    );
    card.rows.clear();
    let missing = allowed(&card, &[]).unwrap_err();
    for id in ["FS-009", "calibration.csv ConnectX-3"] {
        assert!(missing.iter().any(|why| why.starts_with(id)), "{id}");
    }
}

#[test]
fn a_calibrating_row_that_was_not_measured_refuses_a_freeze() {
    let mut findings = crate::figure::Findings::default();
    findings.answer("FS-009", "4", f64::NAN, (4.0, 20.0), "a number");
    findings.answer("SR-004 at 10", "20", 20.0, (18.0, 22.0), "a number");
    findings.answer("SR-004 at 800", "2", f64::NAN, (1.5, 2.5), "a number");
    const FIGURE: crate::figure::Figure = crate::figure::Figure {
        name: "test",
        title: "",
        says: "",
        run: |_| crate::figure::Findings::default(),
    };
    let made = crate::score::Scorecard::new(&[(&FIGURE, findings)], &check()).ran(false, 2);
    let made: Card = toml::Value::try_from(&made)
        .expect("a value")
        .try_into()
        .expect("a card");
    for id in ["FS-009", "SR-004", "FS-016"] {
        let mut card = card();
        let found = made.rows.iter().find(|row| row.id == id).expect("a row");
        *of(&mut card, id) = found.clone();
        let why = refused(&card, &[]);
        assert!(why.starts_with(id) && why.contains("was not run"), "{why}");
    }
    // One that misses and is admitted has an answer that was not measured.
    let mut card = card();
    let found = of(&mut card, "SR-004");
    found.verdict = Verdict::Miss;
    found.parts = [Verdict::Miss, Verdict::NotRun]
        .map(|verdict| CardPart {
            id: "SR-004 at 10".to_owned(),
            verdict,
        })
        .to_vec();
    let why = refused(&card, &["SR-004".to_owned()]);
    assert!(why.contains("was not measured"), "{why}");
}

#[test]
fn a_quick_scorecard_refuses_a_freeze() {
    let mut card = card();
    card.parameters.quick = true;
    assert!(refused(&card, &[]).contains("quick run"));
}

#[test]
fn a_manifest_says_with_which_protocols_its_scorecard_ran() {
    let mut card = card();
    let renewed = |card: &Card| renewed("2026-01-01", "a test", &[], card);
    let manifest =
        |card: &Card| -> Manifest { toml::from_str(&renewed(card)).expect("a manifest") };
    assert_eq!(of_other_protocols(&card), None);
    let rests = manifest(&card).card.expect("a card");
    assert_eq!((rests.protocols.as_str(), rests.seeds), (PROTOCOLS, 2));
    card.parameters.protocols = "earlier".to_owned();
    assert_eq!(allowed(&card, &[]), Ok(()));
    let manifest = manifest(&card);
    assert_eq!(manifest.card.expect("a card").protocols, "earlier");
    assert_eq!(manifest.protocols, PROTOCOLS);
    assert!(renewed(&card).contains("# the scorecard is for other protocols, earlier"));
}

#[test]
fn every_measurement_has_a_figure() {
    let figures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/figures");
    let files = ["raw_limits.rs", "fasst/cores.rs", "fasst/reads.rs"];
    let text = files.map(|file| std::fs::read_to_string(figures.join(file)).expect("a source"));
    for name in MEASUREMENTS {
        let quoted = format!("\"{name}\"");
        assert!(text.iter().any(|text| text.contains(&quoted)), "{name}");
    }
}
