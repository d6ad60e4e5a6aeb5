//! State shared by both halves of a connection.

use std::collections::VecDeque;

use super::action::{Action, LostBy};
use super::config::{Config, Modules};
use super::paths::{Paths, Step};
use crate::congestion::Signals;

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Work requests passed to the driver for posting.
    pub posted: u64,
    /// SENDs that retransmit something.
    pub repeated: u64,
    /// Work requests that were considered lost but were acknowledged later.
    pub spurious: u64,
    /// Timeouts that expired.
    pub timeouts: u64,
    /// Changes to another queue pair.
    pub switches: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Acknowledged numbers that match nothing outstanding, mostly because they were acknowledged before.
    pub unknown_acks: u64,
    /// SENDs and chunks that had arrived before.
    pub duplicates: u64,
    /// WRITEs into messages that had already been delivered.
    pub late_writes: u64,
    /// Messages from the peer that are malformed or exceed what was agreed.
    pub violations: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) modules: Modules,
    pub(super) paths: Paths,
    pub(super) actions: VecDeque<Action>,
    pub(super) counters: Counters,
    /// Whether no queue pair is left.
    pub(super) lost: bool,
    /// The reason.
    pub(super) lost_by: Option<LostBy>,
}

impl Context {
    pub(super) fn step(&mut self, path: usize, step: Step) {
        self.actions.push_back(match step {
            Step::Renew => Action::Renew { path },
            Step::Connect(address) => Action::Connect { path, address },
        });
    }

    /// Passes the contents of an acknowledgement, which the receiver delayed by `kept_ns`, to the modules.
    pub(super) fn signal(&mut self, now_ns: u64, signals: Signals, kept_ns: u64) {
        if let Some(rtt_ns) = signals.rtt_ns {
            let waited_ns = rtt_ns.saturating_add(kept_ns);
            self.modules.reliability.measured(waited_ns);
            self.modules.chunking.measured(now_ns, rtt_ns);
        }
        self.modules.congestion.acknowledged(now_ns, signals);
    }
}
