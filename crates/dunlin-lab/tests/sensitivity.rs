//! A figure that panics in `sensitivity` does not affect the others.

use std::convert::Infallible;

use dunlin_lab::figure::{Effort, Figure, Findings, Setting};
use dunlin_lab::sensitivity;

/// A figure that answers this claim with the value that is set, or 1.
fn answering(id: &str, effort: Effort) -> Findings {
    let mut findings = Findings::default();
    let ours = effort.settings.first().map_or(1.0, |set| set.value);
    findings.answer(id, "about 1", ours, (0.8, 1.2), "a number");
    findings
}

const SOUND: Figure = Figure {
    name: "sound",
    title: "",
    says: "",
    run: |effort| answering("RB-010", effort),
};
/// A figure that panics with a greater value than that of the file.
const DELICATE: Figure = Figure {
    name: "delicate",
    run: |effort| {
        let mut values = effort.settings.iter().map(|set| set.value);
        assert!(values.all(|value| value <= 1.0), "too much");
        answering("RB-017", effort)
    },
    ..SOUND
};
const BROKEN: Figure = Figure {
    name: "broken",
    run: |_| panic!("always"),
    ..SOUND
};

#[test]
fn a_figure_that_panics_is_named_and_the_others_go_on() {
    let guess = Setting {
        of: "ConnectX-5".to_owned(),
        name: "pipeline_ns".to_owned(),
        value: 1.0,
    };
    let figures = [&BROKEN, &DELICATE, &SOUND];
    let mut told = 0;
    let found = sensitivity::run(&figures, Effort::new(true, 1), &[guess], |_| {
        told += 1;
        Ok::<(), Infallible>(())
    });
    let Ok(found) = found;
    let [broken] = &found.failed[..] else {
        panic!("{found:?}");
    };
    assert_eq!(broken.figure, "broken");
    assert!(broken.why.starts_with("always"), "{broken}");
    assert_eq!((told, found.moved.len()), (2, 2));
    let moved = |which: usize| -> Vec<&str> {
        let claims = found.moved[which].claims.iter();
        claims.map(|claim| claim.0.as_str()).collect()
    };
    assert_eq!(moved(0), ["RB-010", "RB-017"]);
    assert!(found.moved[0].failed.is_empty());
    // The results of the figure that panicked are unknown, and count as not moved.
    assert_eq!(moved(1), ["RB-010"]);
    let [delicate] = &found.moved[1].failed[..] else {
        panic!("{found:?}");
    };
    assert_eq!(delicate.figure, "delicate");
    assert!(delicate.why.starts_with("too much"), "{delicate}");
}
