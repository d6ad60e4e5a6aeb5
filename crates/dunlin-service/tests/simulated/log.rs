//! What a thread of a client saw.

use std::collections::BTreeSet;

use dunlin_service::Status;

#[derive(Default)]
pub struct Log {
    pub made: usize,
    pub ended_well: usize,
    /// Unary calls that were answered, and those that were said not to be executed.
    pub answered: BTreeSet<u64>,
    pub not_executed: BTreeSet<u64>,
    pub messages: usize,
    pub given_up: usize,
    /// Calls of which the second server saw the deadline.
    pub hops: usize,
    /// Calls that workers answered, and those that a pipeline made.
    pub by_workers: usize,
    pub pipelined: usize,
    pub failed: Vec<Failure>,
    pub wrong: Vec<String>,
    /// It has ended by itself.
    pub ended: bool,
}

/// A call that did not end as was asked.
pub struct Failure {
    pub what: String,
    pub status: Status,
    /// It had little time.
    pub hurried: bool,
    /// It asked the second server, too.
    pub relayed: bool,
    /// It waited for workers, which may have been waiting for the second server.
    pub queued: bool,
}

impl Failure {
    /// Of what is no call.
    pub fn new(what: &str, status: Status) -> Self {
        Self {
            what: what.to_owned(),
            status,
            hurried: false,
            relayed: false,
            queued: false,
        }
    }
}
