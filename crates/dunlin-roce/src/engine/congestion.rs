//! Congestion marks: the receiver of marked packets notifies their sender, which then sends less (RoCEv2's annex
//! A17.9).

use super::{Engine, Protocol, Shared};
use crate::packet::{Header, Operation, Psn, Service, DEFAULT_PARTITION_KEY};
use crate::socket::{Count, Train};

/// Minimum interval between notifications to a sender: its window covers a round trip, and the marks of one queue come
/// in bursts. The default of NICs.
const APART_NS: u64 = 50_000;

/// Notifications that a queue pair owes its peer.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// When the last one was due.
    last_ns: Option<u64>,
    due: bool,
}

impl Notifications {
    /// Records a marked packet.
    fn note(&mut self, now_ns: u64) {
        let recent = |last_ns: u64| now_ns.saturating_sub(last_ns) < APART_NS;
        if !self.last_ns.is_some_and(recent) {
            self.last_ns = Some(now_ns);
            self.due = true;
        }
    }
}

impl Engine {
    /// Adds a notification to a train, if one is due.
    pub(super) fn notify(&mut self, shared: &Shared, train: &mut Train) {
        if !std::mem::take(&mut self.notifications.due) {
            return;
        }
        let peer = match &self.protocol {
            Protocol::Reliable { requester, .. } => requester.peer_queue_pair(),
            Protocol::Unreliable { sender, .. } => sender.peer_queue_pair(),
            Protocol::Datagram { .. } | Protocol::None => return,
        };
        let Some(path) = &self.path else {
            return;
        };
        let header = Header {
            service: Service::Congestion,
            operation: Operation::CongestionNotification,
            solicited: false,
            acknowledge: false,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: peer,
            psn: Psn::new(0),
        };
        let _ = train.add(&shared.core.socket, path, &header, 0, |_| Ok(()));
    }

    /// Handles a marked packet of the peer. The amount of data that answers our READs is what we have requested, so we
    /// reduce it by requesting less; a NIC is notified nevertheless.
    pub(super) fn handle_mark(&mut self, now_ns: u64, header: &Header) {
        if header.service == Service::Congestion {
            return;
        }
        self.notifications.note(now_ns);
        if let (true, Protocol::Reliable { requester, .. }) =
            (header.operation.is_response(), &mut self.protocol)
        {
            requester.handle_congestion();
        }
    }

    /// Handles a notification that packets from here were marked. UC's sender has no window to reduce, so it is only
    /// counted there.
    pub(super) fn handle_notification(&mut self, shared: &Shared) {
        let statistics = &shared.core.socket.statistics;
        statistics.count(Count::CongestionNotification);
        if let Protocol::Reliable { requester, .. } = &mut self.protocol {
            requester.handle_congestion();
        }
    }
}
