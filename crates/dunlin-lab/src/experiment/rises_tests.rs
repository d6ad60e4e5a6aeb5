//! The function `rises` of expressions: whether a curve never falls by more than it may.

use std::collections::BTreeMap;

use super::expression::parse;
use super::mistake::Place;
use super::outcome::{Outcome, OutcomePoint, Statistic};
use super::sweep::Axis;
use super::tree::scalar;

/// The value of `text` where `rate` has these values at 1, 2, 3 and so on of the only swept key.
fn value(text: &str, rates: &[f64]) -> Result<f64, String> {
    let key = "clients.threads".to_owned();
    let numbers = 1..=rates.len();
    let axes = [Axis {
        key: key.clone(),
        values: numbers
            .map(|at| scalar(&at.to_string(), Place::Nowhere))
            .collect(),
        place: Place::Nowhere,
    }];
    let expression = parse(text, &axes, &["rate"])?;
    let point = |rate: &f64| OutcomePoint {
        at: BTreeMap::new(),
        columns: vec![Statistic {
            name: "rate".to_owned(),
            unit: "M/s",
            mean: *rate,
            count: usize::from(!rate.is_nan()),
            repeats: 1,
            interval: None,
        }],
        series: Vec::new(),
        flows: Vec::new(),
        events: 0,
        digests: Vec::new(),
    };
    let outcome = Outcome {
        title: String::new(),
        keys: vec![key],
        points: rates.iter().map(point).collect(),
        complete: true,
        digest: String::new(),
        expected: Vec::new(),
        chart: None,
        lines: None,
    };
    let places: Vec<[usize; 1]> = (0..rates.len()).map(|at| [at]).collect();
    let places: Vec<&[usize]> = places.iter().map(|place| &place[..]).collect();
    Ok(expression.of(&outcome, &places, &axes).number())
}

#[test]
fn a_curve_rises_when_no_step_falls_by_more_than_it_may() {
    let of = |rates: &[f64]| value("rises(rate, 0.5)", rates).expect("an expression");
    assert_eq!(of(&[1.0, 2.0, 2.0, 5.0]), 1.0);
    assert_eq!(of(&[1.0, 2.0, 1.5, 5.0]), 1.0);
    assert_eq!(of(&[1.0, 2.0, 1.25, 5.0]), 0.0);
    // Each step counts, not their sum.
    assert_eq!(of(&[3.0, 2.5, 2.0, 1.5]), 1.0);
    assert!(of(&[7.0]).is_nan(), "one point does not rise");
}

#[test]
fn only_the_chosen_points_count() {
    let rates = [1.0, 4.0, 2.0, 3.0];
    assert_eq!(value("rises(rate[3..], 0)", &rates), Ok(1.0));
    assert_eq!(value("rises(rate[..3], 0)", &rates), Ok(0.0));
    assert_eq!(value("rises(-rate[2..3], 0)", &rates), Ok(1.0));
}

#[test]
fn what_is_made_of_a_point_without_a_value_has_none() {
    let rates = [
        [f64::NAN, 1.0, 3.0],
        [1.0, f64::NAN, 3.0],
        [1.0, 3.0, f64::NAN],
    ];
    let wholes = [
        "max(rate)",
        "min(rate)",
        "mean(rate)",
        "furthest(rate)",
        "rises(rate, 1)",
        "reaches(rate, 0.1)",
    ];
    for text in wholes {
        for rates in rates {
            assert!(
                value(text, &rates).is_ok_and(f64::is_nan),
                "{text} of {rates:?}"
            );
        }
    }
    for text in [
        "max(rate[1], rate[2])",
        "min(rate[1], rate[2])",
        "min(rate[1] / rate[2], 5)",
    ] {
        for rates in &rates[..2] {
            assert!(
                value(text, rates).is_ok_and(f64::is_nan),
                "{text} of {rates:?}"
            );
        }
    }
    assert_eq!(value("max(rate[..2])", &rates[2]), Ok(3.0));
}

#[test]
fn a_curve_of_zeros_reaches_nothing() {
    assert!(value("reaches(rate, 0.9)", &[0.0, 0.0]).is_ok_and(f64::is_nan));
    assert_eq!(value("reaches(rate, 0.5)", &[0.0, 1.0, 2.0]), Ok(2.0));
}

#[test]
fn it_takes_a_curve_and_a_number() {
    for wrong in ["rises(rate)", "rises(rate[1], 0.1)", "rises(rate, rate)"] {
        let said = value(wrong, &[1.0, 2.0]).expect_err("not a curve and a number");
        assert!(said.contains("how far it may fall"), "{said}");
    }
}
