//! Raw verbs of an experiment: READs, WRITEs and SENDs posted by threads, with the same load as in the figures
//! ([`crate::load`]).

mod keys;
mod model;
mod running;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong_tests;

pub(super) use keys::SECTION;
pub(super) use model::{read, Verbs};
pub(super) use running::Running;
