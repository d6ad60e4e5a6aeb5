//! Calibration: the model compared with the measurements of `calibration.csv` and the `calibrate` rows of the claims,
//! and fitting the NIC of a user to the output of perftest on it.

mod descent;
mod fit;
mod flat;
mod knob;
mod newton;
mod nic;
pub mod perftest;
mod residual;
mod starts;
mod sweep;
mod trials;

pub use fit::{fit, Found, Progress, Search, Stage};
pub use flat::{open_changes, Open};
pub use knob::Knob;
pub use nic::{fit_nic, write_nic, Fitted, Line, Testbed};
pub use residual::{missed, Missed, Residual};
pub use sweep::{points, run, Compared, Point};
pub use trials::{Model, Runs};

/// Root of the mean of the squared relative errors.
pub fn root_mean_square(rows: &[Compared]) -> f64 {
    let sum: f64 = rows.iter().map(|row| row.error().powi(2)).sum();
    (sum / rows.len().max(1) as f64).sqrt()
}
