//! Copies are killed and stopped under writes, one at a time and all at once: nothing that was acknowledged is lost,
//! the volume goes on while a majority is there, and a copy that comes back is equal to the others.
//!
//! `DUNLIN_VOLUME_KILL_ROUNDS` says how many (4), `DUNLIN_VOLUME_KILL_SEED` which:
//! `DUNLIN_VOLUME_KILL_ROUNDS=50 cargo test --release -p dunlin-volume --test kills -- --nocapture` is the long run.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{block, eventually, in_folder, start, BLOCK};
use dunlin_volume::client::Operation;
use dunlin_volume::server::Place;
use dunlin_volume::{check, create, Volume, VolumeError, VolumeOptions, BLOCK_BYTES};
use process::{listen, role, say, Other};
use rustix::process::{kill_process, Pid, Signal};

/// Of the volume: two chunks, the second of which is not whole.
const BLOCKS: u64 = 5000;
/// Of these the tests write.
const USED: u64 = 400;
/// Writes that are out at once.
const DEPTH: usize = 16;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A copy that is stopped is left behind soon.
fn options() -> VolumeOptions {
    VolumeOptions {
        replace_after: Duration::from_secs(1),
        patience: Duration::from_secs(60),
        ..VolumeOptions::default()
    }
}

/// What this process is, where it was started by a test below.
fn other_process() -> bool {
    let Some((role, argument)) = role() else {
        return false;
    };
    let (address, place) = argument.split_once(' ').unwrap();
    let place = match role.as_str() {
        "memory" => Place::Memory,
        _ => in_folder(&PathBuf::from(place)),
    };
    let server = start(place, address);
    say(&server.address().to_string());
    while listen().is_some() {}
    true
}

struct Servers {
    test: &'static str,
    role: &'static str,
    folder: tempfile::TempDir,
    processes: Vec<Other>,
    addresses: Vec<String>,
}

impl Servers {
    fn start(test: &'static str, role: &'static str, count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut servers = Self {
            test,
            role,
            folder,
            processes: Vec::new(),
            addresses: Vec::new(),
        };
        for number in 0..count {
            let (process, address) = servers.process(number, "dunlin://127.0.0.1:0");
            servers.processes.push(process);
            servers.addresses.push(address);
        }
        servers
    }

    fn process(&self, number: usize, address: &str) -> (Other, String) {
        let place = self.folder.path().join(number.to_string());
        let argument = format!("{address} {}", place.display());
        let mut other = Other::start(self.test, self.role, &argument);
        let address = other.hear();
        (other, address)
    }

    fn restart(&mut self, number: usize) {
        self.processes[number] = self.process(number, &self.addresses[number]).0;
    }

    fn signal(&self, number: usize, signal: Signal) {
        let id = Pid::from_child(&self.processes[number].child);
        kill_process(id, signal).unwrap();
    }
}

/// Writes, and what each block may be.
struct Writer {
    volume: Volume,
    random: fastrand::Rng,
    turn: u64,
    /// The turn of the last write that was acknowledged.
    acknowledged: HashMap<u64, u64>,
    /// By tag: which block.
    out: HashMap<u64, u64>,
}

impl Writer {
    fn new(addresses: &[String], seed: u64) -> Self {
        let volume = Volume::open("birds", addresses, &options()).unwrap();
        let random = fastrand::Rng::with_seed(seed);
        Self {
            volume,
            random,
            turn: 0,
            acknowledged: HashMap::new(),
            out: HashMap::new(),
        }
    }

    /// Keeps writes out until `is_over`, which is told how many were acknowledged.
    fn write_until(&mut self, mut is_over: impl FnMut(&Volume, u64) -> bool) {
        let (began, mut count) = (Instant::now(), 0);
        while !is_over(&self.volume, count) {
            assert!(
                began.elapsed() < Duration::from_secs(120),
                "no end after {count} writes"
            );
            self.fill();
            count += self.take();
        }
    }

    fn fill(&mut self) {
        while self.out.len() < DEPTH {
            let number = self.random.u64(..USED);
            if self.out.values().any(|out| *out == number) {
                continue;
            }
            self.turn += 1;
            let bytes = block(number, self.turn);
            let offset = number * (BLOCKS / USED) * BLOCK;
            assert!(self
                .volume
                .begin(Operation::Write(&bytes), offset, self.turn)
                .unwrap());
            self.out.insert(self.turn, number);
        }
    }

    fn take(&mut self) -> u64 {
        let mut count = 0;
        while let Some(done) = self.volume.poll() {
            done.result.unwrap();
            let number = self.out.remove(&done.tag).unwrap();
            self.acknowledged.insert(number, done.tag);
            count += 1;
        }
        if count == 0 {
            self.volume.wait(&[], Duration::from_millis(5)).unwrap();
        }
        count
    }

    fn finish(&mut self) {
        while !self.out.is_empty() {
            self.take();
        }
    }

    /// Every block is what was acknowledged last, or what was out.
    fn compare(&self, volume: &mut Volume) {
        for (number, turn) in &self.acknowledged {
            let offset = number * (BLOCKS / USED) * BLOCK;
            let read = volume.read_at(offset, BLOCK_BYTES).unwrap();
            let out = self.out.iter().filter(|(_, out)| *out == number);
            let may_be = out.map(|(turn, _)| *turn).chain([*turn]);
            let fits = may_be.into_iter().any(|turn| read == block(*number, turn));
            assert!(
                fits,
                "block {number}: {:?} instead of turn {turn}",
                &read[..8]
            );
        }
    }
}

fn are_equal(addresses: &[String]) {
    let findings = check("birds", addresses, &options()).unwrap();
    assert_eq!((findings.blocks, findings.faults), (BLOCKS, vec![]));
}

fn kill_and_stop_in_turn(servers: &mut Servers) {
    create("birds", BLOCKS * BLOCK, &servers.addresses, &options()).unwrap();
    let seed = setting("DUNLIN_VOLUME_KILL_SEED", 1);
    let mut writer = Writer::new(&servers.addresses, seed);
    writer.write_until(|_, count| count > 200);
    for round in 0..setting("DUNLIN_VOLUME_KILL_ROUNDS", 4) {
        let number = round as usize % servers.processes.len();
        let stops = round % 2 == 1;
        println!(
            "round {round}: server {number} is {}",
            if stops { "stopped" } else { "killed" }
        );
        match stops {
            true => servers.signal(number, Signal::STOP),
            false => servers.processes[number].kill(),
        }
        // It is noticed, and then the others go on without it.
        let mut since = None;
        writer.write_until(|volume, count| {
            let is_out = !volume.is_in_sync();
            since = since.or(is_out.then_some(count));
            since.is_some_and(|since| count > since + 300)
        });
        match stops {
            true => servers.signal(number, Signal::CONT),
            false => servers.restart(number),
        }
        writer.write_until(|volume, _| volume.is_in_sync());
        writer.write_until(|_, count| count > 200);
    }
    writer.finish();
    let mut again = Volume::open("birds", &servers.addresses, &options()).unwrap();
    writer.compare(&mut again);
    drop(again);
    are_equal(&servers.addresses);
}

#[test]
fn copies_in_logs_are_killed_and_stopped_in_turn() {
    if other_process() {
        return;
    }
    let test = "copies_in_logs_are_killed_and_stopped_in_turn";
    kill_and_stop_in_turn(&mut Servers::start(test, "log", 3));
}

#[test]
fn copies_in_memory_are_killed_and_stopped_in_turn() {
    if other_process() {
        return;
    }
    let test = "copies_in_memory_are_killed_and_stopped_in_turn";
    kill_and_stop_in_turn(&mut Servers::start(test, "memory", 3));
}

#[test]
fn all_are_killed_at_once() {
    if other_process() {
        return;
    }
    let mut servers = Servers::start("all_are_killed_at_once", "log", 4);
    create("birds", BLOCKS * BLOCK, &servers.addresses, &options()).unwrap();
    let mut writer = Writer::new(&servers.addresses, 2);
    writer.write_until(|_, count| count > 500);
    servers.processes.iter_mut().for_each(Other::kill);
    // The client that was there goes on when they are back, with what it has out.
    (0..4).for_each(|number| servers.restart(number));
    writer.write_until(|_, count| count > 200);
    servers.processes.iter_mut().for_each(Other::kill);
    (0..4).for_each(|number| servers.restart(number));
    let mut other = Volume::open("birds", &servers.addresses, &options()).unwrap();
    writer.compare(&mut other);
    drop(other);
    are_equal(&servers.addresses);
}

#[test]
fn who_is_replaced_while_it_stands_still_writes_nothing() {
    if other_process() {
        return;
    }
    let servers = Servers::start(
        "who_is_replaced_while_it_stands_still_writes_nothing",
        "memory",
        3,
    );
    create("birds", BLOCKS * BLOCK, &servers.addresses, &options()).unwrap();
    let mut first = Writer::new(&servers.addresses, 3);
    first.write_until(|_, count| count > 100);
    // It is not polled: writes of it are on their way.
    first.fill();
    let mut second = Writer::new(&servers.addresses, 4);
    second.turn = 1 << 30;
    second.write_until(|_, count| count > 300);
    second.finish();
    let mut replaced = 0;
    eventually("the first one hears of it", || {
        while let Some(done) = first.volume.poll() {
            match done.result {
                Err(VolumeError::Replaced) => replaced += 1,
                Err(other) => panic!("{other}"),
                // It was answered before the second one came.
                Ok(_) => assert!(replaced == 0),
            }
        }
        replaced > 0
    });
    let refused = first.volume.write_at(0, &block(0, 1));
    assert!(matches!(refused, Err(VolumeError::Replaced)));
    let mut second_volume = Volume::open("birds", &servers.addresses, &options()).unwrap();
    second.compare(&mut second_volume);
    drop(second_volume);
    are_equal(&servers.addresses);
}

/// Lets a server run now and then, so that a copy there is built slowly, but answers.
struct Slow {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slow {
    fn new(servers: &Servers, number: usize) -> Self {
        let id = Pid::from_child(&servers.processes[number].child);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                kill_process(id, Signal::STOP).unwrap();
                std::thread::sleep(Duration::from_millis(150));
                kill_process(id, Signal::CONT).unwrap();
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_copy_that_is_built_holds_nothing_up() {
    if other_process() {
        return;
    }
    let test = "a_copy_that_is_built_holds_nothing_up";
    let mut servers = Servers::start(test, "memory", 3);
    let (blocks, at_once) = (24_000, 1000);
    let impatient = VolumeOptions {
        patience: Duration::from_secs(20),
        ..options()
    };
    create("birds", blocks * BLOCK, &servers.addresses, &impatient).unwrap();
    let mut volume = Volume::open("birds", &servers.addresses, &impatient).unwrap();
    for first in (0..blocks).step_by(at_once) {
        let bytes: Vec<u8> = (first..first + at_once as u64)
            .flat_map(|number| block(number, 1))
            .collect();
        volume.write_at(first * BLOCK, &bytes).unwrap();
    }
    servers.processes[2].kill();
    volume.write_at(0, &block(0, 2)).unwrap();
    assert_eq!(volume.servers_in_sync(), 2);
    servers.restart(2);
    let slow = Slow::new(&servers, 2);
    // The second copy of three stands still, until it is out: too few are left then.
    servers.signal(1, Signal::STOP);
    eventually("it stands still", || servers.processes[1].stands_still());
    let bytes = block(1, 2);
    assert!(volume.begin(Operation::Write(&bytes), BLOCK, 1).unwrap());
    eventually("it waits for more copies", || {
        assert!(volume.poll().is_none());
        volume.servers_in_sync() == 0
    });
    servers.signal(1, Signal::CONT);
    // It is opened anew while the third copy has not been built.
    eventually("the write ends", || {
        volume
            .poll()
            .is_some_and(|done| done.result.map(|_| true).unwrap())
    });
    // Nor is it waited for when the volume is closed.
    drop(volume);
    drop(slow);
    let findings = check("birds", &servers.addresses, &options()).unwrap();
    assert!(!findings.faults.is_empty(), "it was built first");
    let mut volume = Volume::open("birds", &servers.addresses, &options()).unwrap();
    eventually("the copy is built", || {
        volume.poll();
        volume.is_in_sync()
    });
    drop(volume);
    let findings = check("birds", &servers.addresses, &options()).unwrap();
    assert_eq!((findings.written, findings.faults), (blocks, vec![]));
}

#[test]
fn without_a_majority_it_waits_and_then_says_so() {
    if other_process() {
        return;
    }
    let mut servers = Servers::start("without_a_majority_it_waits_and_then_says_so", "log", 3);
    create("birds", BLOCKS * BLOCK, &servers.addresses, &options()).unwrap();
    let impatient = VolumeOptions {
        patience: Duration::from_secs(2),
        ..options()
    };
    let patience = Duration::from_secs(10);
    let mut volume = Volume::open(
        "birds",
        &servers.addresses,
        &VolumeOptions {
            patience,
            ..options()
        },
    )
    .unwrap();
    volume.write_at(0, &block(0, 1)).unwrap();
    servers.processes[..2].iter_mut().for_each(Other::kill);
    let error = volume.write_at(0, &block(0, 2)).unwrap_err();
    assert!(
        matches!(error, VolumeError::TooFew { want: 2, .. }),
        "{error}"
    );
    drop(volume);
    let error = Volume::open("birds", &servers.addresses, &impatient).unwrap_err();
    assert!(
        matches!(
            error,
            VolumeError::TooFew {
                have: 1,
                want: 2,
                ..
            }
        ),
        "{error}"
    );
    servers.restart(0);
    let mut volume = Volume::open("birds", &servers.addresses, &impatient).unwrap();
    let read = volume.read_at(0, BLOCK_BYTES).unwrap();
    assert!([1, 2].contains(&u64::from_le_bytes(read[..8].try_into().unwrap())));
}
