//! The network: switches with queues, a shared buffer, marking and pausing, and the cables between them and the hosts.

mod switch;
mod topology;

pub(crate) use switch::{Link, Port, Switch};
pub(crate) use topology::{Network, Paths};
