//! The requester: turns work requests into packets, and the answers into completions.
//!
//! Internally, packets are counted from zero, so that numbers do not wrap; only on the wire they have 24 bits.
//! Everything before `acknowledged` is done, `next` is the next packet to send, and going back means setting `next` to
//! `acknowledged`.

mod answers;

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_verbs::CompletionStatus;

use super::inflight::Inflight;
use super::packets_of;
use super::recovery::{PeerRoundTrip, RoundTrip, Window};
use super::request::{Finished, PostError, Request, Transmit, Verb};
use crate::packet::{
    Header, Psn, Service, DEFAULT_PARTITION_KEY, MAX_PAYLOAD_BYTES, MIN_MTU_BYTES,
};

/// Maximum length of a message in bytes: 2^31, as in the standard.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;
/// After losses, a READ is requested in pieces of this many packets: if an answer is lost, the rest of its piece is
/// sent in vain.
const PIECE_PACKETS: u32 = 16;
/// The maximum window: half of the sequence numbers that can be distinguished.
const MAX_WINDOW_PACKETS: u32 = 1 << 22;

/// Parameters of a requester.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// The peer's queue pair.
    pub peer_queue_pair: u32,
    /// Sequence number of the first packet.
    pub first_psn: Psn,
    /// Payload of a packet, 256 to 57,344 bytes.
    pub mtu_bytes: u32,
    /// Maximum number of packets in flight, requests and answers to READs together; at least 2. It is reduced after
    /// losses.
    pub window_packets: u32,
    /// Maximum number of posted work requests.
    pub requests: usize,
    /// Maximum number of READs and atomics in flight: what the peer is willing to keep.
    pub max_outstanding_reads: usize,
    /// Nanoseconds without progress that count as one retry. Packets are retransmitted earlier if the measured round
    /// trip suggests it.
    pub timeout_ns: u64,
    /// Number of retries without progress before a request fails.
    pub retry_count: u8,
    /// Number of retries of a message to a receiver that is not ready; 7 means without limit.
    pub receiver_not_ready_retries: u8,
    /// Whether an acknowledgement is requested with each message. Otherwise only with those whose completion is waited
    /// for ([`Request::prompt`]) and four times per window; the peer acknowledges the others on its own, a little
    /// later.
    pub asks_for_each: bool,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    first: u64,
    packets: u32,
}

/// The state before a timeout. An answer to something that was not retransmitted since then shows that nothing was
/// lost, only late: a thread of the peer was off its core (F-RTO, RFC 5682).
#[derive(Debug)]
struct Hasty {
    next: u64,
    inflight: Inflight,
    round_trip: RoundTrip,
    window: Window,
}

impl Entry {
    fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    queue: VecDeque<Entry>,
    finished: VecDeque<Finished>,
    /// The sequence number after everything that has been posted.
    posted: u64,
    acknowledged: u64,
    next: u64,
    /// The sequence number after everything that has ever been sent.
    sent: u64,
    /// Index of the entry that contains `next`.
    cursor: usize,
    inflight: Inflight,
    round_trip: RoundTrip,
    window: Window,
    /// The state to restore if the last timeout turns out to have been premature.
    hasty: Option<Hasty>,
    /// Where the last early go-back began: a second one from the same position waits for the timer, since peer and
    /// network may report several times what is missing.
    went_back_at: Option<u64>,
    /// Further congestion is ignored until everything before this has been acknowledged.
    slowed_before: u64,
    /// Time of the last progress, or of the last time that everything was retransmitted.
    progress_ns: u64,
    /// Time of the last progress, or of the last retry that was counted.
    retry_ns: u64,
    retries: u8,
    not_ready_retries: u8,
    not_ready_until_ns: Option<u64>,
    failed: bool,
}

impl Requester {
    /// Creates a requester with nothing posted. Values out of range are clamped.
    pub fn new(mut config: RequesterConfig) -> Self {
        config.mtu_bytes = config.mtu_bytes.clamp(MIN_MTU_BYTES, MAX_PAYLOAD_BYTES);
        config.window_packets = config.window_packets.clamp(2, MAX_WINDOW_PACKETS);
        config.requests = config.requests.max(1);
        config.max_outstanding_reads = config.max_outstanding_reads.max(1);
        config.timeout_ns = config.timeout_ns.max(1);
        Self {
            queue: VecDeque::with_capacity(config.requests),
            finished: VecDeque::with_capacity(config.requests),
            posted: 0,
            acknowledged: 0,
            next: 0,
            sent: 0,
            cursor: 0,
            inflight: Inflight::new(config.max_outstanding_reads),
            round_trip: RoundTrip::new(Arc::default()),
            window: Window::new(config.window_packets),
            hasty: None,
            went_back_at: None,
            slowed_before: 0,
            progress_ns: 0,
            retry_ns: 0,
            retries: config.retry_count,
            not_ready_retries: config.receiver_not_ready_retries,
            not_ready_until_ns: None,
            failed: false,
            config,
        }
    }

    /// Uses the shared measurements of all requesters of its peer. To be called before anything is posted.
    #[must_use]
    pub fn of_peer(mut self, peer: Arc<PeerRoundTrip>) -> Self {
        self.round_trip = RoundTrip::new(peer);
        self
    }

    /// The peer's queue pair.
    pub fn peer_queue_pair(&self) -> u32 {
        self.config.peer_queue_pair
    }

    /// Posts a request. After a failure it is flushed immediately.
    ///
    /// # Errors
    /// When the queue is full or the length is not valid for the verb.
    pub fn post(&mut self, request: Request) -> Result<(), PostError> {
        if self.queue.len() + self.finished.len() >= self.config.requests {
            return Err(PostError::Full(self.config.requests));
        }
        if request.bytes > MAX_MESSAGE_BYTES {
            return Err(PostError::TooLong(request.bytes));
        }
        let atomic = matches!(
            request.verb,
            Verb::CompareAndSwap { .. } | Verb::FetchAdd { .. }
        );
        if atomic && request.bytes != 8 {
            return Err(PostError::AtomicLength(request.bytes));
        }
        if self.failed {
            self.finished.push_back(Finished {
                id: request.id,
                status: CompletionStatus::Flushed,
            });
            return Ok(());
        }
        let packets = if atomic {
            1
        } else {
            packets_of(request.bytes, self.config.mtu_bytes)
        };
        self.queue.push_back(Entry {
            request,
            first: self.posted,
            packets,
        });
        self.posted += u64::from(packets);
        Ok(())
    }

    /// Returns the next packet to send now, if any.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit> {
        if let Some(until) = self.not_ready_until_ns {
            if now_ns < until {
                return None;
            }
            self.not_ready_until_ns = None;
        }
        let window = self.window.packets();
        let window_end = self.acknowledged + u64::from(window);
        let entry = self.queue.get(self.cursor)?;
        if self.next >= window_end {
            return None;
        }
        let request = entry.request;
        let fenced = request.fence && self.next == entry.first && !self.inflight.is_empty();
        if fenced || request.is_answered() && self.inflight.is_full() {
            return None;
        }
        let mtu = self.config.mtu_bytes;
        let offset = (self.next - entry.first) as u32 * mtu;
        let reads = matches!(request.verb, Verb::Read { .. });
        // A READ is requested in pieces, so that its answers do not overrun the window either. A repeated request ends
        // at or within the end of a piece that was requested before, because a responder accepts nothing else as a
        // duplicate. One piece may always be in flight.
        let packets = if reads {
            let half = self.config.window_packets / 2;
            let small = half.min(PIECE_PACKETS);
            let is_new = self.next == self.sent && window == self.config.window_packets;
            let piece = u64::from(if is_new { half - half % small } else { small });
            let offset = ((self.next - entry.first) / piece + 1) * piece;
            let end = entry.end().min(entry.first + offset);
            if end > window_end && self.next > self.acknowledged {
                return None;
            }
            (end - self.next) as u32
        } else {
            1
        };
        let bytes = (request.bytes - offset).min(packets.saturating_mul(mtu));
        let end = self.next + u64::from(packets);
        let last = end == entry.end();
        // Acknowledgements are requested four times per window, so that it moves on before it is full.
        let quarter = u64::from((window / 4).max(1));
        let asked = request.prompt || self.config.asks_for_each;
        let header = Header {
            service: Service::Reliable,
            operation: request.operation(offset, bytes, last),
            solicited: request.solicited && last && !request.is_answered(),
            acknowledge: (last && asked) || end == window_end || end.is_multiple_of(quarter),
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: self.config.peer_queue_pair,
            psn: self.config.first_psn.plus(self.next as u32),
        };
        if request.is_answered() {
            self.inflight.sent(self.next, end);
        }
        if self.acknowledged == self.sent {
            // Nothing was in flight: the peer's time starts now.
            (self.progress_ns, self.retry_ns) = (now_ns, now_ns);
        }
        if self.next == self.sent && (header.acknowledge || request.is_answered()) {
            // A READ's first answer serves as an acknowledgement.
            let told = if reads { self.next + 1 } else { end };
            self.round_trip.sent(now_ns, told);
        }
        if last {
            self.cursor += 1;
        }
        self.next = end;
        self.sent = self.sent.max(end);
        if self.hasty.as_ref().is_some_and(|before| end >= before.next) {
            // All of it was sent again: the transmissions can no longer be distinguished.
            self.hasty = None;
        }
        let bytes = if request.is_answered() { 0 } else { bytes };
        Some(Transmit {
            header,
            id: request.id,
            offset,
            bytes,
        })
    }

    fn go_back(&mut self) {
        self.hasty = None;
        self.next = self.acknowledged;
        self.cursor = 0;
        self.inflight.sent_again();
        self.round_trip.sent_again();
    }

    fn go_back_early(&mut self) {
        if self.went_back_at != Some(self.acknowledged) {
            self.went_back_at = Some(self.acknowledged);
            self.window.lost();
            self.go_back();
        }
    }

    /// Records that packets were marked by a congested switch: packets of a request, as the peer reports in a
    /// notification, or packets of an answer. The window is halved once for everything that is now in flight (RFC 3168
    /// §6.1.2).
    pub fn handle_congestion(&mut self) {
        if self.acknowledged >= self.slowed_before {
            self.slowed_before = self.sent;
            self.window.lost();
            if let Some(before) = &mut self.hasty {
                before.window.lost();
            }
        }
    }

    /// When [`Requester::handle_timeout`] must be called next, in nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.not_ready_until_ns.is_some() {
            return self.not_ready_until_ns;
        }
        (self.acknowledged < self.sent && !self.failed).then(|| {
            let timeout_ns = self.round_trip.timeout_ns();
            let again_ns = self.progress_ns.saturating_add(timeout_ns);
            again_ns.min(self.retry_ns.saturating_add(self.config.timeout_ns))
        })
    }

    /// Checks whether a deadline has expired; if so, [`Requester::poll_transmit`] has packets, or requests have failed.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if self.deadline_ns().is_none_or(|deadline| now_ns < deadline) {
            return;
        }
        if self.not_ready_until_ns.take().is_some() {
            (self.progress_ns, self.retry_ns) = (now_ns, now_ns);
            return;
        }
        if now_ns >= self.retry_ns.saturating_add(self.config.timeout_ns) {
            if self.retries == 0 {
                self.fail(CompletionStatus::RetryExceeded);
                return;
            }
            self.retries -= 1;
            self.retry_ns = now_ns;
        }
        let waited_ns = now_ns.saturating_sub(self.progress_ns);
        self.progress_ns = now_ns;
        // After a second consecutive one, answers may be to what was retransmitted after the first.
        let hasty = (!self.round_trip.is_waiting_longer()).then(|| Hasty {
            next: self.next,
            inflight: self.inflight.clone(),
            round_trip: self.round_trip.clone(),
            window: self.window.clone(),
        });
        self.round_trip.timed_out(waited_ns);
        self.window.silent();
        self.went_back_at = Some(self.acknowledged);
        self.go_back();
        self.hasty = hasty;
    }

    /// Completes the first request with `status` and flushes the others.
    pub fn fail(&mut self, status: CompletionStatus) {
        self.failed = true;
        self.not_ready_until_ns = None;
        self.hasty = None;
        self.finish_front(status);
        while !self.queue.is_empty() {
            self.finish_front(CompletionStatus::Flushed);
        }
        self.cursor = 0;
        self.inflight.sent_again();
    }

    /// Reports that the placement which [`Requester::handle`] has just requested failed: the request with this `id`
    /// completes with `status`, although its answer was complete, and those after it are flushed.
    pub fn fail_placement(&mut self, id: u64, status: CompletionStatus) {
        match self.finished.back_mut() {
            Some(finished) if finished.id == id => {
                finished.status = status;
                self.fail(CompletionStatus::Flushed);
            }
            _ => self.fail(status),
        }
    }

    /// Whether a request has failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Returns the next completed request, in the order of posting.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }
}
