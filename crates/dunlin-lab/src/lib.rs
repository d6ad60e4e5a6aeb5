//! Experiments on the simulated cluster, and the papers' claims against what they show.
//!
//! - `figures` has one small file for each figure: set-up, sweep, metric, and the claims it answers;
//! - `load` holds the simulated threads of the raw-verbs experiments;
//! - `calibration` compares the model with measurements that it may be fitted to, and fits it;
//! - `claims` are the papers' claims, `freeze` says with which parameters they are judged, `score` judges them;
//! - `experiment` runs what a file in TOML describes: `docs/experiments.md`;
//! - `hunt` looks for broken invariants under random faults;
//! - `report` writes text, CSV, SVG, HTML and the scorecard;
//! - `parallel` runs independent points on several real threads, `caught` tells why a figure panicked.
//!
//! Everything here uses the face of `dunlin-sim` and the traits of verbs, like any user.
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
