//! The sending end of a port.

use std::sync::Arc;

use dunlin_verbs::process::Generation;
use dunlin_verbs::QueuePairState;

use crate::region_table::PeerTable;
use crate::sync::{fence, Ordering};
use crate::wake::Waker;

use super::{Nonsense, PortMap, Record, ARMED_NEXT, ARMED_SOLICITED, RECORD_HEADER_BYTES};

/// A sender's view of its peer's port.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) port: Arc<PortMap>,
    pub(crate) table: PeerTable,
    wake: Option<Arc<Waker>>,
    tail: u64,
    head: u64,
    sent: u64,
    posted: u64,
    /// For a sender of datagrams, the process in which it is one: dropping it in a child does not make it leave.
    leaves: Option<Generation>,
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if self.leaves.is_some_and(|made_in| made_in.is_current()) {
            self.port.left().store(1, Ordering::Release);
        }
    }
}

impl Outbound {
    pub(crate) fn new(port: Arc<PortMap>, table: PeerTable, wake: Option<Arc<Waker>>) -> Self {
        Self {
            port,
            table,
            wake,
            tail: 0,
            head: 0,
            sent: 0,
            posted: 0,
            leaves: None,
        }
    }

    /// Makes it announce, when it is dropped anywhere, that it will send nothing more: the receiver releases the port
    /// when it has taken everything.
    pub(crate) fn leaving(mut self) -> Self {
        self.leaves = Some(Generation::current());
        self
    }

    /// Whether the peer's queue pair is in a state in which it receives.
    #[inline(always)]
    pub(crate) fn peer_receives(&self) -> bool {
        is_receiving(&self.port)
    }

    /// Whether the peer's queue pair was reset.
    pub(crate) fn peer_is_reset(&self) -> bool {
        self.port.state().load(Ordering::Relaxed) == QueuePairState::Reset as u32
    }

    /// Whether nothing has been sent yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.tail == 0
    }

    /// Whether a RECEIVE is posted for the next message.
    #[inline]
    pub(crate) fn receiver_ready(&mut self) -> Result<bool, Nonsense> {
        if self.port.geometry().shared_receive || self.posted != self.sent {
            return Ok(true);
        }
        let posted = self.port.posted().load(Ordering::Acquire);
        if posted.wrapping_sub(self.sent) > u64::from(self.port.geometry().lengths) {
            return Err(Nonsense);
        }
        self.posted = posted;
        Ok(posted != self.sent)
    }

    /// Length of the RECEIVE for the next message.
    #[inline]
    pub(crate) fn receive_length(&self) -> u64 {
        if self.port.geometry().shared_receive {
            return u64::MAX;
        }
        self.port
            .receive_length(self.sent)
            .load(Ordering::Relaxed)
            .into()
    }

    /// The maximum number of bytes that a record may carry now; if that is less than `wanted`, after reading the head
    /// again. `None` if there is not even space for a header.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u64) -> Result<Option<u64>, Nonsense> {
        let size = self.port.data_bytes();
        let mut free = size - (self.tail - self.head);
        if free < wanted + 2 * RECORD_HEADER_BYTES {
            let head = self.port.head().load(Ordering::Acquire);
            let moved = head.wrapping_sub(self.head);
            if moved > self.tail - self.head || head % RECORD_HEADER_BYTES != 0 {
                return Err(Nonsense);
            }
            self.head = head;
            free = size - (self.tail - head);
        }
        Ok(free.checked_sub(RECORD_HEADER_BYTES))
    }

    /// Publishes one record, for which there is [`Outbound::room`]; `fill` writes its bytes into the pieces of the
    /// ring. Returns the receiver's waker if it sleeps and waits for such a message.
    #[inline]
    #[must_use]
    pub(crate) fn publish(
        &mut self,
        record: Record,
        fill: impl FnOnce([(*mut u8, usize); 2]),
    ) -> Option<&Arc<Waker>> {
        debug_assert!(self.tail - self.head + record.ring_bytes() <= self.port.data_bytes());
        self.port.write_header(self.tail, record.encode());
        if record.bytes > 0 {
            let at = self.tail + RECORD_HEADER_BYTES;
            self.port.fill(at, record.bytes as usize, fill);
        }
        self.tail += record.ring_bytes();
        // All or nothing: a sender that dies before this store has sent nothing.
        self.port.tail().store(self.tail, Ordering::Release);
        if record.more {
            return None;
        }
        self.sent = self.sent.wrapping_add(1);
        self.waker(record.solicited)
    }

    /// The waker of a sleeping receiver, whatever it waits for, because nothing continues before it takes records: what
    /// it waits for may be behind them, or be a message of which only the beginning has arrived.
    #[cold]
    pub(crate) fn waker_for_room(&self) -> Option<&Arc<Waker>> {
        let waker = self.wake.as_ref()?;
        fence(Ordering::SeqCst);
        (self.port.armed().swap(0, Ordering::SeqCst) != 0).then_some(waker)
    }

    /// The waker of a sleeping receiver, once for each sleep.
    #[inline]
    fn waker(&self, solicited: bool) -> Option<&Arc<Waker>> {
        let waker = self.wake.as_ref()?;
        fence(Ordering::SeqCst);
        match self.port.armed().load(Ordering::Relaxed) {
            ARMED_NEXT => {}
            ARMED_SOLICITED if solicited => {}
            _ => return None,
        }
        self.port.armed().store(0, Ordering::Relaxed);
        Some(waker)
    }
}

/// Whether the queue pair of a port is in a state in which it receives.
#[inline(always)]
pub(crate) fn is_receiving(port: &PortMap) -> bool {
    let state = port.state().load(Ordering::Relaxed);
    // The states after ReadyToReceive receive as well, up to SendQueueError.
    state.wrapping_sub(QueuePairState::ReadyToReceive as u32) <= 3
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::port::Geometry;
    use crate::region_table::RegionTable;

    #[test]
    fn a_sender_of_datagrams_that_ends_anywhere_has_left() {
        let table = PeerTable::map(RegionTable::new().unwrap().file()).unwrap();
        let geometry = Geometry {
            lengths: 1,
            data_bytes: 4096,
            shared_receive: true,
        };
        let port = || Arc::new(PortMap::create(geometry).unwrap().1);
        let (connected, datagrams) = (port(), port());
        drop(Outbound::new(Arc::clone(&connected), table.clone(), None));
        let outbound = Outbound::new(Arc::clone(&datagrams), table, None).leaving();
        assert_eq!(datagrams.left().load(Ordering::Relaxed), 0);
        drop(outbound);
        assert_eq!(datagrams.left().load(Ordering::Relaxed), 1);
        assert_eq!(connected.left().load(Ordering::Relaxed), 0);
    }
}
