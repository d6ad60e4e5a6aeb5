//! The logical connection over devices of this machine: messages of all sizes cross in both directions, once each and
//! whole, also when the primary queue pair dies again and again. `crates/dunlin-roce/tests/netns/run flor` runs those
//! over `roce` on a network that loses packets.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use dunlin_flor::connection::{Deployment, MessageId, SubmitError};
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{Device, Region};

/// How long a run may take before it counts as standing still.
const PATIENCE: Duration = Duration::from_secs(120);
const SIZES: [usize; 12] = [
    4, 5, 63, 64, 1000, 4096, 8191, 32_768, 32_769, 100_000, 262_144, 1_000_001,
];

fn contents(sender: usize, index: usize, bytes: usize) -> Vec<u8> {
    let mut message: Vec<u8> = (0..bytes)
        .map(|at| (at.wrapping_mul(31) ^ index.wrapping_mul(7) ^ sender ^ (at >> 8)) as u8)
        .collect();
    message[..4].copy_from_slice(&(index as u32).to_le_bytes());
    message
}

struct End<D: Device> {
    link: LogicalConnection<D>,
    sender: usize,
    to_submit: usize,
    messages: usize,
    open: HashMap<MessageId, usize>,
    delivered: HashSet<usize>,
}

impl<D: Device> End<D> {
    fn new(device: D, config: LinkConfig, sender: usize, messages: usize) -> Self {
        Self {
            link: LogicalConnection::new(device, config).unwrap(),
            sender,
            to_submit: 0,
            messages,
            open: HashMap::new(),
            delivered: HashSet::new(),
        }
    }

    fn check(&mut self, message: &[u8]) {
        let index = u32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
        let sent = contents(1 - self.sender, index, message.len());
        assert!(
            sent == message,
            "message {index} of {} bytes is torn",
            message.len()
        );
        assert_eq!(message.len(), SIZES[index % SIZES.len()]);
        assert!(self.delivered.insert(index), "message {index} came twice");
    }

    fn step(&mut self, now_ns: u64) {
        if self.to_submit < self.messages && self.open.len() < 8 {
            let bytes = SIZES[self.to_submit % SIZES.len()];
            let region = self.link.allocate(bytes).unwrap();
            let message = contents(self.sender, self.to_submit, bytes);
            region.memory().write(0, &message);
            let source = Source {
                region,
                offset: 0,
                bytes: bytes as u32,
            };
            match self.link.submit(now_ns, source) {
                Ok(id) => {
                    self.open.insert(id, self.to_submit);
                    self.to_submit += 1;
                }
                Err(SubmitError::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(event) = self.link.poll(now_ns).unwrap() {
            match event {
                LinkEvent::Message(message) => self.check(&message),
                LinkEvent::Landed { landing, .. } => {
                    let copy = landing.copy();
                    self.check(&copy);
                    self.link.release(landing);
                }
                LinkEvent::Finished(id, outcome) => {
                    outcome.unwrap();
                    self.open.remove(&id).expect("finished once");
                }
                LinkEvent::Announced { .. } => panic!("nobody has tags"),
                LinkEvent::Lost => panic!("lost"),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.to_submit == self.messages
            && self.open.is_empty()
            && self.delivered.len() == self.messages
    }
}

/// Runs messages both ways, and kills the primary so many times on the way.
fn run<D: Device>(devices: [D; 2], deployment: Deployment, messages: usize, kills: usize) {
    run_with(devices, LinkConfig::new(deployment), messages, kills);
}

fn run_with<D: Device>(devices: [D; 2], config: LinkConfig, messages: usize, kills: usize) {
    let [first, second] = devices;
    let deployment = config.deployment;
    let mut ends = [
        End::new(first, config.clone(), 0, messages),
        End::new(second, config, 1, messages),
    ];
    let addresses = [ends[0].link.address(), ends[1].link.address()];
    ends[0].link.connect(&addresses[1], 0, 0).unwrap();
    ends[1].link.connect(&addresses[0], 0, 0).unwrap();
    let begun = Instant::now();
    let mut killed = 0;
    while !ends.iter().all(End::is_done) {
        let elapsed = begun.elapsed();
        assert!(
            elapsed < PATIENCE,
            "stands still: {:?} {:?}",
            ends[0].link.connection().counters(),
            ends[1].link.connection().counters()
        );
        for end in &mut ends {
            end.step(elapsed.as_nanos() as u64);
        }
        // Evenly over the run, by what has come so far.
        let come = ends[0].delivered.len() + ends[1].delivered.len();
        if killed < kills && come > (killed + 1) * 2 * messages / (kills + 1) {
            let end = &mut ends[killed % 2];
            let primary = end.link.connection().primary();
            end.link.fail_path(primary);
            killed += 1;
        }
    }
    assert_eq!(killed, kills);
    for end in &ends {
        let counters = end.link.connection().counters();
        println!(
            "{deployment:?}: {counters:?}, clock: {:?}",
            end.link.clock_source()
        );
        assert_eq!(counters.violations, 0);
        // One death may hide behind another.
        assert!(kills == 0 || counters.switches > 0);
    }
}

fn shm() -> [ShmDevice; 2] {
    [(); 2].map(|()| ShmDevice::open(ShmConfig::default()).unwrap())
}

fn roce() -> [RoceDevice; 2] {
    [(); 2].map(|()| {
        let mut config = RoceConfig::from_environment().unwrap();
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        config.local_address.get_or_insert(loopback);
        RoceDevice::open(config).unwrap()
    })
}

#[test]
fn over_shm_by_uc() {
    run(shm(), Deployment::CrossPod, 240, 0);
}

#[test]
fn over_shm_by_rc() {
    run(shm(), Deployment::HybridReliable, 240, 0);
    run(shm(), Deployment::IntraPodLossless, 240, 0);
}

#[test]
fn over_shm_while_queue_pairs_die() {
    run(shm(), Deployment::CrossPod, 240, 6);
    run(shm(), Deployment::HybridReliable, 240, 6);
}

/// A device that has no queue pair more than those of the connection: one that is renewed takes the place of another.
#[test]
fn over_shm_while_queue_pairs_die_of_which_there_are_no_more() {
    for (deployment, count) in [(Deployment::CrossPod, 4), (Deployment::HybridReliable, 3)] {
        let mut config = ShmConfig::default();
        config.max_queue_pairs = count;
        let devices = [(); 2].map(|()| ShmDevice::open(config.clone()).unwrap());
        run(devices, deployment, 240, 6);
    }
}

/// They take RECEIVEs beside those that work requests have: half of them.
#[test]
fn over_shm_with_acknowledgements_among_the_data() {
    for kills in [0, 6] {
        let mut config = LinkConfig::new(Deployment::CrossPod);
        config.shares_acks = true;
        config.connection.peer_receives = config.receives / 2;
        config.connection.send_queue = config.receives / 2;
        run_with(shm(), config, 240, kills);
    }
}

#[test]
fn over_roce_by_uc() {
    run(roce(), Deployment::CrossPod, 120, 0);
}

#[test]
fn over_roce_by_rc() {
    run(roce(), Deployment::HybridReliable, 120, 0);
    run(roce(), Deployment::IntraPodLossless, 120, 0);
}

#[test]
fn over_roce_while_queue_pairs_die() {
    run(roce(), Deployment::CrossPod, 120, 4);
    run(roce(), Deployment::HybridReliable, 120, 4);
}
