//! Parameters that a fit may change, and sets of their values with the model's errors.

use dunlin_sim::NicParameters;

use super::Compared;

/// A fit changes no value by more than this factor from the given one. Where the measurements show only a sum of two,
/// one of them would otherwise vanish.
const REACH: f64 = 5.0;

/// A parameter that may be changed.
#[derive(Clone, Debug)]
pub struct Knob {
    /// Its name in the file.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Whether it is a count.
    pub whole: bool,
}

impl Knob {
    /// The value times `factor`; for a count, the next whole number in that direction, and at least one.
    pub(super) fn times(&self, factor: f64) -> f64 {
        let value = self.value * factor;
        match (self.whole, factor > 1.0) {
            (false, _) => value,
            (true, true) => value.ceil(),
            (true, false) => value.floor().max(1.0),
        }
    }
}

/// Values of all knobs, with their errors.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) nic: NicParameters,
    pub(super) knobs: Vec<Knob>,
    /// The given values.
    given: Vec<f64>,
    /// Relative error of each row.
    pub(super) errors: Vec<f64>,
}

impl Candidate {
    pub(super) fn new(nic: &NicParameters, knobs: &[Knob], rows: &[Compared]) -> Self {
        let mut candidate = Self {
            nic: nic.clone(),
            knobs: knobs.to_vec(),
            given: knobs.iter().map(|knob| knob.value).collect(),
            errors: Vec::new(),
        };
        candidate.found(rows);
        candidate
    }

    /// Sets the errors from the model's rows for these values.
    pub(super) fn found(&mut self, rows: &[Compared]) {
        self.errors = rows.iter().map(Compared::error).collect();
    }

    /// Root of the mean of the squared errors.
    pub(super) fn error(&self) -> f64 {
        let sum: f64 = self.errors.iter().map(|error| error * error).sum();
        (sum / self.errors.len().max(1) as f64).sqrt()
    }

    pub(super) fn values(&self) -> Vec<f64> {
        self.knobs.iter().map(|knob| knob.value).collect()
    }

    /// This candidate with other values, in the knobs' order, limited to the reach; `None` when that changes nothing,
    /// or the NIC cannot have one of them.
    pub(super) fn with(&self, values: &[f64]) -> Option<Self> {
        let mut other = self.clone();
        for ((knob, value), given) in other.knobs.iter_mut().zip(values).zip(&self.given) {
            let (least, most) = (given / REACH, given * REACH);
            knob.value = match knob.whole {
                true => value.clamp(least.ceil(), most.floor()),
                false => value.clamp(least, most),
            };
            other.nic.set(&knob.name, knob.value).ok()?;
        }
        (other.values() != self.values()).then_some(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_within_reach_of_what_was_given() {
        let knobs = [("tx_wqe_ns", 20.0, false), ("context_sets", 12.0, true)];
        let knobs = knobs.map(|(name, value, whole)| Knob {
            name: name.to_owned(),
            value,
            whole,
        });
        let given = Candidate::new(&NicParameters::connectx_5(), &knobs, &[]);
        let least = given.with(&[0.1, 1.0]).unwrap();
        assert_eq!(least.values(), [4.0, 3.0]);
        assert_eq!(least.nic.get("context_sets"), Some(3.0));
        // The reach is relative to the given values, however far the candidate has moved.
        let most = least.with(&[1_000.0, 1_000.0]).unwrap();
        assert_eq!(most.values(), [100.0, 60.0]);
        assert!(most.with(&[101.0, 61.0]).is_none());
    }
}
