//! The port: packets from the socket to queue pairs, deadlines, and the thread that does both while nobody polls.

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

/// System calls for datagrams in one look: whoever looks has other things to do.
const RECEIVES_PER_LOOK: usize = 4;
/// Deadlines seen to in one look.
const TIMERS_PER_LOOK: usize = 64;
/// Looks of who has not looked for a while, at most.
const LOOKS_TO_CATCH_UP: u32 = 64;
/// Queue pairs whose requests go out with one look.
const POSTPONED_PER_LOOK: usize = 256;

thread_local! {
    /// Where this thread puts its packets together.
    static TRAIN: RefCell<Train> = RefCell::new(Train::new());
}

/// Lends this thread's train.
pub(crate) fn with_train<T>(action: impl FnOnce(&mut Train) -> T) -> T {
    let mut action = Some(action);
    let lent = TRAIN.try_with(|train| {
        let mut train = train.try_borrow_mut().ok()?;
        Some(action.take()?(&mut train))
    });
    // A thread that ends has none any more, and may still have queue pairs to give up.
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
    /// Looks by threads that poll.
    polls: AtomicU64,
    /// What ways to peers carry.
    pub(crate) probes: Probes,
}

#[derive(Debug)]
struct Inbound {
    buffer: ReceiveBuffer,
    /// Queue pairs that got packets of this train, once each, in the order of the first ones.
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
        // A look ends with a packet that came alone.
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

    /// A look by a thread that polls; says whether it found something. Nothing when another thread is at it.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        self.send_postponed();
        let mut inbound = match self.inbound.try_lock() {
            Ok(inbound) => inbound,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Whoever is at it, this thread polls, and would look if the other did not.
                self.polls.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        let (trains, long) = self.look(&mut inbound);
        if long {
            progress::note_moved();
        }
        // A look at long payloads takes as long as many that find nothing. Of short ones a look counts once: a thread
        // that looks seldom must not seem to keep up with a socket that overflows.
        let looks = if long { 1 + trains } else { 1 };
        self.polls.fetch_add(looks, Ordering::Relaxed);
        trains > 0
    }

    /// Says how many trains there were, and whether any of their packets, or of those that answer them, is likely to be
    /// a part of a long message.
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

    /// Sends the requests that wait for a look.
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

    /// Hands the packets of a train to their queue pairs, and sends what these answer; says whether any had a long
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
            // Packets of one train are most often of one queue pair.
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

    /// Reads a packet, and checks the invariant CRC at its end where there is one.
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

    /// Of all that the CRC covers only our own address is not at hand: it is that of the queue pair's path, and for
    /// datagrams that of the way back.
    #[cold]
    fn crc_agrees(&self, source: &SocketAddr, covered: &[u8], crc: [u8; ICRC_BYTES]) -> bool {
        let Ok((header, _)) = parse(covered) else {
            return false;
        };
        let pair = self.pairs.get(header.queue_pair);
        if pair.is_none() && header.queue_pair != PROBE_QUEUE_PAIR {
            // Nobody takes it, whatever it says.
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
                // Most have gone out with other packets before.
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

    /// A look by the device's thread. Says whether it found as many short packets as a look takes: then those who poll
    /// do not keep up. Long ones say nothing, because a window of them stands in the socket as a rule.
    fn look_for_all(&self) -> bool {
        self.send_postponed();
        let (trains, long) = self.look(&mut lock(&self.inbound));
        trains == RECEIVES_PER_LOOK as u64 && !long
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }
}
