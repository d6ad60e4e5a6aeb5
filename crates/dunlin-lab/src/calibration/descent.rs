//! Steps of one knob after the other, where slopes do not lead on: at the bend where another engine is the slowest.

use super::knob::Candidate;
use super::trials::Trials;

/// A step is taken when it lowers the error by this share of it at least: what is less is chance.
const WORTH: f64 = 0.01;
/// No step is longer than this factor, down or up.
const LONGEST: (f64, f64) = (0.5, 2.0);

/// Each knob up and down by this share of its value, then twice as far as long as that helps; whether anything did.
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
