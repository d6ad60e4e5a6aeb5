//! Experiments on the simulated cluster, and the papers' claims against what they show.
//!
//! `load` holds the simulated threads of the raw-verbs experiments. Everything here uses the face of `dunlin-sim` and the traits of
//! verbs, like any user.
#![forbid(unsafe_code)]

pub mod load;
