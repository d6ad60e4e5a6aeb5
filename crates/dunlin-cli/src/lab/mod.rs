//! What the subcommands of `dunlin lab` do; the figures themselves are in the crate `dunlin-lab`.

pub mod calibrate;
mod capture;
pub mod experiment;
pub mod fit;
mod hosts;
pub mod hunt;
mod recording;
pub mod replaced;
pub mod runner;
mod search;
pub mod sensitivity;
pub mod speed;
mod trace;
mod unknown;
