//! The fit: changes one parameter after the other as long as the error falls. It reads nothing but calibration rows.

use dunlin_sim::NicParameters;

/// A parameter that may be changed, by its name in the file.
#[derive(Clone, Debug)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Whether it counts something.
    pub whole: bool,
}

/// Looks for values with a smaller `error`, by factors that shrink; gives the best.
pub fn fit(
    nic: &NicParameters,
    knobs: &[Knob],
    rounds: usize,
    mut error: impl FnMut(&NicParameters) -> f64,
    mut tell: impl FnMut(&str, f64, f64),
) -> (NicParameters, Vec<Knob>) {
    let mut best = nic.clone();
    let mut knobs = knobs.to_vec();
    let mut least = error(&best);
    tell("start", 0.0, least);
    let mut step = 0.25;
    for _ in 0..rounds {
        for knob in &mut knobs {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                loop {
                    let mut value = knob.value * factor;
                    if knob.whole {
                        value = if factor > 1.0 {
                            value.ceil()
                        } else {
                            value.floor().max(1.0)
                        };
                    }
                    let mut tried = best.clone();
                    if value == knob.value || tried.set(&knob.name, value).is_err() {
                        break;
                    }
                    let found = error(&tried);
                    if found >= least {
                        break;
                    }
                    (best, least) = (tried, found);
                    tell(&knob.name, value, least);
                    knob.value = value;
                }
            }
        }
        step /= 2.0;
    }
    (best, knobs)
}
