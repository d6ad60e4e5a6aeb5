//! The port: passes packets from the socket and expired timers to queue pairs, and contains the thread that does both
//! while nobody polls.

mod driver;
mod probe;
#[cfg(test)]
mod raw_peer;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use driver::Driver;
pub(crate) use probe::Probes;
pub(crate) use table::{Pairs, MAX_QUEUE_PAIRS};

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use dunlin_verbs::progress::{self, Progress};

use self::probe::PROBE_QUEUE_PAIR;
use crate::core::Core;
use crate::engine::Shared;
use crate::packet::{icrc_agrees, is_icrc_omitted, parse, Header, ICRC_BYTES};
use crate::socket::{envelope, Count, ReceiveBuffer, Route, Train, LONG_PAYLOAD_BYTES};
use crate::sync::{lock, now_ns};

/// Maximum number of receiving system calls in one poll: the caller has other things to do.
const RECEIVES_PER_LOOK: usize = 4;
/// Maximum number of timers handled in one poll.
const TIMERS_PER_LOOK: usize = 64;
/// Maximum number of polls by a thread that has not polled for a while.
const LOOKS_TO_CATCH_UP: u32 = 64;
/// Maximum number of queue pairs whose postponed requests are sent in one poll.
const POSTPONED_PER_LOOK: usize = 256;

thread_local! {
    /// The buffer in which this thread assembles its packets.
    static TRAIN: RefCell<Train> = RefCell::new(Train::new());
}

/// Lends this thread's train.
pub(crate) fn with_train<T>(action: impl FnOnce(&mut Train) -> T) -> T {
    let mut action = Some(action);
    let lent = TRAIN.try_with(|train| {
        let mut train = train.try_borrow_mut().ok()?;
        Some(action.take()?(&mut train))
    });
    // A thread that is ending has none any more, but may still have queue pairs to close.
    match (lent, action) {
        (Ok(Some(done)), _) => done,
        (_, Some(action)) => action(&mut Train::new()),
        (_, None) => unreachable!("what was taken has been done"),
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) core: Arc<Core>,
    pub(crate) pairs: Pairs,
    inbound: Mutex<Inbound>,
    /// Number of polls by threads other than the device's.
    polls: AtomicU64,
    /// What is known about paths to peers.
    pub(crate) probes: Probes,
}

#[derive(Debug)]
struct Inbound {
    buffer: ReceiveBuffer,
    /// Queue pairs that received packets of this train, once each, in the order of the first ones.
    touched: Vec<Arc<Shared>>,
}

impl Progress for Port {
    fn progress(&self) {
        if self.core.made_in.is_current() {
            self.poll();
        }
    }

    fn catch_up(&self) -> bool {
        let is_behind =
            self.core.made_in.is_current() && !self.core.postponed.has_just_found(now_ns());
        // A poll ends with a packet that arrived alone.
        let looks = if is_behind { LOOKS_TO_CATCH_UP } else { 0 };
        for _ in 0..looks {
            if !self.poll() {
                break;
            }
        }
        is_behind
    }
}

impl Port {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            pairs: Pairs::new(core.config.max_queue_pairs),
            core,
            inbound: Mutex::new(Inbound {
                buffer: ReceiveBuffer::new(),
                touched: Vec::new(),
            }),
            polls: AtomicU64::new(0),
            probes: Probes::default(),
        }
    }

    /// A poll by a thread other than the device's; returns whether it found something. Does nothing if another thread
    /// is polling.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        self.send_postponed();
        let mut inbound = match self.inbound.try_lock() {
            Ok(inbound) => inbound,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // This thread polls too, and would do the work if the other did not.
                self.polls.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        let (trains, long) = self.look(&mut inbound);
        if long {
            progress::note_moved();
        }
        // A poll with long payloads takes as long as many empty ones. With short ones it counts once: a thread that
        // polls rarely must not appear to keep up with a socket that overflows.
        let looks = if long { 1 + trains } else { 1 };
        self.polls.fetch_add(looks, Ordering::Relaxed);
        trains > 0
    }

    /// Polls the socket and the timers. Returns the number of trains, and whether any of their packets, or of the
    /// packets sent in response, is likely to be part of a long message.
    fn look(&self, inbound: &mut Inbound) -> (u64, bool) {
        self.core.socket.send_backlog();
        let (mut trains, mut long) = (0, false);
        for _ in 0..RECEIVES_PER_LOOK {
            if !self.core.socket.receive(&mut inbound.buffer) {
                break;
            }
            trains += 1;
            let drops = inbound.buffer.take_drops();
            if drops > 0 {
                let statistics = &self.core.socket.statistics;
                statistics.add(Count::ReceiveBufferFull, drops.into());
            }
            long |= with_train(|train| {
                let sent = train.long_payloads();
                self.take(inbound, train) || train.long_payloads() != sent
            });
            if !inbound.buffer.promises_more() {
                break;
            }
        }
        if self.core.timers().next_ns().is_some() {
            self.see_to_timers();
        }
        (trains, long)
    }

    /// Sends the requests that wait for a poll.
    #[inline]
    pub(crate) fn send_postponed(&self) {
        let postponed = &self.core.postponed;
        if !postponed.has_some() {
            return;
        }
        for _ in 0..POSTPONED_PER_LOOK {
            let Some(number) = postponed.pop() else {
                return;
            };
            if let Some(shared) = self.pairs.get(number) {
                with_train(|train| shared.engine().send_postponed(&shared, train));
            }
        }
    }

    /// Passes the packets of a train to their queue pairs, and sends the responses; returns whether any had a long
    /// payload.
    fn take(&self, inbound: &mut Inbound, train: &mut Train) -> bool {
        let mut long = false;
        let now_ns = now_ns();
        self.core.postponed.note_found(now_ns);
        let Inbound { buffer, touched } = inbound;
        let marked = buffer.is_marked();
        let (source, packets) = buffer.train();
        if marked {
            let statistics = &self.core.socket.statistics;
            packets
                .clone()
                .for_each(|_| statistics.count(Count::CongestionMark));
        }
        let mut packets = packets.peekable();
        while let Some(packet) = packets.next() {
            let Some((shared, header, payload)) = self.find(&source, packet) else {
                continue;
            };
            let mut engine = shared.engine();
            long |= payload.len() >= LONG_PAYLOAD_BYTES;
            engine.handle(&shared, now_ns, &source, &header, payload, marked);
            // Most packets of one train belong to the same queue pair.
            while let Some(packet) = packets.peek() {
                let Some((header, payload)) = self.read(&source, packet) else {
                    packets.next();
                    continue;
                };
                if header.queue_pair != shared.number {
                    break;
                }
                long |= payload.len() >= LONG_PAYLOAD_BYTES;
                engine.handle(&shared, now_ns, &source, &header, payload, marked);
                packets.next();
            }
            let is_first = !std::mem::replace(&mut engine.is_touched, true);
            drop(engine);
            if is_first {
                touched.push(shared);
            }
        }
        for shared in touched.drain(..) {
            shared.engine().progress(&shared, now_ns, train);
        }
        long
    }

    /// The queue pair of a packet.
    fn find<'a>(
        &self,
        source: &SocketAddr,
        packet: &'a [u8],
    ) -> Option<(Arc<Shared>, Header, &'a [u8])> {
        let (header, payload) = self.read(source, packet)?;
        let found = self.pairs.get(header.queue_pair);
        match found {
            Some(found) => Some((found, header, payload)),
            None if header.queue_pair == PROBE_QUEUE_PAIR => {
                self.take_probe(source, &header, payload, !is_icrc_omitted(packet));
                None
            }
            None => {
                let statistics = &self.core.socket.statistics;
                statistics.count(Count::UnknownQueuePair);
                None
            }
        }
    }

    /// Decodes a packet, and checks the invariant CRC at its end if there is one.
    fn read<'a>(&self, source: &SocketAddr, packet: &'a [u8]) -> Option<(Header, &'a [u8])> {
        let statistics = &self.core.socket.statistics;
        let omitted = self.core.config.omit_icrc && is_icrc_omitted(packet);
        let covered = match packet.split_last_chunk::<ICRC_BYTES>() {
            _ if omitted => packet,
            Some((covered, crc)) if self.crc_agrees(source, covered, *crc) => covered,
            Some(_) => {
                statistics.count(Count::BadCrc);
                return None;
            }
            None => packet,
        };
        let read = parse(covered);
        if read.is_err() {
            statistics.count(Count::Malformed);
        }
        read.ok()
    }

    /// Of everything that the CRC covers, only our own address is not directly available: it is that of the queue
    /// pair's path, and for datagrams that of the return path.
    #[cold]
    fn crc_agrees(&self, source: &SocketAddr, covered: &[u8], crc: [u8; ICRC_BYTES]) -> bool {
        let Ok((header, _)) = parse(covered) else {
            return false;
        };
        let pair = self.pairs.get(header.queue_pair);
        if pair.is_none() && header.queue_pair != PROBE_QUEUE_PAIR {
            // No queue pair accepts it, whatever it contains.
            return true;
        }
        let of_path = pair.and_then(|pair| pair.local());
        let of_socket = || self.core.config.local_address;
        let of_route = || Route::find(None, source.ip()).map(|route| route.local);
        let Some(local) = of_path.or_else(of_socket).or_else(of_route) else {
            return false;
        };
        let port = self.core.socket.port();
        let envelope = envelope(source.ip(), source.port(), local, port);
        icrc_agrees(&envelope, covered, crc)
    }

    fn see_to_timers(&self) {
        let now_ns = now_ns();
        let timers = self.core.timers();
        for _ in 0..TIMERS_PER_LOOK {
            let Some(number) = timers.pop_acknowledgement(now_ns) else {
                break;
            };
            if let Some(shared) = self.pairs.get(number) {
                let mut engine = shared.engine();
                // Most have already been sent with other packets.
                if engine.handle_acknowledgement_due() {
                    with_train(|train| engine.progress(&shared, now_ns, train));
                }
            }
        }
        for _ in 0..TIMERS_PER_LOOK {
            let Some(number) = timers.pop_deadline(now_ns) else {
                break;
            };
            if let Some(shared) = self.pairs.get(number) {
                let mut engine = shared.engine();
                if engine.handle_timeout(&shared, now_ns) {
                    with_train(|train| engine.progress(&shared, now_ns, train));
                }
            }
        }
    }

    /// A poll by the device's thread. Returns whether it found as many short packets as a poll takes: then the threads
    /// that poll do not keep up. Long ones are no indication, because a window of them is usually queued in the socket.
    fn look_for_all(&self) -> bool {
        self.send_postponed();
        let (trains, long) = self.look(&mut lock(&self.inbound));
        trains == RECEIVES_PER_LOOK as u64 && !long
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }
}
