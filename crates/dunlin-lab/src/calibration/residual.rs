//! Rows that the model misses after a fit, and what they have in common.

/// A measured row, with the model's error.
#[derive(Clone, Debug)]
pub struct Residual {
    /// What was measured.
    pub label: String,
    /// Relative error of the model.
    pub error: f64,
    /// Kind of the measurement.
    pub kind: &'static str,
    /// Settings of the measurement: names and values, with the same names in all rows.
    pub settings: Vec<(&'static str, f64)>,
}

/// Rows whose error is beyond a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// Indices of the rows.
    pub rows: Vec<usize>,
    /// Number of them in which the model is above the measurement.
    pub above: usize,
    /// Their kind, if they share one that not all other rows have.
    pub kind: Option<&'static str>,
    /// Settings of which they have only a part of the range: name, least and greatest. Empty for a single row.
    pub shared: Vec<(&'static str, f64, f64)>,
    /// Number of other rows that share all of this without being missed.
    pub others: usize,
}

/// The rows whose error is beyond `bound`, and what distinguishes them: a kind, or a range of a setting that at least
/// half of the rows within the bound are outside of. `None` when all are within.
pub fn missed(rows: &[Residual], bound: f64) -> Option<Missed> {
    let (beyond, within): (Vec<usize>, Vec<usize>) =
        (0..rows.len()).partition(|at| rows[*at].error.abs() > bound);
    let first = &rows[*beyond.first()?];
    let several = beyond.len() > 1;
    let one_kind = several && beyond.iter().all(|at| rows[*at].kind == first.kind);
    let kind =
        (one_kind && within.iter().any(|at| rows[*at].kind != first.kind)).then_some(first.kind);
    let range = |setting: usize| {
        let values = beyond.iter().map(|at| rows[*at].settings[setting].1);
        values.fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), value| (least.min(value), most.max(value)),
        )
    };
    let has = |at: usize, setting: usize, (least, most): (f64, f64)| {
        (least..=most).contains(&rows[at].settings[setting].1)
    };
    let telling: Vec<(usize, (f64, f64))> = (0..first.settings.len())
        .map(|setting| (setting, range(setting)))
        .filter(|(setting, range)| {
            let outside = within.iter().filter(|at| !has(**at, *setting, *range));
            several && !within.is_empty() && 2 * outside.count() >= within.len()
        })
        .collect();
    let is_alike = |at: &&usize| {
        kind.is_none_or(|kind| rows[**at].kind == kind)
            && telling
                .iter()
                .all(|(setting, range)| has(**at, *setting, *range))
    };
    Some(Missed {
        above: beyond.iter().filter(|at| rows[**at].error > 0.0).count(),
        kind,
        shared: telling
            .iter()
            .map(|(setting, (least, most))| (first.settings[*setting].0, *least, *most))
            .collect(),
        others: within.iter().filter(is_alike).count(),
        rows: beyond,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &'static str, bytes: usize, queue_pairs: usize, error: f64) -> Residual {
        Residual {
            label: format!("{kind} {bytes} {queue_pairs}"),
            error,
            kind,
            settings: vec![("bytes", bytes as f64), ("queue pairs", queue_pairs as f64)],
        }
    }

    #[test]
    fn missed_rows_are_told_by_what_others_have_not() {
        let rows = [
            row("read", 8, 1, 0.01),
            row("read", 64, 1, -0.02),
            row("read", 256, 1, 0.3),
            row("read", 300, 256, 0.25),
            row("read", 280, 16, 0.05),
            row("write", 256, 1, 0.0),
            row("write", 8, 256, 0.19),
        ];
        let found = missed(&rows, 0.2).expect("two rows");
        assert_eq!(found.rows, [2, 3]);
        assert_eq!(found.above, 2);
        assert_eq!(found.kind, Some("read"));
        // Both have every number of queue pairs.
        assert_eq!(found.shared, [("bytes", 256.0, 300.0)]);
        assert_eq!(found.others, 1);
    }

    #[test]
    fn one_row_has_nothing_in_common_and_none_is_nothing() {
        let rows = [
            row("read", 8, 1, -0.4),
            row("read", 64, 1, 0.1),
            row("write", 8, 1, 0.1),
        ];
        let found = missed(&rows, 0.2).expect("one row");
        assert_eq!((found.above, found.kind, found.others), (0, None, 2));
        assert!(found.shared.is_empty());
        assert_eq!(missed(&rows, 0.5), None);
    }
}
