//! Steps of one knob after the other, for where slopes give no direction: at the bend where another engine becomes the
//! slowest.

use super::knob::Candidate;
use super::trials::Trials;

/// A step is taken when it lowers the error by at least this share; less is chance.
const WORTH: f64 = 0.01;
/// Limits of a step, as factors down and up.
const LONGEST: (f64, f64) = (0.5, 2.0);

/// Tries each knob up and down by this share of its value, then steps twice as long for as long as they help. Returns
/// whether anything helped.
pub(super) fn round(best: &mut Candidate, share: f64, trials: &mut Trials<'_>) -> bool {
    let mut helped = false;
    for at in 0..best.knobs.len() {
        for mut factor in [1.0 + share, 1.0 / (1.0 + share)] {
            let mut moved = false;
            loop {
                let mut values = best.values();
                values[at] = best.knobs[at].times(factor);
                let there = trials.with(best, &values);
                let most = best.error() * (1.0 - WORTH);
                let Some(there) = there.filter(|there| there.error() < most) else {
                    break;
                };
                *best = there;
                moved = true;
                factor = (factor * factor).clamp(LONGEST.0, LONGEST.1);
                trials.tell(best);
            }
            helped |= moved;
            if moved {
                break;
            }
        }
    }
    helped
}
