//! The state of a queue pair.

use std::collections::VecDeque;

use dunlin_verbs::{Access, CompletionStatus, ConnectAttributes, QueuePairState, Transport};

use crate::event::Ps;
use crate::nic::Window;
use crate::work::{Element, Receive};
use crate::world::World;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerOf {
    pub(crate) host: u16,
    pub(crate) number: u32,
    pub(crate) stamp: u32,
}

/// A message that is arriving in several packets.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The RECEIVE that it fills; `None` for a WRITE.
    pub(crate) receive: Option<Receive>,
    /// Bytes that have arrived.
    pub(crate) bytes: u64,
}

/// An answer that waits for those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The answer of a READ or atomic that was accepted and not carried out yet.
    Awaited,
    /// A READ whose response takes several packets: next packet's number, place, bytes left, bytes of all of them.
    Stream {
        psn: u64,
        key: u32,
        offset: u64,
        left: u32,
        total: u32,
    },
    /// A packet that is ready.
    Packet(u32),
}

/// A receive queue: a queue pair's own, or a shared one.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueueState {
    pub(crate) entries: VecDeque<Receive>,
    pub(crate) limit: usize,
    pub(crate) segments: usize,
    pub(crate) domain: u32,
    pub(crate) host: u16,
    /// Number of users: its queue pair, or its handle and the queue pairs that use it. Its place is free when there are
    /// none.
    pub(crate) users: u32,
    /// Number of entries at the front that the NIC has fetched: those of a line, or what is left of it.
    pub(crate) fetched: u32,
    /// The whole line behind them has been requested, and arrives at this time.
    pub(crate) ahead: Option<Ps>,
}

/// Whether the NIC has fetched the RECEIVE that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// The NIC has the element.
    Had,
    /// It has requested the element, which arrives at this time.
    Asked(Ps),
    /// It must request the element now.
    Needed,
}

/// Number of RECEIVE elements that one DMA read brings: those of a cache line, with one segment of 16 bytes each.
const FETCHED: usize = 4;

impl ReceiveQueueState {
    /// Takes the next entry; also returns whether the NIC has fetched it. An element that must be requested brings with
    /// it the posted elements of its line.
    pub(crate) fn take(&mut self) -> Option<(Receive, Fetch)> {
        let posted = self.entries.len();
        let receive = self.entries.pop_front()?;
        let mut fetch = Fetch::Had;
        if self.fetched == 0 {
            (self.fetched, fetch) = match self.ahead.take() {
                Some(at) => (FETCHED as u32, Fetch::Asked(at)),
                None => (posted.min(FETCHED) as u32, Fetch::Needed),
            };
        }
        self.fetched -= 1;
        Some((receive, fetch))
    }

    /// Whether a whole line waits behind what the NIC has, and has not been requested.
    pub(crate) fn wants_ahead(&self) -> bool {
        self.ahead.is_none() && self.entries.len() >= self.fetched as usize + FETCHED
    }

    /// Records that this line has been requested, and arrives at this time.
    pub(crate) fn asked_ahead(&mut self, at: Ps) {
        self.ahead = Some(at);
    }

    /// Returns an entry that was taken, for the next message.
    pub(crate) fn give_back(&mut self, receive: Receive) {
        self.entries.push_front(receive);
        self.fetched += 1;
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) -> VecDeque<Receive> {
        (self.fetched, self.ahead) = (0, None);
        std::mem::take(&mut self.entries)
    }
}

impl World {
    /// Called when a handle or a queue pair no longer uses this receive queue.
    pub(crate) fn release_receives(&mut self, queue: u32) {
        let state = &mut self.receives[queue];
        state.users -= 1;
        if state.users == 0 {
            state.clear();
            self.receives.give_back(queue);
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) alive: bool,
    pub(crate) host: u16,
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) domain: u32,
    pub(crate) state: QueuePairState,
    pub(crate) access: Access,
    pub(crate) attributes: ConnectAttributes,
    /// Incremented by resets; events and packets from before are void.
    pub(crate) stamp: u32,
    pub(crate) peer: Option<PeerOf>,
    pub(crate) queue_key: u32,
    pub(crate) send_cq: u32,
    pub(crate) receive_cq: u32,
    /// Its own receive queue or the shared one, as an index in the world's table.
    pub(crate) receives: u32,
    pub(crate) shared: bool,
    pub(crate) limits: Limits,

    // The sending side.
    pub(crate) sends: VecDeque<Element>,
    /// Index of `sends[0]`.
    pub(crate) base: u64,
    /// Number of requests posted, and of those whose entries were released by polling.
    pub(crate) posted: u64,
    pub(crate) retired: u64,
    /// Number of requests that the NIC knows of.
    pub(crate) rung: u64,
    /// The next to send: request, and packet within it.
    pub(crate) cursor: u64,
    pub(crate) cursor_packet: u32,
    pub(crate) next_psn: u64,
    /// READs and atomics started and not yet answered.
    pub(crate) fetching: u32,
    /// Time at which the last answered READ or atomic is in memory: a fenced request starts after that.
    pub(crate) fenced_until: Ps,
    pub(crate) in_ring: bool,
    /// Priority of what it sends, except datagrams.
    pub(crate) priority: u8,
    /// Requests send nothing before this time: receiver not ready, or too many packets held back in the NIC.
    pub(crate) paused_until: Ps,
    /// Whether its requests wait for their flow's turn (DCQCN).
    pub(crate) paced: bool,
    /// A fault: its requests neither leave nor fail.
    pub(crate) stalled: bool,
    pub(crate) retries_left: u8,
    pub(crate) not_ready_left: u8,
    pub(crate) timer_armed: bool,
    pub(crate) progress_at: Ps,
    /// The sequence number to which the sender went back last, until there is progress.
    pub(crate) went_back: Option<u64>,
    /// Times that keep packets and completions in order.
    pub(crate) leaves_at: Ps,
    pub(crate) completes_at: Ps,
    /// Packets that wait in the NIC behind a late one, as time on the wire.
    pub(crate) held_back: Ps,

    // The receiving side.
    pub(crate) expected_psn: u64,
    pub(crate) refused_gap: bool,
    pub(crate) incoming: Option<Incoming>,
    /// UC: the rest of a message that lost a packet is dropped.
    pub(crate) skipping: bool,
    pub(crate) atomics: VecDeque<(u64, u64)>,
    pub(crate) answers: VecDeque<Answer>,
    pub(crate) answering: bool,
    /// Whether its responses wait for their flow's turn (DCQCN).
    pub(crate) answers_paced: bool,
    pub(crate) places_at: Ps,
    pub(crate) answers_at: Ps,
    /// RC: packets sent since the last one that requested an acknowledgement, and the sequence number behind that one.
    pub(crate) unasked: u64,
    pub(crate) asked: u64,
    /// The sender went back and has made no progress since: it requests acknowledgements more often.
    pub(crate) careful: bool,
    /// Time of the last congestion notification sent.
    pub(crate) notified_at: Option<Ps>,
    /// Set where the NIC controls congestion by a window and was notified of congestion.
    pub(crate) window: Option<Box<Window>>,
}

/// Sizes that a queue pair was created with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) send_requests: usize,
    pub(crate) segments: usize,
    pub(crate) inline_bytes: usize,
}

impl Pair {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        host: u16,
        number: u32,
        transport: Transport,
        domain: u32,
        queues: (u32, u32),
        receives: (u32, bool),
        limits: Limits,
        stamp: u32,
    ) -> Self {
        Self {
            alive: true,
            host,
            number,
            transport,
            domain,
            state: QueuePairState::Reset,
            access: Access::empty(),
            attributes: ConnectAttributes::default(),
            stamp,
            peer: None,
            queue_key: 0x1111_1111,
            send_cq: queues.0,
            receive_cq: queues.1,
            receives: receives.0,
            shared: receives.1,
            limits,
            sends: VecDeque::new(),
            base: 0,
            posted: 0,
            retired: 0,
            rung: 0,
            cursor: 0,
            cursor_packet: 0,
            next_psn: 0,
            fetching: 0,
            fenced_until: 0,
            in_ring: false,
            priority: 0,
            paused_until: 0,
            paced: false,
            stalled: false,
            retries_left: 0,
            not_ready_left: 0,
            timer_armed: false,
            progress_at: 0,
            went_back: None,
            leaves_at: 0,
            held_back: 0,
            completes_at: 0,
            expected_psn: 0,
            refused_gap: false,
            incoming: None,
            skipping: false,
            atomics: VecDeque::new(),
            answers: VecDeque::new(),
            answering: false,
            answers_paced: false,
            places_at: 0,
            answers_at: 0,
            unasked: 0,
            asked: 0,
            careful: false,
            notified_at: None,
            window: None,
        }
    }

    /// Resets to the state of a new queue pair, with a fresh incarnation; posted work is dropped.
    pub(crate) fn reset(&mut self) {
        let queues = (self.send_cq, self.receive_cq);
        let receives = (self.receives, self.shared);
        // Packets and completions under way stay in order nevertheless.
        let (leaves_at, completes_at) = (self.leaves_at, self.completes_at);
        let stamp = self.stamp + 1;
        *self = Self::new(
            self.host,
            self.number,
            self.transport,
            self.domain,
            queues,
            receives,
            self.limits,
            stamp,
        );
        (self.leaves_at, self.completes_at) = (leaves_at, completes_at);
    }

    /// The time at which a completion that is ready at `at` appears: behind those before it, and, if it reports that
    /// the NIC is done with memory whose bytes did not all arrive, behind the last of those on their way.
    pub(crate) fn completion_at(&mut self, status: CompletionStatus, at: Ps) -> Ps {
        let placed = match status {
            CompletionStatus::Success => 0,
            _ => self.places_at,
        };
        self.completes_at = self.completes_at.max(placed).max(at);
        self.completes_at
    }

    /// The queue pair's key in the caches of its NIC, by its number there, so it does not depend on other hosts. The
    /// host's number is part of the key; otherwise the same contexts would share a set in each NIC.
    #[inline]
    pub(crate) fn context(&self) -> u64 {
        u64::from(self.host) << 32 | u64::from(self.number)
    }

    /// The request with this index.
    #[inline]
    pub(crate) fn element(&self, index: u64) -> Option<&Element> {
        self.sends.get(index.checked_sub(self.base)? as usize)
    }

    #[inline]
    pub(crate) fn element_mut(&mut self, index: u64) -> Option<&mut Element> {
        self.sends.get_mut(index.checked_sub(self.base)? as usize)
    }

    /// The sequence number of the oldest unacknowledged packet, or else of the next one.
    pub(crate) fn oldest_psn(&self) -> u64 {
        match self.sends.front() {
            Some(element) if element.packets > 0 => element.first_psn + u64::from(element.answered),
            _ => self.next_psn,
        }
    }

    /// Number of packets sent and not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sending_psn().saturating_sub(self.oldest_psn())
    }

    /// The sequence number of the next packet to be sent.
    pub(crate) fn sending_psn(&self) -> u64 {
        match self.element(self.cursor) {
            Some(element) if element.packets > 0 => {
                element.first_psn + u64::from(self.cursor_packet)
            }
            _ => self.next_psn,
        }
    }

    /// Whether anything sent is not yet acknowledged.
    pub(crate) fn waits_for_answer(&self) -> bool {
        self.sends
            .front()
            .is_some_and(|element| element.packets > 0)
    }

    /// The sequence number of the last packet sent, if it is not acknowledged.
    pub(crate) fn last_sent(&self) -> Option<u64> {
        if let Some(element) = self.element(self.cursor).filter(|_| self.cursor_packet > 0) {
            return Some(element.first_psn + u64::from(self.cursor_packet) - 1);
        }
        let before = self.element(self.cursor.checked_sub(1)?)?;
        Some(before.first_psn + u64::from(before.packets) - 1)
    }

    /// Goes back to packet `psn`, which was sent before.
    pub(crate) fn go_back(&mut self, psn: u64) {
        let at = self.sends.partition_point(|element| {
            element.packets > 0 && element.first_psn + u64::from(element.packets) <= psn
        });
        let Some(element) = self.sends.get(at).filter(|element| element.packets > 0) else {
            return;
        };
        self.careful = true;
        self.cursor = element.index;
        self.cursor_packet = psn.saturating_sub(element.first_psn) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(queue: &mut ReceiveQueueState, count: u64) {
        for id in 0..count {
            let segs = Default::default();
            queue.entries.push_back(Receive { id, segs });
        }
    }

    fn needed(queue: &mut ReceiveQueueState, count: usize) -> Vec<bool> {
        (0..count)
            .map_while(|_| Some(queue.take()?.1 == Fetch::Needed))
            .collect()
    }

    #[test]
    fn receives_are_fetched_by_lines_of_what_is_posted() {
        let mut queue = ReceiveQueueState::default();
        post(&mut queue, 6);
        assert_eq!(needed(&mut queue, 5), [true, false, false, false, true]);
        // Entries posted after a fetch were not part of it, except one that was given back.
        let (receive, fetch) = queue.take().expect("the sixth");
        assert_eq!(fetch, Fetch::Had);
        queue.give_back(receive);
        post(&mut queue, 1);
        assert_eq!(needed(&mut queue, 3), [false, true]);
        post(&mut queue, 3);
        assert_eq!(needed(&mut queue, 1), [true]);
        assert_eq!(queue.clear().len(), 2);
        post(&mut queue, 1);
        assert_eq!(needed(&mut queue, 1), [true]);
    }

    #[test]
    fn one_whole_line_is_asked_for_ahead() {
        let mut queue = ReceiveQueueState::default();
        post(&mut queue, 11);
        assert_eq!(needed(&mut queue, 1), [true]);
        assert!(queue.wants_ahead());
        queue.asked_ahead(70);
        assert!(!queue.wants_ahead(), "one line at a time");
        assert_eq!(needed(&mut queue, 3), [false; 3]);
        assert_eq!(queue.take().expect("the fifth").1, Fetch::Asked(70));
        assert_eq!(queue.take().expect("the sixth").1, Fetch::Had);
        assert!(!queue.wants_ahead(), "three are no whole line");
        post(&mut queue, 1);
        assert!(queue.wants_ahead());
        assert_eq!(queue.clear().len(), 6);
        post(&mut queue, 1);
        assert_eq!(needed(&mut queue, 1), [true], "what was asked for is void");
    }
}
