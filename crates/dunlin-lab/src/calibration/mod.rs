//! Calibration: the model against the measurements of `calibration.csv` and the `calibrate` rows of the claims; and a
//! user's own NIC, by what perftest printed on it.

mod fit;
mod flat;
mod nic;
pub mod perftest;
mod residual;
mod starts;
mod sweep;

pub use fit::{fit, Knob, Progress, Search};
pub use flat::{open_changes, Open};
pub use nic::{fit_nic, write_nic, Fitted, Line, Testbed};
pub use residual::{missed, Missed, Residual};
pub use sweep::{points, run, Compared, Point};

/// Root of the mean of the squared relative errors.
pub fn root_mean_square(rows: &[Compared]) -> f64 {
    let sum: f64 = rows
        .iter()
        .map(|row| (row.ours / row.paper - 1.0).powi(2))
        .sum();
    (sum / rows.len().max(1) as f64).sqrt()
}
