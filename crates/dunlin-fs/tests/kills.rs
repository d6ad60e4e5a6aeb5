//! SIGKILL of the metadata server, a data server and a client in turn, under load: nothing that was synced is lost, no
//! client that was revoked writes, no space is lost.
//!
//! `DUNLIN_FS_KILL_ROUNDS` says how many (4), `DUNLIN_FS_KILL_SEED` which: `DUNLIN_FS_KILL_ROUNDS=50 cargo test
//! --release -p dunlin-fs --test kills -- --nocapture` is the long run.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::path::PathBuf;
use std::time::Duration;

use common::{eventually, serve_data, serve_meta};
use dunlin_fs::types::{Errno, EXTENT_BYTES};
use dunlin_fs::wire::{Answer, Ask};
use dunlin_fs::{FileSystem, FsOptions};
use process::{listen, role, say, Other};

/// Short, so that a client's death shows soon; long enough for two busy cores.
const LEASE: Duration = Duration::from_secs(2);
const DATA_BYTES: u64 = 64 << 20;
/// Files of one writer.
const FILES: usize = 4;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn connect(address: &str) -> FileSystem {
    let options = FsOptions {
        patience: Duration::from_secs(60),
        ..FsOptions::default()
    };
    FileSystem::connect_with(address, &options).unwrap()
}

/// Shortest content.
const LEAST_BYTES: usize = EXTENT_BYTES as usize * 2 + 1000;

/// The content of a file after so many writes: its number over and over, so that torn and old ones are seen.
fn content(version: u64) -> Vec<u8> {
    let length = LEAST_BYTES + (version as usize * 37) % 5000 / 8 * 8;
    version.to_le_bytes().repeat(length / 8)
}

/// What this process is, where it was started by the test below.
fn other_process() -> bool {
    let Some((role, argument)) = role() else {
        return false;
    };
    let mut words = argument.split(' ');
    let mut word = || words.next().unwrap().to_owned();
    match role.as_str() {
        "data" => {
            let server = serve_data(&PathBuf::from(word()), &word(), DATA_BYTES);
            say(&server.address().to_string());
            while listen().is_some() {}
        }
        "meta" => {
            let (store, address) = (PathBuf::from(word()), word());
            let server = serve_meta(store, &address, words.map(str::to_owned).collect(), LEASE);
            say(&server.running().address().to_string());
            while listen().is_some() {}
        }
        "writer" => write_for_ever(&word(), &word()),
        "stopped" => write_and_be_stopped(&word()),
        other => panic!("no role {other}"),
    }
    true
}

/// Writes version after version over its files, syncs each, and says which are synced. Whatever was lost on the way is
/// an error of the sync, after which it writes the file anew.
fn write_for_ever(address: &str, name: &str) {
    let system = connect(address);
    let directory = format!("/{name}");
    system.create_directory(&directory).unwrap();
    let files: Vec<_> = (0..FILES)
        .map(|n| system.create_new(&format!("{directory}/{n}")).unwrap())
        .collect();
    say("ready");
    for version in 1.. {
        for (n, file) in files.iter().enumerate() {
            // Names are changes, too.
            let temporary = format!("{directory}/{n}.{version}");
            system.create_directory(&temporary).unwrap();
            loop {
                let bytes = content(version);
                let written = file.set_len(bytes.len() as u64);
                let written = written.and_then(|()| file.write_at(0, &bytes));
                match written.and_then(|()| file.sync()) {
                    Ok(()) => break,
                    Err(error) if error.errno() == Errno::IO => {}
                    Err(error) => panic!("{error}"),
                }
            }
            say(&format!("{n} {version}"));
        }
    }
}

/// Writes without a sync until it is stopped; goes on when it goes on.
fn write_and_be_stopped(address: &str) {
    let system = connect(address);
    let file = system.open("/shared").unwrap();
    file.write_at(0, &content(100)).unwrap();
    file.sync().unwrap();
    say("ready");
    let first = system.meta().session();
    for turn in 0.. {
        let written = file.write_at(0, &content(100 + turn % 50));
        let synced = written.and_then(|()| file.sync());
        if synced.is_err() || system.meta().session() != first {
            break;
        }
    }
    say("over");
    while listen().is_some() {}
}

/// Where the content of a file is.
fn extents(system: &FileSystem, ino: u64) -> Vec<dunlin_fs::types::Extent> {
    match system.meta().ask(&Ask::Map { ino, from: 0 }).unwrap() {
        Answer::Map { map, .. } => map.into_iter().map(|(_, extent)| extent).collect(),
        other => panic!("{other:?}"),
    }
}

struct Processes {
    folder: tempfile::TempDir,
    data: Vec<(Other, String)>,
    meta: (Other, String),
}

impl Processes {
    const TEST: &'static str = "servers_and_clients_are_killed_in_turn";

    fn start(test: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data: Vec<_> = (0..2)
            .map(|n| start_data(test, &folder, n, "dunlin://127.0.0.1:0"))
            .collect();
        let meta = start_meta(test, &folder, &data, "dunlin://127.0.0.1:0");
        Self { folder, data, meta }
    }
}

fn start_data(test: &str, folder: &tempfile::TempDir, n: usize, at: &str) -> (Other, String) {
    let file = folder.path().join(format!("data{n}"));
    let mut other = Other::start(test, "data", &format!("{} {at}", file.display()));
    let address = other.hear();
    (other, address)
}

fn start_meta(
    test: &str,
    folder: &tempfile::TempDir,
    data: &[(Other, String)],
    at: &str,
) -> (Other, String) {
    let store = folder.path().join("meta");
    let data: Vec<_> = data.iter().map(|(_, address)| address.as_str()).collect();
    let words = format!("{} {at} {}", store.display(), data.join(" "));
    let mut other = Other::start(test, "meta", &words);
    let address = other.hear();
    (other, address)
}

/// The versions of a writer's files that it has synced, as far as it has said.
struct Writer {
    process: Other,
    name: String,
    synced: [u64; FILES],
}

impl Writer {
    fn start(test: &str, address: &str, name: &str) -> Self {
        let mut process = Other::start(test, "writer", &format!("{address} {name}"));
        assert_eq!(process.hear(), "ready");
        Self {
            process,
            name: name.to_owned(),
            synced: [0; FILES],
        }
    }

    /// Waits until it has synced so many versions more.
    fn progress(&mut self, versions: usize) {
        for _ in 0..versions {
            let line = self.process.hear();
            let (file, version) = line.split_once(' ').unwrap();
            self.synced[file.parse::<usize>().unwrap()] = version.parse().unwrap();
        }
    }

    /// What is there is what was synced last, or one that was written after it.
    fn check(&self, system: &FileSystem) {
        let names = system.list(&format!("/{}", self.name)).unwrap();
        for (n, synced) in self.synced.iter().enumerate() {
            for version in 1..=*synced {
                let name = format!("{n}.{version}");
                assert!(names.contains(&name), "{name} was acknowledged and is gone");
            }
            let file = system.open(&format!("/{}/{n}", self.name)).unwrap();
            let bytes = file.read_at(0, 1 << 20).unwrap();
            // Killed in the middle of a version it may have some of both, and zeros where it had just become longer.
            for (place, word) in bytes.chunks_exact(8).enumerate() {
                let version = u64::from_le_bytes(word.try_into().unwrap());
                let fresh = version == 0 && (place * 8 >= LEAST_BYTES || *synced == 0);
                assert!(
                    version >= *synced || fresh,
                    "file {n}: version {version} after {synced}"
                );
            }
            assert!(*synced == 0 || !bytes.is_empty(), "file {n} is empty");
        }
    }
}

#[test]
fn servers_and_clients_are_killed_in_turn() {
    if other_process() {
        return;
    }
    let seed = setting("DUNLIN_FS_KILL_SEED", fastrand::u64(..));
    println!("DUNLIN_FS_KILL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let test = Processes::TEST;
    let mut all = Processes::start(test);
    let address = all.meta.1.clone();
    let system = connect(&address);
    eventually("the data servers are known", || {
        system.space().unwrap().bytes == 2 * DATA_BYTES
    });
    let mut writer = Writer::start(test, &address, "w0");
    for round in 1..=setting("DUNLIN_FS_KILL_ROUNDS", 4) {
        writer.progress(random.usize(1..20));
        let which = if round == 1 { 2 } else { random.u32(..4) };
        match which {
            0 => {
                all.meta.0.kill();
                all.meta = start_meta(test, &all.folder, &all.data, &address);
            }
            1 => {
                let n = random.usize(..2);
                all.data[n].0.kill();
                let at = all.data[n].1.clone();
                all.data[n] = start_data(test, &all.folder, n, &at);
            }
            _ => {
                writer.process.kill();
                writer.check(&system);
                writer = Writer::start(test, &address, &format!("w{round}"));
            }
        }
        writer.progress(FILES + random.usize(..8));
        println!("round {round}: {which}");
    }
    writer.process.kill();
    writer.check(&system);
    // Space is given back once the dead clients' sessions are over and the data servers have started anew.
    eventually("no session of a dead client", || {
        std::thread::sleep(Duration::from_millis(50));
        let before = system.space().unwrap();
        std::thread::sleep(LEASE * 2);
        system.space().unwrap() == before
    });
    drop(system);
    for n in 0..2 {
        all.data[n].0.kill();
        let at = all.data[n].1.clone();
        all.data[n] = start_data(test, &all.folder, n, &at);
    }
    let system = connect(&address);
    eventually("nothing is quarantined", || {
        system.space().unwrap().quarantined == 0
    });
    drop(system);
    all.meta.0.kill();
    let found = dunlin_fs::meta::check(&all.folder.path().join("meta")).unwrap();
    println!("{found:?}");
    assert_eq!(found.faults, []);
    assert_eq!(found.reserved + found.quarantined, 0, "{found:?}");
    assert_eq!(found.mapped + found.free, found.extents);
}

#[test]
fn a_client_that_was_stopped_past_its_lease_writes_nothing() {
    if other_process() {
        return;
    }
    let test = "a_client_that_was_stopped_past_its_lease_writes_nothing";
    let all = Processes::start(test);
    let system = connect(&all.meta.1);
    eventually("the data servers are known", || {
        system.space().unwrap().bytes > 0
    });
    drop(system.create_new("/shared").unwrap());
    let mut random = fastrand::Rng::new();
    for round in 0..3u64 {
        let mut stopped = Other::start(test, "stopped", &all.meta.1);
        assert_eq!(stopped.hear(), "ready");
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        let process = rustix::process::Pid::from_raw(stopped.child.id() as i32).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        // Until then one of its threads could give the lease back.
        eventually("it stands still", || stopped.stands_still());
        // Its lease runs out while it is stopped, perhaps in the middle of a WRITE.
        let before = extents(&system, system.find("/shared").unwrap().ino);
        let file = system.open("/shared").unwrap();
        let ours = content(200 + round);
        file.set_len(ours.len() as u64).unwrap();
        file.write_at(0, &ours).unwrap();
        file.sync().unwrap();
        let after = extents(&system, file.ino());
        let moved = before.iter().all(|extent| !after.contains(extent));
        assert!(moved && !before.is_empty(), "{before:?} to {after:?}");
        assert!(file.read_at(0, 1 << 20).unwrap() == ours);
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
        // Under another lease it may write once more before it sees that it has another session.
        assert_eq!(stopped.hear(), "over");
        let read = file.read_at(0, 1 << 20).unwrap();
        let words: std::collections::BTreeSet<_> =
            read.chunks_exact(8).take(LEAST_BYTES / 8).collect();
        assert_eq!(words.len(), 1, "a stale write is seen");
        stopped.kill();
    }
}
