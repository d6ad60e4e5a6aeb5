//! Describes what a fit leaves undetermined, for `lab calibrate` and `lab fit`.

use dunlin_lab::calibration::{missed, Missed, Open, Residual};
use serde_json::json;

use crate::commands::Failure;
use crate::output;

/// A row is missed when the model is off by more than this share.
const MISSED: f64 = 0.2;

/// Prints which changes of parameters the rows that a fit was shown leave open, whose error it is.
pub(super) fn print_open(error: f64, open: &[Open]) -> Result<(), Failure> {
    let error = error * 100.0;
    if open.is_empty() {
        return output::print(format_args!(
            "each parameter is told by the measurements: no change by a quarter leaves the error at {error:.1} %"
        ));
    }
    output::print(format_args!(
        "left open: what raises the root mean square error, {error:.1} %, by less than one"
    ))?;
    for change in open {
        output::print(format_args!(
            "  {}: {:.1} %",
            in_words(change),
            change.error * 100.0
        ))?;
    }
    Ok(())
}

fn in_words(change: &Open) -> String {
    let each = change.factors.iter();
    let each: Vec<String> = each
        .map(|(name, factor)| format!("{name} x {factor:.2}"))
        .collect();
    each.join(", ")
}

/// Prints which rows are missed, and what they have in common.
pub(super) fn print_missed(rows: &[Residual]) -> Result<(), Failure> {
    let bound = MISSED * 100.0;
    let Some(found) = missed(rows, MISSED) else {
        return output::print(format_args!("no row is off by more than {bound} %"));
    };
    let count = found.rows.len();
    output::print(format_args!(
        "{count} of {} rows are off by more than {bound} %; the model is above {} of them, below {}",
        rows.len(),
        found.above,
        count - found.above
    ))?;
    for row in &found.rows {
        let Residual { label, error, .. } = &rows[*row];
        output::print(format_args!("  {label}: {:+.1} %", error * 100.0))?;
    }
    match in_common(&found) {
        Some(common) => output::print(format_args!(
            "  in common: {common}; of the others {} have that, too",
            found.others
        )),
        None if count > 1 => output::print("  nothing in their settings sets them apart"),
        None => Ok(()),
    }
}

fn in_common(found: &Missed) -> Option<String> {
    let kind = found.kind.map(str::to_owned);
    let shared = found
        .shared
        .iter()
        .map(|(name, least, most)| match least == most {
            true => format!("{least} {name}"),
            false => format!("{least} to {most} {name}"),
        });
    let all: Vec<String> = kind.into_iter().chain(shared).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Both for `--json`.
pub(super) fn as_json(error: f64, open: &[Open], rows: &[Residual]) -> serde_json::Value {
    let open: Vec<serde_json::Value> = open
        .iter()
        .map(|change| {
            let factors = change.factors.iter().cloned();
            let factors: serde_json::Map<_, _> = factors
                .map(|(name, factor)| (name, factor.into()))
                .collect();
            json!({ "factors": factors, "error": change.error })
        })
        .collect();
    let missed = missed(rows, MISSED).map(|found| {
        let labels = found.rows.iter().map(|row| &rows[*row].label);
        let shared = found.shared.iter();
        let shared = shared.map(|(name, least, most)| json!({ "name": name, "least": least, "most": most }));
        json!({
            "bound": MISSED, "rows": labels.collect::<Vec<_>>(), "above": found.above, "kind": found.kind,
            "shared": shared.collect::<Vec<_>>(), "others": found.others,
        })
    });
    json!({ "error": error, "open": open, "missed": missed })
}
