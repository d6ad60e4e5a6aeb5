//! The rings of a hunt: producers and consumers of `dunlin-ring` of any design, polled by simulated cores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_ring::{
    Consumer, Design, Optimisation, Producer, Received, RingConfig, RingError, SendError,
    UnconnectedConsumer, UnconnectedProducer,
};
use dunlin_sim::{HostId, Next, SimDevice};

use super::chaos;
use super::planted::{is_planted, Planted};
use super::terrain::Terrain;
use super::Seen;
use crate::dice::{bytes_of, Dice};

/// Longest pause between two polls of an end.
const PAUSE_NS: u64 = 5_000_000;
/// Virtual time after which an end gives up. Where a switch with a small buffer drops what does not fit, a ring is
/// transferred one buffer at a time, each in half a second, the time for which a device waits for an acknowledgement.
const PATIENCE_NS: u64 = 600_000_000_000;
/// The same for a broken ring, whose other end may wait for ever.
const BROKEN_NS: u64 = 20_000_000_000;
/// Interval at which all ends are checked for having ended.
const STEP_NS: u64 = 1_000_000_000;

/// A ring and its load.
#[derive(Clone, Debug)]
struct Flow {
    number: usize,
    from: HostId,
    to: HostId,
    cores: (usize, usize),
    config: RingConfig,
    fixed: bool,
    messages: u64,
    longest: usize,
}

/// Queue pairs of a ring: the producer's and the consumer's.
type Pairs = [(HostId, u32); 2];

/// Record of both ends.
#[derive(Debug, Default)]
struct Log {
    sent: u64,
    received: u64,
    /// The producer knows that everything has arrived; the consumer has found the end.
    closed: bool,
    ended: bool,
    wrong: Vec<String>,
    errors: Vec<RingError>,
}

impl Flow {
    fn draw(number: usize, terrain: &Terrain, dice: &mut Dice) -> Self {
        let (from, to) = (terrain.any_host(dice), terrain.any_host(dice));
        let in_order = terrain.in_order[from.number()] && terrain.in_order[to.number()];
        let optimisations = [
            Optimisation::Batching,
            Optimisation::SyncAhead,
            Optimisation::Elastic,
            Optimisation::LazyPush,
            Optimisation::ZeroCopy,
            Optimisation::CacheLines,
        ];
        let design = match dice.between(0, 6) {
            0 => Design::RB2,
            1 => Design::RB2_LATENCY,
            2 => Design::RB2.without(optimisations[dice.next() as usize % 6]),
            3 => Design::SOCKSDIRECT,
            4 => Design::L5,
            5 if in_order => Design::MVAPICH,
            6 if in_order => Design::FARM,
            _ => Design::FARM_UNORDERED,
        };
        let longest = [8, 40, 64, 300, 2000][dice.next() as usize % 5];
        let fixed = dice.chance(1, 2);
        let mut config = match fixed {
            true => RingConfig::for_records(design, longest),
            false => RingConfig::for_messages(design, longest),
        };
        if dice.chance(1, 2) {
            config.slots = 64;
        }
        Self {
            number,
            from,
            to,
            cores: (terrain.any_core(from, dice), terrain.any_core(to, dice)),
            config,
            fixed,
            messages: dice.between(1, 1500),
            longest,
        }
    }

    fn name(&self) -> String {
        format!(
            "ring {} {:?}: {} messages of {} {} B, {} slots, {} -> {}",
            self.number,
            self.config.design,
            self.messages,
            if self.fixed { "exactly" } else { "up to" },
            self.longest,
            self.config.slots,
            self.from.number(),
            self.to.number()
        )
    }

    /// The bytes of a message.
    fn message(&self, number: u64) -> Vec<u8> {
        let length = match self.fixed {
            true => self.longest,
            false => (number * 7919) as usize % (self.longest + 1),
        };
        bytes_of(self.number as u64, number, length)
    }

    fn start(&self, terrain: &Terrain, stop: &Arc<AtomicBool>) -> (Arc<Mutex<Log>>, Pairs) {
        let log = Arc::new(Mutex::new(Log::default()));
        let [from, to] = [self.from, self.to].map(|host| terrain.cluster.device(host));
        let producer = UnconnectedProducer::new(&from, &self.config).expect("a design for it");
        let consumer = UnconnectedConsumer::new(&to, &self.config).expect("a design for it");
        let (ours, theirs) = (producer.offer(), consumer.offer());
        let producer = producer.connect(&theirs).expect("both say the same");
        let consumer = consumer.connect(&ours).expect("both say the same");
        let (flow, of) = (self.clone(), Arc::clone(&log));
        let send = sender(flow, producer, of, Arc::clone(stop));
        terrain.cluster.spawn(self.from, self.cores.0, send);
        let (flow, of) = (self.clone(), Arc::clone(&log));
        let receive = receiver(flow, consumer, of, Arc::clone(stop));
        terrain.cluster.spawn(self.to, self.cores.1, receive);
        let pairs = [
            (self.from, ours.address.queue_pair),
            (self.to, theirs.address.queue_pair),
        ];
        (log, pairs)
    }
}

/// The next step of an idle end: when something arrives, but it also checks now and then whether to stop.
fn pause(now_ns: u64, stop: &AtomicBool) -> Next {
    if stop.load(Ordering::Relaxed) || is_planted(Planted::LostWakeUp) {
        return Next::Block;
    }
    Next::PollUntil(now_ns + PAUSE_NS)
}

/// Sends all messages, then the end. It does not end when it is done: the producer's queue pair ends with it.
fn sender(
    flow: Flow,
    mut producer: Producer<SimDevice>,
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
) -> impl FnMut(u64) -> Next {
    move |now_ns| {
        let mut log = log.lock().expect("steps do not panic");
        if log.closed || !log.errors.is_empty() {
            return Next::Block;
        }
        let mut step = || {
            if log.sent == flow.messages {
                producer.close()?;
                producer.poll()?;
                log.closed = producer.is_closed();
                return Ok(false);
            }
            match producer.try_send(&flow.message(log.sent)) {
                Ok(()) => {
                    log.sent += 1;
                    Ok(true)
                }
                Err(SendError::Full) => producer.poll().map(|()| false),
                Err(SendError::Ring(error)) => Err(error),
                Err(error) => panic!("{error}"),
            }
        };
        match step() {
            Ok(true) => Next::Again,
            Ok(false) => pause(now_ns, &stop),
            Err(error) => {
                log.errors.push(error);
                Next::Block
            }
        }
    }
}

fn receiver(
    flow: Flow,
    mut consumer: Consumer<SimDevice>,
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
) -> impl FnMut(u64) -> Next {
    let mut lost = false;
    move |now_ns| {
        let mut log = log.lock().expect("steps do not panic");
        if log.ended || lost {
            return Next::Block;
        }
        assert!(!is_planted(Planted::Panic), "planted");
        let number = log.received;
        let whole = |message: dunlin_ring::Message<'_>| message.to_vec() == flow.message(number);
        match consumer.receive(whole) {
            Ok(Received::Message(whole)) => {
                if !whole {
                    log.wrong.push(format!("message {number} has other bytes"));
                }
                log.received += 1;
                return Next::Again;
            }
            Ok(Received::Empty) => {}
            Ok(Received::End) => log.ended = true,
            Err(error) => {
                lost = true;
                log.errors.push(error);
                return Next::Block;
            }
        }
        if let Err(error) = consumer.poll() {
            lost = true;
            log.errors.push(error);
            return Next::Block;
        }
        pause(now_ns, &stop)
    }
}

pub(super) fn run(terrain: &Terrain, dice: &mut Dice) -> Seen {
    let flows: Vec<Flow> = (0..dice.between(1, 4))
        .map(|number| Flow::draw(number as usize, terrain, dice))
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let (logs, pairs): (Vec<Arc<Mutex<Log>>>, Vec<Pairs>) =
        flows.iter().map(|flow| flow.start(terrain, &stop)).unzip();
    let faults = chaos::run(terrain, dice, |dice| {
        let of = pairs[dice.next() as usize % pairs.len()];
        Some(of[dice.next() as usize % 2])
    });
    // A fault that ended no queue pair of a ring excuses none of its errors.
    let broken: Vec<bool> = pairs
        .iter()
        .map(|of| of.iter().any(|&pair| faults.ended(pair)))
        .collect();
    let names: Vec<String> = flows.iter().map(Flow::name).collect();
    let mut seen = Seen {
        words: names.join(", "),
        ..Seen::default()
    };
    let over = |log: &Arc<Mutex<Log>>| {
        let log = log.lock().expect("steps do not panic");
        log.ended && log.closed
    };
    let broken_ns = terrain.cluster.now_ns() + BROKEN_NS;
    let waits = || {
        let now_ns = terrain.cluster.now_ns();
        let mut all = logs.iter().zip(&broken);
        let given_up = |broken| now_ns > if broken { broken_ns } else { PATIENCE_NS };
        !all.all(|(log, &broken)| over(log) || given_up(broken))
    };
    while waits() {
        terrain.cluster.run_for(STEP_NS);
    }
    stop.store(true, Ordering::Relaxed);
    for ((flow, log), broken) in flows.iter().zip(&logs).zip(broken) {
        let log = log.lock().expect("steps do not panic");
        seen.messages.0 += log.sent as usize;
        seen.messages.1 += log.received as usize;
        let mut wrong = |what: String| {
            seen.violations
                .push(format!("ring {}: {what}", flow.number))
        };
        log.wrong.iter().cloned().for_each(&mut wrong);
        if log.received > log.sent {
            wrong(format!("{} of {} received", log.received, log.sent));
        }
        if (log.ended || log.closed) && log.sent < flow.messages {
            wrong("an end before the last message".to_owned());
        }
        if log.ended && log.received < log.sent {
            wrong(format!(
                "{} of {} received, then the end",
                log.received, log.sent
            ));
        }
        for error in &log.errors {
            // The end of a queue pair does not violate the rules of the ring.
            use RingError::{PeerLost, Post, Request};
            if !(broken && matches!(error, PeerLost | Post(_) | Request(_))) {
                wrong(format!("an error without a cause: {error}"));
            }
        }
        if !broken && log.errors.is_empty() && !(log.ended && log.closed) {
            wrong(format!("it hangs: {log:?} of {}", flow.messages));
        }
    }
    seen.faults = faults;
    seen
}
