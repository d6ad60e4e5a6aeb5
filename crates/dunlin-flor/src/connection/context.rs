//! What both halves of a connection share.

use std::collections::VecDeque;

use super::action::{Action, LostBy};
use super::config::{Config, Modules};
use super::paths::{Paths, Step};
use crate::congestion::Signals;

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Work requests that were handed out to be posted.
    pub posted: u64,
    /// SENDs that repeat something.
    pub repeated: u64,
    /// Work requests that were taken for lost and acknowledged after all.
    pub spurious: u64,
    /// Times that a timeout passed.
    pub timeouts: u64,
    /// Changes to another queue pair.
    pub switches: u64,
    /// Acknowledgements that were sent.
    pub acks: u64,
    /// Numbers in acknowledgements that stand for nothing that is open: mostly of what was acknowledged before.
    pub unknown_acks: u64,
    /// SENDs and chunks that had come before.
    pub duplicates: u64,
    /// WRITEs into messages that had been delivered before.
    pub late_writes: u64,
    /// Things from the peer that make no sense, or exceed what was agreed.
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
    /// No queue pair is left.
    pub(super) lost: bool,
    /// Why.
    pub(super) lost_by: Option<LostBy>,
}

impl Context {
    pub(super) fn step(&mut self, path: usize, step: Step) {
        self.actions.push_back(match step {
            Step::Renew => Action::Renew { path },
            Step::Connect(address) => Action::Connect { path, address },
        });
    }

    /// Tells the modules what an acknowledgement says, which the receiver kept back for so long.
    pub(super) fn signal(&mut self, now_ns: u64, signals: Signals, kept_ns: u64) {
        if let Some(rtt_ns) = signals.rtt_ns {
            let waited_ns = rtt_ns.saturating_add(kept_ns);
            self.modules.reliability.measured(waited_ns);
            self.modules.chunking.measured(now_ns, rtt_ns);
        }
        self.modules.congestion.acknowledged(now_ns, signals);
    }
}
