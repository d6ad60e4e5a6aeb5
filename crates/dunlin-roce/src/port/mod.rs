//! The port: packets from the socket to queue pairs, deadlines, and the thread that does both while nobody polls.

mod driver;
mod table;

pub(crate) use driver::Driver;
pub(crate) use table::{Pairs, MAX_QUEUE_PAIRS};

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use dunlin_verbs::progress::Progress;

use crate::core::Core;
use crate::engine::Shared;
use crate::packet::{icrc_agrees, is_icrc_omitted, parse, Header, ICRC_BYTES};
use crate::socket::{envelope, Count, Origin, ReceiveBuffers, Train};
use crate::sync::{lock, now_ns};

/// System calls for datagrams in one look: whoever looks has other things to do.
const RECEIVES_PER_LOOK: usize = 4;
/// Deadlines seen to in one look.
const TIMERS_PER_LOOK: usize = 64;

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
}

#[derive(Debug)]
struct Inbound {
    buffers: ReceiveBuffers,
    /// Queue pairs that got packets in this look, each once.
    touched: Vec<Arc<Shared>>,
}

impl Progress for Port {
    fn progress(&self) {
        if self.core.made_in.is_current() {
            self.poll();
        }
    }
}

impl Port {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            pairs: Pairs::new(core.config.max_queue_pairs),
            core,
            inbound: Mutex::new(Inbound {
                buffers: ReceiveBuffers::new(),
                touched: Vec::new(),
            }),
            polls: AtomicU64::new(0),
        }
    }

    /// A look by a thread that polls; nothing when another thread is at it.
    #[inline]
    pub(crate) fn poll(&self) {
        let mut inbound = match self.inbound.try_lock() {
            Ok(inbound) => inbound,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Nobody else writes it while we have the lock.
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls + 1, Ordering::Relaxed);
        self.look(&mut inbound);
    }

    fn look(&self, inbound: &mut Inbound) {
        self.core.socket.send_backlog();
        for _ in 0..RECEIVES_PER_LOOK {
            if !self.core.socket.receive(&mut inbound.buffers) {
                break;
            }
            with_train(|train| self.take(inbound, train));
            if !inbound.buffers.promise_more() {
                break;
            }
        }
        if self.core.timers().next_ns().is_some() {
            self.see_to_timers();
        }
    }

    /// Hands datagrams to their queue pairs, and sends what these answer.
    fn take(&self, inbound: &mut Inbound, train: &mut Train) {
        let now_ns = now_ns();
        let Inbound { buffers, touched } = inbound;
        for (origin, packets) in buffers.trains() {
            let mut packets = packets.peekable();
            while let Some(packet) = packets.next() {
                let Some((shared, header, payload)) = self.find(&origin, packet) else {
                    continue;
                };
                let mut engine = shared.engine();
                engine.handle(&shared, now_ns, &origin.source, &header, payload);
                // Packets of one train are most often of one queue pair.
                while let Some(packet) = packets.peek() {
                    let Some((header, payload)) = self.read(&origin, packet) else {
                        packets.next();
                        continue;
                    };
                    if header.queue_pair != shared.number {
                        break;
                    }
                    engine.handle(&shared, now_ns, &origin.source, &header, payload);
                    packets.next();
                }
                drop(engine);
                if touched
                    .last()
                    .is_none_or(|last| last.number != shared.number)
                {
                    touched.push(shared);
                }
            }
        }
        for shared in touched.drain(..) {
            shared.engine().progress(&shared, now_ns, train);
        }
    }

    /// The queue pair of a packet.
    fn find<'a>(
        &self,
        origin: &Origin,
        packet: &'a [u8],
    ) -> Option<(Arc<Shared>, Header, &'a [u8])> {
        let (header, payload) = self.read(origin, packet)?;
        let found = self.pairs.get(header.queue_pair);
        if found.is_none() {
            let statistics = &self.core.socket.statistics;
            statistics.count(Count::UnknownQueuePair);
        }
        Some((found?, header, payload))
    }

    /// Reads a packet, and checks the invariant CRC at its end where there is one.
    fn read<'a>(&self, origin: &Origin, packet: &'a [u8]) -> Option<(Header, &'a [u8])> {
        let statistics = &self.core.socket.statistics;
        let mut packet = packet;
        if !(self.core.config.omit_icrc && is_icrc_omitted(packet)) {
            let Some((covered, crc)) = packet.split_last_chunk::<ICRC_BYTES>() else {
                statistics.count(Count::Malformed);
                return None;
            };
            let source = origin.source;
            let destination = origin.destination.unwrap_or(source.ip());
            let port = self.core.socket.port();
            let envelope = envelope(source.ip(), source.port(), destination, port);
            if !icrc_agrees(&envelope, covered, *crc) {
                statistics.count(Count::BadCrc);
                return None;
            }
            packet = covered;
        }
        let read = parse(packet);
        if read.is_err() {
            statistics.count(Count::Malformed);
        }
        read.ok()
    }

    fn see_to_timers(&self) {
        let now_ns = now_ns();
        for _ in 0..TIMERS_PER_LOOK {
            let Some(number) = self.core.timers().pop(now_ns) else {
                return;
            };
            if let Some(shared) = self.pairs.get(number) {
                with_train(|train| {
                    let mut engine = shared.engine();
                    engine.handle_timeout(&shared, now_ns);
                    engine.progress(&shared, now_ns, train);
                });
            }
        }
    }

    /// A look by the device's thread.
    fn look_for_all(&self) {
        self.look(&mut lock(&self.inbound));
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }
}
