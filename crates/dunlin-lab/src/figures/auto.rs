//! `auto` compared with the best of the presets, at every point of a figure of RPC.
//!
//! This is a promise of ours, not a claim of a paper: a row of the scorecard for each figure, with the worst of its
//! points.

use dunlin::Preset;

use crate::figure::Findings;

/// Minimum share of the best preset's rate that keeps the promise.
const LEAST: f64 = 0.95;

/// Adds the row `id`: the minimum over all points of `auto`'s rate divided by the best other rate. `points` have a
/// description, the presets measured there, and their rates.
pub(super) fn against_best(
    findings: &mut Findings,
    id: &'static str,
    points: &[(String, Vec<(Preset, f64)>)],
) {
    let mut worst: Option<(f64, &str, Preset)> = None;
    for (words, rates) in points {
        let ours = rates.iter().find(|(preset, _)| *preset == Preset::Auto);
        let others = rates.iter().filter(|(preset, _)| *preset != Preset::Auto);
        let best = others.max_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(ours), Some(best)) = (ours, best) else {
            continue;
        };
        let ratio = ours.1 / best.1;
        if worst.is_none_or(|(least, _, _)| ratio < least) {
            worst = Some((ratio, words, best.0));
        }
    }
    if let Some((ratio, words, best)) = worst {
        let why = format!("least of auto over the best other preset: at {words}, {best}");
        findings.answer(id, "1", ratio, (LEAST, f64::MAX), &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_point_is_named() {
        let mut findings = Findings::default();
        let point = |words: &str, auto, plain, flock| {
            let rates = vec![
                (Preset::Plain, plain),
                (Preset::Auto, auto),
                (Preset::Flock, flock),
            ];
            (words.to_owned(), rates)
        };
        let points = [point("few", 10.0, 9.0, 8.0), point("many", 9.0, 5.0, 10.0)];
        against_best(&mut findings, "auto", &points);
        let answer = &findings.answers[0];
        assert_eq!(answer.ours, 0.9);
        assert!(!answer.within && answer.why.contains("many, flock"));
    }
}
