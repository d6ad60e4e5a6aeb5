//! Jobs of several ranks: their launcher, and the measurements between them.

pub mod launch;
pub mod measure;
