//! Two hosts, the network between them, and time that jumps from one event to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dunlin_flor::ack::AckTriggers;
use dunlin_flor::connection::{Config, Connection, Deployment, Failure, LateWrites, Network};
use dunlin_verbs::Transport;

use crate::host::{Host, Wish, SLOT_BYTES};
use crate::nic::{Body, Packet, Service, RC_ATTEMPTS};
use crate::random::Random;

/// The longest that the network keeps a packet, and the rest of memory that a late WRITE may reach.
const LONGEST_NS: u64 = 8_000_000;
const QUARANTINE_NS: u64 = 20_000_000;
/// A run that is not over by then stands still.
const END_NS: u64 = 600_000_000_000;
/// Queue pairs for data of a connection.
const PATHS: usize = 3;
/// So does one that takes more events than any that ends.
const MOST_STEPS: u64 = 1_000_000;

#[derive(Debug)]
enum Event {
    /// A host's driver looks.
    Poll(usize),
    /// A NIC may send.
    Transmit(usize, usize, u64),
    /// A NIC has sent everything of a work request (UC).
    Sent(usize, usize, u64),
    Arrive(usize, Packet),
    Ack(usize, Vec<u8>),
    /// RC: what is not acknowledged is sent again.
    Retry {
        host: usize,
        path: usize,
        incarnation: u64,
        timer: u64,
    },
    Release(usize, usize),
    Rested(usize, usize),
    Provide(usize, u32),
    Submit(usize, u32),
    Fault,
}

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) deployment: Deployment,
    pub(crate) service: Service,
    pub(crate) loss: f64,
    pub(crate) doubled: f64,
    pub(crate) late: f64,
    pub(crate) jitter_ns: u64,
    pub(crate) faults: u32,
    pub(crate) silent: bool,
    pub(crate) messages: u32,
    pub(crate) refusals: f64,
    pub(crate) unit_bytes: u32,
}

impl Weather {
    pub(crate) fn of(random: &mut Random) -> Self {
        let deployment = random.pick(&Deployment::ALL);
        let service = match deployment.transport() {
            Transport::ReliableConnection => Service::Reliable,
            _ => random.pick(&[Service::Checked, Service::Resynchronising]),
        };
        Self {
            deployment,
            service,
            loss: random.pick(&[0.0, 1.0 / 4096.0, 1.0 / 256.0, 0.02, 0.1]),
            doubled: random.pick(&[0.0, 0.0, 0.01, 0.1]),
            late: random.pick(&[0.0, 0.001, 0.02]),
            jitter_ns: random.pick(&[0, 1_000, 20_000]),
            faults: random.pick(&[0, 0, 1, 2, 5]),
            silent: random.chance(0.5),
            messages: random.pick(&[5, 20, 60]),
            refusals: random.pick(&[0.0, 0.0, 0.05]),
            unit_bytes: random.pick(&[1024, 4096]),
        }
    }
}

pub(crate) struct World {
    seed: u64,
    weather: Weather,
    random: Random,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pending: Vec<Option<Event>>,
    sequence: u64,
    pub(crate) hosts: Vec<Host>,
    faults_left: u32,
    /// When the last packet of each way arrives: of each path and of acknowledgements, in both directions.
    last_ns: [u64; 2 * PATHS + 2],
    /// Events of each kind.
    kinds: [u64; 4],
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let weather = Weather::of(&mut random);
        let late_writes = match weather.service {
            Service::Reliable | Service::Checked => LateWrites::Dropped,
            Service::Resynchronising if weather.doubled > 0.0 => LateWrites::Always {
                quarantine_ns: QUARANTINE_NS,
            },
            Service::Resynchronising => LateWrites::AfterRepair {
                quarantine_ns: QUARANTINE_NS,
            },
        };
        let network = Network {
            unit_bytes: weather.unit_bytes,
            ..Network::DEFAULT
        };
        let config = Config {
            late_writes,
            send_queue: random.pick(&[4, 64]),
            // More than there are, at times.
            peer_receives: random.pick(&[5, 64, 256]),
            max_written: random.pick(&[2, 8]),
            number_window: random.pick(&[64, 1024]),
            max_messages: random.pick(&[8, 64]),
            max_sent_bytes: random.pick(&[8 << 10, 32 << 10]),
            ack_triggers: AckTriggers::PAPER,
            max_fragment_bytes: random.pick(&[8 << 10, 32 << 10]),
            paths: PATHS,
            connected_paths: random.pick(&[1, PATHS]),
            own_queue_pair: 7,
            peer_queue_pair: 7,
            ..Config::DEFAULT
        };
        let host = |number| {
            let modules = weather.deployment.modules(&network).unwrap();
            let connection = Connection::new(config, modules).unwrap();
            let mut host = Host::new(number, seed, connection, &config);
            host.refusals = weather.refusals;
            host
        };
        let mut world = Self {
            seed,
            weather,
            hosts: vec![host(0), host(1)],
            random,
            now_ns: 0,
            events: BinaryHeap::new(),
            pending: Vec::new(),
            sequence: 0,
            faults_left: weather.faults,
            last_ns: [0; 2 * PATHS + 2],
            kinds: [0; 4],
        };
        for host in 0..2 {
            for index in 0..weather.messages {
                let after_ns = world.random.below(3_000_000);
                world.after(after_ns, Event::Submit(host, index));
            }
        }
        if weather.faults > 0 {
            world.after(1_000_000, Event::Fault);
        }
        world
    }

    fn after(&mut self, after_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((
            self.now_ns + after_ns,
            self.sequence,
            self.pending.len(),
        )));
        self.pending.push(Some(event));
    }

    /// Runs until nothing happens any more, and checks what has become of every message.
    pub(crate) fn run(&mut self) {
        let mut steps = 0_u64;
        while let Some(Reverse((at_ns, _, index))) = self.events.pop() {
            self.now_ns = at_ns;
            steps += 1;
            assert!(
                at_ns < END_NS && steps < MOST_STEPS,
                "stands still at {at_ns} after {steps} steps {:?}: {:#?} {:#?}",
                self.kinds,
                self.weather,
                self.hosts
                    .iter()
                    .map(|host| host.state(at_ns))
                    .collect::<Vec<_>>()
            );
            let event = self.pending[index].take().expect("once");
            self.handle(event);
            if self.events.is_empty() {
                self.pending.clear();
            }
        }
        self.check();
    }

    fn handle(&mut self, event: Event) {
        self.kinds[match &event {
            Event::Poll(_) => 0,
            Event::Transmit(..) | Event::Sent(..) => 1,
            Event::Arrive(..) | Event::Ack(..) => 2,
            _ => 3,
        }] += 1;
        match event {
            Event::Poll(host) => self.poll(host),
            Event::Transmit(host, path, incarnation) => self.transmit(host, path, incarnation),
            Event::Sent(host, path, incarnation) => {
                let at_ns = self.now_ns;
                let one = &mut self.hosts[host];
                let queue_pair = &mut one.queue_pairs[path];
                if queue_pair.incarnation == incarnation {
                    if let Some(global) = queue_pair.sending.take() {
                        let at_ns = Some(at_ns);
                        one.completions
                            .push_back(crate::nic::Completion::Sent { global, at_ns });
                        self.look_soon(host);
                    }
                }
            }
            Event::Arrive(host, packet) => self.arrive(host, packet),
            Event::Ack(host, bytes) => {
                let at_ns = self.now_ns;
                self.hosts[host].acks.push_back((bytes, at_ns));
                self.look_soon(host);
            }
            Event::Retry {
                host,
                path,
                incarnation,
                timer,
            } => {
                self.retry(host, path, incarnation, timer);
            }
            Event::Release(host, slot) => {
                self.hosts[host].released(slot);
                self.provide_waiting(host);
            }
            Event::Rested(host, slot) => {
                self.hosts[host].release(slot);
                self.provide_waiting(host);
            }
            Event::Provide(host, message) => {
                self.hosts[host].provide(message, &mut self.random);
                self.look_soon(host);
            }
            Event::Submit(host, index) => self.submit(host, index),
            Event::Fault => self.fault(),
        }
    }

    fn submit(&mut self, host: usize, index: u32) {
        // Sizes follow from the index, so that who receives knows them without being told.
        let mut sizes = Random::new(self.seed ^ (host as u64) << 32 ^ u64::from(index));
        let most = sizes.pick(&[200, 8_000, 32_768, 40_000, SLOT_BYTES as u64]);
        let bytes = 4 + sizes.below(most - 3) as usize;
        self.hosts[host].backlog.push_back((index, bytes));
        self.look_soon(host);
    }

    fn provide_waiting(&mut self, host: usize) {
        if let Some(message) = self.hosts[host].waiting.pop_front() {
            self.after(0, Event::Provide(host, message));
        }
    }

    /// A thread sees what has come a little later, sometimes much later.
    fn look_soon(&mut self, host: usize) {
        let away = self.random.chance(0.001);
        let after_ns = self.random.below(if away { 500_000 } else { 2_000 });
        self.look(host, self.now_ns + after_ns);
    }

    fn look(&mut self, host: usize, at_ns: u64) {
        let at_ns = at_ns.max(self.now_ns);
        if self.hosts[host].poll_ns.is_none_or(|known| at_ns < known) {
            self.hosts[host].poll_ns = Some(at_ns);
            self.after(at_ns - self.now_ns, Event::Poll(host));
        }
    }

    fn poll(&mut self, host: usize) {
        if self.hosts[host]
            .poll_ns
            .is_none_or(|known| known > self.now_ns)
        {
            return;
        }
        self.hosts[host].poll_ns = None;
        let wishes = self.hosts[host].poll(self.now_ns, &mut self.random);
        for wish in wishes {
            match wish {
                Wish::Transmit { path } => {
                    let queue_pair = &mut self.hosts[host].queue_pairs[path];
                    if !queue_pair.busy {
                        queue_pair.busy = true;
                        let incarnation = queue_pair.incarnation;
                        self.after(200, Event::Transmit(host, path, incarnation));
                    }
                }
                Wish::Acknowledge(bytes) => {
                    for after_ns in self.ways(2 * PATHS + host, 0) {
                        self.after(after_ns, Event::Ack(1 - host, bytes.clone()));
                    }
                }
                Wish::Release { slot, after_ns } => {
                    self.after(after_ns, Event::Release(host, slot));
                }
                Wish::Rested { slot, after_ns } => self.after(after_ns, Event::Rested(host, slot)),
                Wish::Provide { message, after_ns } => {
                    self.after(after_ns, Event::Provide(host, message));
                }
            }
        }
        if !self.hosts[host].completions.is_empty() || self.hosts[host].submit(self.now_ns) {
            self.look_soon(host);
        }
        if let Some(deadline) = self.hosts[host].connection.next_deadline(self.now_ns) {
            self.look(host, deadline.max(self.now_ns + 1));
        }
    }

    /// How often a packet arrives, and after how long. Packets of one way stay in order, but for those that are late.
    fn ways(&mut self, way: usize, since_ns: u64) -> Vec<u64> {
        let copies = 1 + usize::from(self.random.chance(self.weather.doubled));
        let mut ways = Vec::new();
        for copy in 0..copies {
            if self.random.chance(self.weather.loss) {
                continue;
            }
            let mut at_ns = self.now_ns + since_ns + 5_000;
            if copy > 0 || self.random.chance(self.weather.late) {
                at_ns += self.random.below(LONGEST_NS);
            } else {
                // A queue that a quarter of the packets finds longer.
                if self.random.chance(0.25) {
                    at_ns += self.random.below(self.weather.jitter_ns.max(1));
                }
                at_ns = at_ns.max(self.last_ns[way] + 1);
                self.last_ns[way] = at_ns;
            }
            ways.push(at_ns - self.now_ns);
        }
        ways
    }

    /// Puts a packet onto the network, so long from now.
    fn send(&mut self, host: usize, packet: &Packet, since_ns: u64) {
        if self.hosts[host].queue_pairs[packet.path].black_hole {
            return;
        }
        for after_ns in self.ways(2 * packet.path + host, since_ns) {
            self.after(after_ns, Event::Arrive(1 - host, packet.clone()));
        }
    }

    fn transmit(&mut self, host: usize, path: usize, incarnation: u64) {
        let service = self.weather.service;
        let one = &mut self.hosts[host];
        let queue_pair = &mut one.queue_pairs[path];
        if queue_pair.incarnation != incarnation {
            return;
        }
        queue_pair.busy = false;
        let index = if service == Service::Reliable {
            queue_pair.sent
        } else {
            0
        };
        if !queue_pair.up || index >= queue_pair.queue.len() {
            return;
        }
        let (posted, number) = if service == Service::Reliable {
            queue_pair.sent += 1;
            (
                queue_pair.queue[index].clone(),
                queue_pair.number + index as u64,
            )
        } else {
            (queue_pair.queue.pop_front().unwrap(), queue_pair.number)
        };
        let message: &[u8] = match posted.piece {
            None => &[],
            Some(piece) => {
                let source = one.sources.get(&piece.message.0);
                &source.expect("the NIC reads a message that is finished").1
            }
        };
        let packets = posted.packets(message, service);
        let peer = queue_pair.peer_incarnation;
        let count = packets.len() as u64;
        if service != Service::Reliable {
            queue_pair.number += count;
            queue_pair.sending = Some(posted.global);
        }
        let first_sent = service == Service::Reliable && index == 0;
        for (at, (first, last, body)) in packets.into_iter().enumerate() {
            let marked = self.random.chance(0.01);
            let number = number + at as u64;
            let packet = Packet {
                path,
                incarnation: peer,
                number,
                first,
                last,
                body,
                marked,
            };
            self.send(host, &packet, 100 * at as u64);
        }
        if first_sent {
            self.arm(host, path);
        }
        self.hosts[host].queue_pairs[path].busy = true;
        if service != Service::Reliable {
            self.after(100 * count, Event::Sent(host, path, incarnation));
        }
        self.after(100 * count, Event::Transmit(host, path, incarnation));
    }

    fn arm(&mut self, host: usize, path: usize) {
        let queue_pair = &mut self.hosts[host].queue_pairs[path];
        queue_pair.timer += 1;
        let (incarnation, timer) = (queue_pair.incarnation, queue_pair.timer);
        self.after(
            1_000_000,
            Event::Retry {
                host,
                path,
                incarnation,
                timer,
            },
        );
    }

    fn retry(&mut self, host: usize, path: usize, incarnation: u64, timer: u64) {
        let one = &mut self.hosts[host];
        let queue_pair = &mut one.queue_pairs[path];
        let current = queue_pair.incarnation == incarnation && queue_pair.timer == timer;
        if !current || !queue_pair.up || queue_pair.queue.is_empty() {
            return;
        }
        let oldest = &mut queue_pair.queue[0];
        oldest.attempts += 1;
        if oldest.attempts >= RC_ATTEMPTS {
            queue_pair.fail(&mut one.completions);
            self.look_soon(host);
            return;
        }
        queue_pair.sent = 0;
        if !queue_pair.busy {
            queue_pair.busy = true;
            self.after(0, Event::Transmit(host, path, incarnation));
        }
    }

    fn arrive(&mut self, host: usize, packet: Packet) {
        let service = self.weather.service;
        let now_ns = self.now_ns;
        let one = &mut self.hosts[host];
        let queue_pair = &mut one.queue_pairs[packet.path];
        if queue_pair.black_hole {
            return;
        }
        if matches!(packet.body, Body::Acknowledgement) {
            self.acknowledged(host, &packet);
            return;
        }
        let (completion, taken) = queue_pair.arrive(&packet, service, &mut one.memory, now_ns);
        let (number, peer) = (queue_pair.expected, queue_pair.peer_incarnation);
        if let Some(completion) = completion {
            one.completions.push_back(completion);
            self.look_soon(host);
        }
        if taken && service == Service::Reliable {
            let ack = Packet {
                number,
                incarnation: peer,
                body: Body::Acknowledgement,
                ..packet
            };
            self.send(host, &ack, 0);
        }
    }

    /// RC: all before a number have arrived.
    fn acknowledged(&mut self, host: usize, packet: &Packet) {
        let now_ns = self.now_ns;
        let one = &mut self.hosts[host];
        let queue_pair = &mut one.queue_pairs[packet.path];
        if !queue_pair.up || packet.incarnation != queue_pair.incarnation {
            return;
        }
        let mut progress = false;
        while queue_pair.number < packet.number {
            let Some(posted) = queue_pair.queue.pop_front() else {
                break;
            };
            queue_pair.number += 1;
            queue_pair.sent = queue_pair.sent.saturating_sub(1);
            progress = true;
            one.completions.push_back(crate::nic::Completion::Sent {
                global: posted.global,
                at_ns: Some(now_ns),
            });
        }
        if progress {
            self.arm(host, packet.path);
            self.look_soon(host);
        }
    }

    /// Kills the queue pair that is in use, at one end or both, or all that goes over it, without a word.
    fn fault(&mut self) {
        let host = self.random.below(2) as usize;
        let path = self.hosts[host].connection.primary();
        if self.weather.silent && self.random.chance(0.7) {
            for one in &mut self.hosts {
                one.queue_pairs[path].black_hole = true;
            }
        } else {
            let both = self.random.chance(0.3);
            for number in [host, 1 - host].into_iter().take(if both { 2 } else { 1 }) {
                let path = self.hosts[number].connection.primary();
                let one = &mut self.hosts[number];
                let incarnation = one.queue_pairs[path].incarnation;
                one.queue_pairs[path].fail(&mut one.completions);
                let failed = crate::nic::Completion::Failed { path, incarnation };
                one.completions.push_back(failed);
                self.look_soon(number);
            }
        }
        self.faults_left -= 1;
        if self.faults_left > 0 {
            let after_ns = self.random.below(10_000_000);
            self.after(after_ns, Event::Fault);
        }
    }

    fn check(&self) {
        let weather = self.weather;
        let gentle = weather.faults == 0 && weather.loss <= 0.02;
        for (number, host) in self.hosts.iter().enumerate() {
            let peer = &self.hosts[1 - number];
            assert_eq!(
                host.finished.len() as u32,
                weather.messages,
                "all are reported"
            );
            assert!(host.sources.is_empty());
            assert!(
                !(host.lost && gentle),
                "lost without a reason: {weather:#?}"
            );
            for (index, outcome) in &host.finished {
                let delivered = peer.delivered.contains(index);
                match outcome {
                    // On RC the NIC answers before the software has seen it; whose connection is lost sees no more.
                    Ok(()) => assert!(
                        delivered || peer.lost && weather.service == Service::Reliable,
                        "message {index} of {number} is said to be delivered"
                    ),
                    Err(Failure::Refused) => assert!(!delivered),
                    Err(Failure::ConnectionLost) => assert!(host.lost),
                    Err(Failure::Abandoned) => panic!("nobody has given it up"),
                }
            }
            if !host.lost {
                assert!(host.connection.is_idle() || peer.lost, "{weather:#?}");
            }
        }
    }

    pub(crate) fn weather(&self) -> Weather {
        self.weather
    }
}
