//! Further starts of a fit: values drawn around the given ones, by a seed.

use super::knob::{Candidate, Knob};
use super::trials::Trials;
use super::Search;
use crate::dice::Dice;

/// Values are drawn between the given one divided by this factor and multiplied by it.
const WIDE: f64 = 3.0;
/// Number of candidates drawn for each start; those with the smallest errors are taken.
const DRAWN: usize = 8;
/// Resolution of random numbers within a part of a knob's range.
const FINE: u64 = 1 << 20;

/// All starts but the given one, best first. Each knob's range is cut into as many parts as there are candidates, and
/// each candidate takes one part (a Latin hypercube), so few candidates cover each range.
pub(super) fn draw(given: &Candidate, search: Search, trials: &mut Trials<'_>) -> Vec<Candidate> {
    let starts = match given.knobs.is_empty() {
        true => 0,
        false => search.starts.saturating_sub(1),
    };
    let count = starts * DRAWN;
    let mut dice = Dice::new(search.seed);
    let columns: Vec<Vec<f64>> = given
        .knobs
        .iter()
        .map(|knob| column(knob, count, &mut dice))
        .collect();
    let rows = (0..count).map(|row| {
        columns
            .iter()
            .map(|column| column[row])
            .collect::<Vec<f64>>()
    });
    let mut drawn: Vec<Candidate> = rows
        .filter_map(|values| trials.with(given, &values))
        .collect();
    drawn.sort_by(|a, b| a.error().total_cmp(&b.error()));
    drawn.truncate(starts);
    drawn
}

/// A value of the knob from each part of its range, in random order.
fn column(knob: &Knob, count: usize, dice: &mut Dice) -> Vec<f64> {
    let mut values: Vec<f64> = (0..count)
        .map(|part| {
            let within = dice.between(0, FINE - 1) as f64 / FINE as f64;
            let share = (part as f64 + within) / count as f64;
            knob.times(WIDE.powf(2.0 * share - 1.0))
        })
        .collect();
    for at in (1..count).rev() {
        values.swap(at, dice.between(0, at as u64) as usize);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cover_the_range_and_repeat_by_their_seed() {
        let knob = Knob {
            name: "tx_wqe_ns".to_owned(),
            value: 10.0,
            whole: false,
        };
        let of = |seed| column(&knob, 16, &mut Dice::new(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let mut sorted = of(1);
        sorted.sort_by(f64::total_cmp);
        assert!(sorted[0] >= 10.0 / WIDE && sorted[15] <= 10.0 * WIDE);
        // One in each sixteenth: neighbours are at most two of them apart.
        for pair in sorted.windows(2) {
            assert!(
                pair[1] / pair[0] <= WIDE.powf(4.0 / 16.0) * 1.0001,
                "{sorted:?}"
            );
        }
    }
}
