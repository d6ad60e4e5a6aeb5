//! Steps along the slopes of all knobs at once: Gauss-Newton, damped as by Levenberg and Marquardt. They follow a
//! valley across the knobs, and take few trials.

use super::knob::Candidate;
use super::trials::Trials;

/// Factor by which knobs are changed to measure slopes: large enough that chance does not hide them.
const SLOPE: f64 = 1.1;
/// A step changes no knob by more than this factor.
const FARTHEST: f64 = 2.0;
/// Damping of the first step, and the factor from one damping to the next.
const DAMPING: (f64, f64) = (0.03, 10.0);
/// Number of dampings tried for a step.
const DAMPINGS: usize = 3;
/// The search ends with a step that lowers the error by less than this share.
const WORTH: f64 = 0.02;

/// Takes up to `steps` steps.
pub(super) fn follow(best: &mut Candidate, steps: usize, trials: &mut Trials<'_>) {
    let mut damping = DAMPING.0;
    for _ in 0..steps {
        let before = best.error();
        let found = slopes(best, |there| trials.again(there));
        let mut next = None;
        for _ in 0..DAMPINGS {
            let values = step(best, &found, damping);
            let there = trials.with(best, &values);
            if let Some(there) = there.filter(|there| there.error() < before) {
                next = Some(there);
                damping /= DAMPING.1;
                break;
            }
            damping *= DAMPING.1;
        }
        let Some(next) = next else { return };
        *best = next;
        trials.tell(best);
        if best.error() > before * (1.0 - WORTH) {
            return;
        }
    }
}

/// The change of each row's error with the logarithm of each knob; `None` if nothing could be tried.
pub(super) fn slopes(
    here: &Candidate,
    mut at: impl FnMut(&Candidate) -> Option<Candidate>,
) -> Vec<Vec<f64>> {
    let flat = || vec![0.0; here.errors.len()];
    let of = |place: usize| {
        let knob = &here.knobs[place];
        let towards = |factor| {
            let mut values = here.values();
            values[place] = knob.times(factor);
            here.with(&values)
        };
        let there = towards(SLOPE).or_else(|| towards(1.0 / SLOPE))?;
        let by = (there.knobs[place].value / knob.value).ln();
        let there = at(&there)?;
        let rows = there.errors.iter().zip(&here.errors);
        Some(rows.map(|(there, here)| (there - here) / by).collect())
    };
    (0..here.knobs.len())
        .map(of)
        .map(|slopes| slopes.unwrap_or_else(flat))
        .collect()
}

/// The values for which these slopes predict the smallest error.
fn step(here: &Candidate, slopes: &[Vec<f64>], damping: f64) -> Vec<f64> {
    let product = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let mut equations: Vec<Vec<f64>> = slopes
        .iter()
        .map(|one| {
            let mut row: Vec<f64> = slopes.iter().map(|other| product(one, other)).collect();
            row.push(-product(one, &here.errors));
            row
        })
        .collect();
    for (at, row) in equations.iter_mut().enumerate() {
        // A knob without a slope keeps its value.
        row[at] = row[at] * (1.0 + damping) + f64::from(u8::from(row[at] == 0.0));
    }
    let most = FARTHEST.ln();
    let changes = solve(equations);
    let each = here.knobs.iter().zip(changes);
    each.map(|(knob, change)| {
        let value = knob.value * change.clamp(-most, most).exp();
        match knob.whole {
            true => value.round().max(1.0),
            false => value,
        }
    })
    .collect()
}

/// Solves linear equations, each a row with its right side last, by elimination. They are those of a damped step, so
/// their diagonal is positive.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rows.len();
    for pivot in 0..count {
        let (above, below) = rows.split_at_mut(pivot + 1);
        let pivot_row = &above[pivot];
        for row in below {
            let factor = row[pivot] / pivot_row[pivot];
            for (value, of_pivot) in row.iter_mut().zip(pivot_row) {
                *value -= factor * of_pivot;
            }
        }
    }
    let mut found = vec![0.0; count];
    for at in (0..count).rev() {
        let known = (at + 1..count).map(|other| rows[at][other] * found[other]);
        found[at] = (rows[at][count] - known.sum::<f64>()) / rows[at][at];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::solve;

    #[test]
    fn equations_are_solved() {
        let found = solve(vec![
            vec![4.0, 1.0, 0.5, 7.5],
            vec![1.0, 3.0, 0.0, 7.0],
            vec![0.5, 0.0, 2.0, 6.5],
        ]);
        for (found, right) in found.into_iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - right).abs() < 1e-9);
        }
    }
}
