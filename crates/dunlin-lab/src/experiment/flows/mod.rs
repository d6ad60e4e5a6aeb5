//! Flows of an experiment: so many bytes from one host to another from a given time on, as WRITEs on a queue pair of
//! their own, and how long each took.
//!
//! - `keys` and `model` are what the tables of a file say, checked; `list` reads flows from files of other simulators;
//! - `sender` is the thread that posts the flows of a host, `running` puts them all on a cluster, `times` is how long
//!   each took;
//! - `queues` is what waits at the ports of switches meanwhile.

mod keys;
mod list;
mod model;
mod queues;
mod running;
mod sender;
mod times;

pub(super) use keys::SECTION;
pub(super) use model::{read, Flow, Flows};
pub(super) use queues::{Deepest, Queues};
pub(super) use running::Running;
pub use times::FlowTime;
pub(super) use times::FlowTimes;
