//! Experiments on the simulated cluster, and the papers' claims compared with their results.
//!
//! - `figures` has one small file for each figure: set-up, sweep, metric, and the claims it answers;
//! - `load` has the simulated threads of the experiments;
//! - `calibration` compares the model with measurements that it may be fitted to, and fits it;
//! - `claims` are the papers' claims, `freeze` records the parameters with which they are judged, `score` judges them;
//! - `experiment` runs experiments described in TOML files: `docs/experiments.md`;
//! - `hunt` looks for broken invariants under random faults;
//! - `report` writes text, CSV, SVG, HTML and the scorecard;
//! - `parallel` runs independent points on several real threads, `caught` reports why a figure panicked.
//!
//! Everything here uses the public interface of `dunlin-sim` and the verbs traits, like any user.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod caught;
pub mod claims;
pub mod csv;
mod dice;
pub mod experiment;
pub mod figure;
pub mod figures;
pub mod freeze;
pub mod hunt;
pub mod load;
pub mod parallel;
pub mod report;
pub mod score;
pub mod sensitivity;
pub mod speed;
