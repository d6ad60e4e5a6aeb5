//! Rings between two simulated hosts: the unchanged engines of `dunlin-ring`, polled by simulated cores.
//!
//! Verbs, copies and empty polls of the engines are charged by the device and by the engines themselves. An
//! application's computation for a message is charged here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_ring::{
    Consumer, Producer, RingConfig, SendError, UnconnectedConsumer, UnconnectedProducer,
};
use dunlin_sim::{
    Cluster, HostId, HostParameters, Next, NicParameters, SimDevice, SwitchParameters,
};
use dunlin_verbs::{Device, Work};

use super::{rate, Rate, Window};

/// Maximum number of messages that a step sends or receives before it looks around again.
const MESSAGES_OF_A_STEP: usize = 8;
/// Number of polls after which a consumer has looked at everything once, including the end of the ring.
const FIRST_LOOKS: usize = 17;

/// Two hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Seed of the cluster.
    pub seed: u64,
    /// Parameters of both hosts.
    pub host: HostParameters,
    /// Parameters of both NICs.
    pub nic: NicParameters,
    /// Parameters of the switch between them.
    pub switch: SwitchParameters,
}

/// An application's computation for each message, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// At the sender, or the client.
    pub first_ns: u64,
    /// At the receiver, or the server.
    pub second_ns: u64,
    /// Bytes that the server copies from its data into each answer.
    pub served_bytes: usize,
}

impl Hosts {
    fn cluster(&self) -> (Cluster, HostId, HostId) {
        let cluster = Cluster::star(self.seed, 2, &self.host, &self.nic, &self.switch);
        let hosts = cluster.hosts();
        let (one, other) = (hosts[0], hosts[1]);
        (cluster, one, other)
    }
}

/// A ring from the first device to the second.
///
/// # Panics
/// When the design and the device do not fit together.
pub fn ring(
    from: &SimDevice,
    to: &SimDevice,
    config: &RingConfig,
) -> (Producer<SimDevice>, Consumer<SimDevice>) {
    let producer = UnconnectedProducer::new(from, config).expect("a design for this device");
    let consumer = UnconnectedConsumer::new(to, config).expect("a design for this device");
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    (
        producer.connect(&to_producer).expect("both say the same"),
        consumer.connect(&to_consumer).expect("both say the same"),
    )
}

/// Receives the messages that are there, up to `most`. A consumer that finds nothing for the first time looks
/// everywhere, so that writes there wake it.
fn take(
    consumer: &mut Consumer<SimDevice>,
    most: usize,
    looked: &mut bool,
    mut read: impl FnMut(dunlin_ring::Message<'_>),
) -> usize {
    let count = consumer
        .receive_many(most, &mut read)
        .expect("the ring lives");
    if count > 0 || *looked {
        return count;
    }
    *looked = true;
    for _ in 0..FIRST_LOOKS {
        let count = consumer
            .receive_many(most, &mut read)
            .expect("the ring lives");
        if count > 0 {
            return count;
        }
    }
    0
}

/// Results of a stream of messages.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// Millions of messages per second.
    pub mops: f64,
    /// Gigabits of payload per second.
    pub gbit_s: f64,
    /// Activity of the sending host.
    pub sender: Rate,
    /// Activity of the receiving host.
    pub receiver: Rate,
}

impl Streamed {
    /// Describes the limit by counters: load of the cores of both ends, and doorbells and elements fetched by the
    /// sending NIC, per message.
    pub fn what_limits(&self) -> String {
        let busy = |rate: &Rate| rate.mops(|c| c.busy_ps) / 1e4;
        let each =
            |counter: fn(&dunlin_sim::Counters) -> u64| self.sender.mops(counter) / self.mops;
        format!(
            "cores {:.0} and {:.0} % busy, {:.2} doorbells and {:.2} fetched elements a message",
            busy(&self.sender),
            busy(&self.receiver),
            each(|c| c.doorbells),
            each(|c| c.fetched_elements)
        )
    }
}

/// Sends messages of `bytes` as fast as `threads` rings accept them; each ring has a core of its own at both ends.
///
/// # Panics
/// When a message is lost, changed or out of order, or a device refuses.
pub fn stream(
    hosts: &Hosts,
    config: &RingConfig,
    bytes: usize,
    threads: usize,
    compute: Compute,
    window: Window,
) -> Streamed {
    let (cluster, one, other) = hosts.cluster();
    let (from, to) = (cluster.device(one), cluster.device(other));
    let received = Arc::new(AtomicU64::new(0));
    for thread in 0..threads {
        let (mut producer, mut consumer) = ring(&from, &to, config);
        let mut sent = 0u64;
        cluster.spawn(one, thread, move |_now: u64| {
            for _ in 0..MESSAGES_OF_A_STEP {
                let stamp = sent.to_le_bytes();
                let result = producer.try_send_with(bytes, |place| {
                    let used = stamp.len().min(place.len());
                    place[..used].copy_from_slice(&stamp[..used]);
                    SimDevice::charge(Work::Compute(compute.first_ns));
                });
                match result {
                    Ok(()) => sent += 1,
                    Err(SendError::Full) => {
                        producer.poll().expect("the ring lives");
                        return Next::Poll;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Next::Again
        });
        let received = Arc::clone(&received);
        let (mut next, mut looked) = (0u64, false);
        cluster.spawn(other, thread, move |_now: u64| {
            let count = take(&mut consumer, MESSAGES_OF_A_STEP, &mut looked, |message| {
                assert_eq!(message.u64_at(0), next, "in order and whole");
                next += 1;
                SimDevice::charge(Work::Compute(compute.second_ns));
            });
            received.fetch_add(count as u64, Ordering::Relaxed);
            if count > 0 {
                Next::Again
            } else {
                Next::Poll
            }
        });
    }
    cluster.run_for(window.warm_ns);
    let before = received.load(Ordering::Relaxed);
    let rates = rate(
        &cluster,
        &[one, other],
        Window {
            warm_ns: 0,
            ..window
        },
    );
    let count = received.load(Ordering::Relaxed) - before;
    let mops = count as f64 * 1_000.0 / window.measured_ns as f64;
    Streamed {
        mops,
        gbit_s: mops * bytes as f64 * 8.0 / 1_000.0,
        sender: rates[0],
        receiver: rates[1],
    }
}

/// Requests and responses over two rings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dialogue {
    /// The ring of requests.
    pub there: RingConfig,
    /// The ring of responses.
    pub back: RingConfig,
    /// Bytes of a request and of a response.
    pub bytes: (usize, usize),
    /// Maximum number of outstanding requests; 1 is a ping-pong.
    pub outstanding: u64,
    /// Number of requests measured, after a third as many.
    pub requests: u64,
    /// Pairs of threads, each with rings of its own.
    pub threads: usize,
    /// Computation of both ends.
    pub compute: Compute,
}

/// Results of a dialogue.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Millions of answers per second, over all threads.
    pub mops: f64,
    /// Times from the call that sends a request to the call that receives its answer, sorted.
    pub round_trips_ns: Vec<u64>,
}

impl Answered {
    /// Mean round trip in microseconds.
    pub fn mean_us(&self) -> f64 {
        let count = self.round_trips_ns.len().max(1) as f64;
        self.round_trips_ns.iter().sum::<u64>() as f64 / count / 1_000.0
    }

    /// The 99.9th percentile of round trips, in microseconds.
    pub fn p999_us(&self) -> f64 {
        let count = self.round_trips_ns.len();
        let at = (count as f64 * 0.999) as usize;
        self.round_trips_ns
            .get(at.min(count.saturating_sub(1)))
            .map_or(f64::NAN, |&ns| ns as f64 / 1_000.0)
    }
}

/// Sends one message; returns `false` when the ring is full. The computation for a message comes before it is sent.
fn say(
    producer: &mut Producer<SimDevice>,
    bytes: usize,
    number: u64,
    compute_ns: u64,
    copied: usize,
) -> bool {
    let result = producer.try_send_with(bytes, |place| {
        place[..8].copy_from_slice(&number.to_le_bytes());
        SimDevice::charge(Work::Compute(compute_ns));
        if copied > 0 {
            SimDevice::charge(Work::Copy(copied));
        }
    });
    match result {
        Ok(()) => true,
        Err(SendError::Full) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Duration of a thread's measurement, and of each of its requests.
type Finished = (u64, Vec<u64>);

/// Carries out a dialogue.
///
/// # Panics
/// When a message is lost or out of order, when it does not end, or a device refuses.
pub fn dialogue(hosts: &Hosts, dialogue: Dialogue) -> Answered {
    let (cluster, one, other) = hosts.cluster();
    let (asks, answers) = (cluster.device(one), cluster.device(other));
    let warm = dialogue.requests / 3;
    let finished: Arc<Mutex<Vec<Finished>>> = Arc::default();
    let (there, back) = dialogue.bytes;
    let Compute {
        first_ns,
        second_ns,
        served_bytes,
    } = dialogue.compute;
    for thread in 0..dialogue.threads {
        let (mut asking, mut asked) = ring(&asks, &answers, &dialogue.there);
        let (mut answering, mut answered) = ring(&answers, &asks, &dialogue.back);
        let (mut sent, mut heard, mut looked) = (0u64, 0u64, false);
        let mut times = Vec::with_capacity(dialogue.requests as usize);
        let mut began = Vec::new();
        let mut from_ns = 0;
        let finished = Arc::clone(&finished);
        let total = warm + dialogue.requests;
        cluster.spawn(one, thread, move |now_ns: u64| {
            let mut moved = take(&mut answered, MESSAGES_OF_A_STEP, &mut looked, |message| {
                assert_eq!(message.u64_at(0), heard, "in order and whole");
                if heard >= warm {
                    times.push(now_ns - began[(heard % dialogue.outstanding) as usize]);
                }
                heard += 1;
                if heard == warm {
                    from_ns = now_ns;
                }
            });
            if heard == total {
                let mut all = finished.lock().expect("steps do not panic");
                all.push((now_ns - from_ns, std::mem::take(&mut times)));
                // Not `Done`: that would drop the rings before the other end is done with them.
                return Next::Block;
            }
            began.resize(dialogue.outstanding as usize, 0);
            for _ in 0..MESSAGES_OF_A_STEP {
                if sent == total || sent - heard == dialogue.outstanding {
                    break;
                }
                began[(sent % dialogue.outstanding) as usize] = now_ns;
                if !say(&mut asking, there, sent, first_ns, 0) {
                    break;
                }
                sent += 1;
                moved += 1;
            }
            asking.poll().expect("the ring lives");
            if moved > 0 || !asking.is_flushed() {
                Next::Again
            } else {
                Next::Poll
            }
        });
        let (mut looked, mut number, mut waiting) = (false, 0u64, 0u64);
        cluster.spawn(other, thread, move |_now: u64| {
            let mut moved = take(&mut asked, MESSAGES_OF_A_STEP, &mut looked, |message| {
                assert_eq!(message.u64_at(0), number + waiting, "in order and whole");
                waiting += 1;
            });
            while waiting > 0 && say(&mut answering, back, number, second_ns, served_bytes) {
                number += 1;
                waiting -= 1;
                moved += 1;
            }
            answering.poll().expect("the ring lives");
            if moved > 0 || !answering.is_flushed() {
                Next::Again
            } else {
                Next::Poll
            }
        });
    }
    let ended = cluster.settle(LIMIT_NS);
    let mut all = finished.lock().expect("steps do not panic");
    assert!(
        ended && all.len() == dialogue.threads,
        "{} of {} threads ended",
        all.len(),
        dialogue.threads
    );
    let mops = all
        .iter()
        .map(|(time, times)| times.len() as f64 * 1_000.0 / *time as f64)
        .sum();
    let mut round_trips_ns: Vec<u64> = all.drain(..).flat_map(|(_, times)| times).collect();
    round_trips_ns.sort_unstable();
    Answered {
        mops,
        round_trips_ns,
    }
}

/// Virtual time within which every dialogue must have ended.
const LIMIT_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use dunlin_ring::Design;

    use super::*;

    fn hosts() -> Hosts {
        Hosts {
            seed: 1,
            host: HostParameters::xeon_gold_5118(),
            nic: NicParameters::connectx_5(),
            switch: SwitchParameters::sb7890(),
        }
    }

    const NOTHING: Compute = Compute {
        first_ns: 5,
        second_ns: 5,
        served_bytes: 0,
    };

    #[test]
    fn every_design_streams_and_answers_on_the_simulator() {
        for design in [
            Design::RB2,
            Design::RB2_LATENCY,
            Design::FARM_UNORDERED,
            Design::SOCKSDIRECT,
            Design::L5,
        ] {
            let config = RingConfig::for_records(design, 64);
            let window = Window {
                warm_ns: 20_000,
                measured_ns: 50_000,
            };
            let streamed = stream(&hosts(), &config, 64, 2, NOTHING, window);
            assert!(streamed.mops > 0.5, "{}: {streamed:?}", design.name);
            for outstanding in [1, 40] {
                let answered = dialogue(
                    &hosts(),
                    Dialogue {
                        there: config,
                        back: config,
                        bytes: (64, 64),
                        outstanding,
                        requests: 200,
                        threads: 1,
                        compute: NOTHING,
                    },
                );
                assert_eq!(answered.round_trips_ns.len(), 200, "{}", design.name);
                assert!(answered.mean_us() > 1.0, "{}", answered.mean_us());
            }
        }
    }

    #[test]
    fn what_is_computed_for_a_message_delays_it() {
        let round_trip = |second_ns, served_bytes| {
            let config = RingConfig::for_records(Design::RB2_LATENCY, 1024);
            let plan = Dialogue {
                there: config,
                back: config,
                bytes: (1024, 1024),
                outstanding: 1,
                requests: 100,
                threads: 1,
                compute: Compute {
                    second_ns,
                    served_bytes,
                    ..NOTHING
                },
            };
            dialogue(&hosts(), plan).mean_us()
        };
        let plain = round_trip(5, 0);
        let computed = round_trip(1_005, 0) - plain;
        assert!((0.99..1.01).contains(&computed), "{computed}");
        // 5 ns and a tenth of a nanosecond a byte.
        let copied = round_trip(5, 1024) - plain;
        assert!((0.1..0.12).contains(&copied), "{copied}");
    }

    #[test]
    fn a_copy_costs_virtual_time() {
        let window = Window {
            warm_ns: 100_000,
            measured_ns: 500_000,
        };
        let rate = |design| {
            let config = RingConfig::for_records(design, 4096);
            stream(&hosts(), &config, 4096, 1, NOTHING, window).mops
        };
        let without = Design::RB2.without(dunlin_ring::Optimisation::ZeroCopy);
        assert!(rate(without) < 0.9 * rate(Design::RB2));
    }
}
