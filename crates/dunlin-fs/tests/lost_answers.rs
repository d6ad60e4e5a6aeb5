//! Messages that the metadata server has dealt with and whose answers do not come, or late: a client neither gives one
//! file's extents to another nor keeps a lease that is another's by now.

mod common;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::{eventually, Cluster};
use dunlin::{Client, HandlerError, RunningServer, Server};
use dunlin_fs::client::{FsOptions, MetaClient};
use dunlin_fs::types::{Errno, Outcome, Refused, SessionId, EXTENT_BYTES, ROOT, SLOTS, S_IFREG};
use dunlin_fs::wire::{decode, encode, meta, Answer, Ask, Change, Envelope};
use dunlin_fs::{File, FileSystem};

const LEASE: Duration = Duration::from_secs(10);
/// How long the right to write is waited for where its answer is to be lost in any case.
const GIVEN_UP: Duration = Duration::from_millis(200);

/// Messages that a test names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Commit,
    Release,
    Map,
    Servers,
    WriteLease,
    Make,
    Reserve,
}

fn kind(handler: u16, payload: &[u8]) -> Option<Kind> {
    if handler == meta::ASK || handler == meta::ASK_DURABLE {
        return match decode(payload)? {
            Ask::Map { .. } => Some(Kind::Map),
            Ask::Servers => Some(Kind::Servers),
            _ => None,
        };
    }
    match decode::<Envelope<'_>>(payload)?.change {
        _ if handler != meta::CHANGE => None,
        Change::Commit { .. } => Some(Kind::Commit),
        Change::Release { .. } => Some(Kind::Release),
        Change::Lease { write: true, .. } => Some(Kind::WriteLease),
        Change::Make { .. } => Some(Kind::Make),
        Change::Reserve { .. } => Some(Kind::Reserve),
        _ => None,
    }
}

#[derive(Debug, Default)]
struct Rules {
    loses: Option<Kind>,
    lost: usize,
    holds: Option<Kind>,
    held: usize,
}

/// What stands between a client and the metadata server: it hands all on, and loses some answers or holds them back.
struct Between {
    server: RunningServer,
    client: Client,
    rules: Arc<Mutex<Rules>>,
}

impl Between {
    fn new(cluster: &Cluster) -> Self {
        let rules = Arc::new(Mutex::new(Rules::default()));
        let client = Client::builder().connect(&cluster.address).unwrap();
        let mut server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        for handler in [
            meta::ASK,
            meta::ASK_DURABLE,
            meta::CHANGE,
            meta::HELLO,
            meta::WATCH,
        ] {
            let (client, rules) = (client.clone(), Arc::clone(&rules));
            server = server.handle_deferred(handler, move |request, responder| {
                let payload = request.payload().to_vec();
                let (client, rules) = (client.clone(), Arc::clone(&rules));
                std::thread::spawn(move || {
                    let kind = kind(handler, &payload);
                    let is = |rule: Option<Kind>| kind.is_some() && rule == kind;
                    let loses = is(rules.lock().unwrap().loses);
                    let within = match kind {
                        Some(Kind::WriteLease) if loses => GIVEN_UP,
                        _ => LEASE,
                    };
                    let answer = client.within(within).call(handler, &payload);
                    if is(rules.lock().unwrap().holds) {
                        rules.lock().unwrap().held += 1;
                    }
                    while is(rules.lock().unwrap().holds) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    match answer {
                        Ok(answer) if !loses => responder.reply(answer.to_vec()),
                        _ => {
                            rules.lock().unwrap().lost += usize::from(loses);
                            responder.fail(HandlerError::new(9, "no answer"));
                        }
                    }
                });
            });
        }
        let server = server.serve().unwrap();
        Self {
            server,
            client,
            rules,
        }
    }

    fn client(&self) -> FileSystem {
        let system = FileSystem::connect(&self.server.address().to_string()).unwrap();
        eventually("the data servers are known", || {
            system.space().unwrap().bytes > 0
        });
        system
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap()
    }

    fn lose(&self, what: Option<Kind>) {
        self.rules().loses = what;
    }

    /// Holds answers back, until it is told otherwise.
    fn hold(&self, what: Option<Kind>) {
        self.rules().holds = what;
    }

    fn holds_one(&self) -> bool {
        self.rules().held > 0
    }

    /// Ends a client's session behind its back.
    fn end(&self, session: SessionId) {
        let bye = Envelope {
            session,
            slot: SLOTS - 1,
            sequence: 1,
            change: Change::Bye,
        };
        let client = self.client.within(LEASE);
        client.call(meta::CHANGE, &encode(&bye)).unwrap();
    }
}

#[test]
fn a_commit_whose_answer_is_lost_is_made_again() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/first").unwrap();
    let bytes = vec![1; EXTENT_BYTES as usize * 3];
    // With something cut off, which goes with the same commit.
    file.write_at(0, &[9; 10]).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, &bytes).unwrap();
    between.lose(Some(Kind::Commit));
    assert!(file.sync().is_err());
    between.lose(None);
    file.sync().unwrap();

    let second = system.create_new("/second").unwrap();
    second.write_at(0, &vec![2; bytes.len()]).unwrap();
    second.sync().unwrap();
    assert_eq!(file.read_at(0, bytes.len()).unwrap(), bytes);
    drop((file, second, system));
    drop(between);
    assert_eq!(cluster.check().mapped, 6);
}

#[test]
fn what_a_lost_commit_has_named_is_no_other_files() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/first").unwrap();
    let bytes = vec![1; EXTENT_BYTES as usize * 3];
    file.write_at(0, &bytes).unwrap();
    between.lose(Some(Kind::Commit));
    assert!(file.sync().is_err());
    // Nothing of it is to be written any more, as far as this client knows.
    file.set_len(0).unwrap();
    let second = system.create_new("/second").unwrap();
    let others = vec![2; bytes.len()];
    second.write_at(0, &others).unwrap();
    // Another client sees the file as it was committed, or as it was cut since; never the second one's bytes.
    between.lose(None);
    second.sync().unwrap();
    assert_eq!(second.read_at(0, others.len()).unwrap(), others);
    file.sync().unwrap();
    drop((file, second, system));
    drop(between);
    assert_eq!(cluster.check().mapped, 3);
}

#[test]
fn a_lease_is_over_when_its_release_is_not_answered() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/f").unwrap();
    file.write_at(0, b"old").unwrap();
    file.sync().unwrap();
    between.lose(Some(Kind::Release));
    drop(file);
    eventually("the lease of a closed file is given back", || {
        between.rules().lost > 0
    });

    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    theirs.write_at(0, b"new, and longer").unwrap();
    theirs.sync().unwrap();
    drop((theirs, other));
    let again = system.open("/f").unwrap();
    assert_eq!(again.read_at(0, 100).unwrap(), b"new, and longer");
    between.lose(None);
}

/// A client that has a file of three extents open, whose lease another client had after it.
fn open_without_a_lease(cluster: &Cluster, between: &Between) -> (FileSystem, File, Vec<u8>) {
    let system = between.client();
    let file = system.create_new("/f").unwrap();
    let bytes = vec![7; EXTENT_BYTES as usize * 3];
    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    theirs.write_at(0, &bytes).unwrap();
    theirs.sync().unwrap();
    (system, file, bytes)
}

#[test]
fn a_lease_without_its_map_is_none_to_read() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let (_system, file, bytes) = open_without_a_lease(&cluster, &between);
    between.lose(Some(Kind::Map));
    assert!(file.read_at(0, bytes.len()).is_err());
    between.lose(None);
    assert!(file.read_at(0, bytes.len()).unwrap() == bytes);
}

#[test]
fn a_lease_without_its_map_is_none_to_write() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let (_system, file, mut bytes) = open_without_a_lease(&cluster, &between);
    between.lose(Some(Kind::Map));
    assert!(file.write_at(0, &[9]).is_err());
    between.lose(None);
    file.write_at(0, &[9]).unwrap();
    file.sync().unwrap();
    bytes[0] = 9;
    assert!(file.read_at(0, bytes.len()).unwrap() == bytes);
}

/// A request for a lease waits at the server, and its session releases the lease.
#[test]
fn a_lease_is_not_granted_after_its_release() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let options = FsOptions::default();
    let (holder, _) = MetaClient::connect(&cluster.address, &options).unwrap();
    let (asker, _) = MetaClient::connect(&cluster.address, &options).unwrap();
    let make = Change::Make {
        parent: ROOT,
        name: b"f",
        mode: S_IFREG | 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: b"",
        lease: true,
    };
    let ino = holder.change_attr(make).unwrap().ino;
    let client = Client::builder().connect(&cluster.address).unwrap();
    let client = client.within(Duration::from_secs(60));
    let session = asker.session();
    let ask = move |slot, change| {
        let sequence = 1;
        let envelope = Envelope {
            session,
            slot,
            sequence,
            change,
        };
        let answer = client.call(meta::CHANGE, &encode(&envelope)).unwrap();
        decode::<Outcome<Answer>>(&answer).unwrap()
    };
    let write = true;
    let lease = {
        let ask = ask.clone();
        std::thread::spawn(move || ask(100, Change::Lease { ino, write }))
    };
    // Again, until the request has come before it.
    eventually("the request is refused", || {
        ask(200, Change::Release { ino }).unwrap();
        lease.is_finished()
    });
    assert_eq!(lease.join().unwrap(), Err(Refused(Errno::AGAIN)));
    holder.change(Change::Release { ino }).unwrap();
}

#[test]
fn who_asked_to_write_in_vain_has_no_lease_to_read() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/f").unwrap();
    file.write_at(0, b"old").unwrap();
    file.sync().unwrap();
    // Somebody else reads it, and does not hear that the lease is called back.
    let (reader, _) = MetaClient::connect(&cluster.address, &FsOptions::default()).unwrap();
    let ino = file.ino();
    let write = false;
    reader.change(Change::Lease { ino, write }).unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"old");
    between.lose(Some(Kind::WriteLease));
    assert!(file.write_at(0, b"mine").is_err());
    between.lose(None);
    // An error where its session has ended meanwhile: then the lease has, too.
    let _ = reader.change(Change::Release { ino });

    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    theirs.set_len(0).unwrap();
    theirs.write_at(0, b"new, and longer").unwrap();
    theirs.sync().unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"new, and longer");
}

/// A thread that makes `/f`, which the server has done, and has not heard of that yet.
fn made_unheard(between: &Between, system: &FileSystem) -> std::thread::JoinHandle<File> {
    between.hold(Some(Kind::Make));
    let system = system.clone();
    let maker = std::thread::spawn(move || system.create_new("/f").unwrap());
    eventually("the file is made", || between.holds_one());
    maker
}

#[test]
fn a_file_that_another_thread_finds_before_its_maker_is_the_same() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let maker = made_unheard(&between, &system);
    let found = system.open("/f").unwrap();
    found.write_at(0, b"written").unwrap();
    between.hold(None);
    let made = maker.join().unwrap();
    found.sync().unwrap();
    assert_eq!(made.read_at(0, 100).unwrap(), b"written");
    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    assert_eq!(theirs.read_at(0, 100).unwrap(), b"written");
    drop((theirs, other));
    // Each of both has it open.
    assert_eq!(made.read_at(0, 100).unwrap(), b"written");
    drop(found);
    system.remove("/f").unwrap();
    assert_eq!(made.read_at(0, 100).unwrap(), b"written");
}

#[test]
fn extents_of_an_ended_session_are_not_written_in_the_next_one() {
    // Short, because a client hears of its session's end after a quarter of it.
    let cluster = Cluster::new(1, 16 << 20, Duration::from_secs(2));
    let between = Between::new(&cluster);
    let system = between.client();
    let (first, second) = (system.create_new("/1"), system.create_new("/2"));
    let (first, second) = (first.unwrap(), second.unwrap());
    // All 4 MiB that a session reserves at once.
    first.write_at(0, &vec![1; 4 << 20]).unwrap();
    between.hold(Some(Kind::Reserve));
    let ended = system.meta().session();
    std::thread::scope(|scope| {
        scope.spawn(|| second.write_at(0, b"waits for extents"));
        eventually("it waits", || between.holds_one());
        between.end(ended);
        eventually("another session", || system.meta().session() != ended);
        // Gives back what was written, while the next session's begin waits for those who use the ended one's extents.
        scope.spawn(|| first.set_len(0));
        // Nothing shows that a thread waits for a lock; one that is late finds the next session, and there is no fault.
        std::thread::sleep(Duration::from_millis(100));
        between.hold(None);
    });
    // Who has the ended session's extents now keeps what is written there: one who takes all but the next session's.
    let other = cluster.client();
    let theirs = other.create_new("/3").unwrap();
    let bytes = vec![3; 12 << 20];
    eventually("another client's file is synced", || {
        let written = theirs.write_at(0, &bytes);
        written.and_then(|()| theirs.sync()).is_ok()
    });
    // Its session may have ended once more, with its extents.
    let _ = second.write_at(0, &vec![2; 4 << 20]);
    assert!(theirs.read_at(0, bytes.len()).unwrap() == bytes);
    drop((first, second, system, theirs, other));
    drop(between);
    cluster.check();
}

#[test]
fn a_file_that_is_removed_while_another_is_made_leaves_no_error() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/f").unwrap();
    between.hold(Some(Kind::Make));
    let maker = std::thread::spawn({
        let system = system.clone();
        move || system.create_new("/g").unwrap()
    });
    eventually("another file is made", || between.holds_one());
    file.write_at(0, b"nobody will miss it").unwrap();
    drop(file);
    system.remove("/f").unwrap();
    let synced = system.sync_all();
    between.hold(None);
    maker.join().unwrap();
    synced.unwrap();
}

#[test]
fn a_lease_without_its_map_is_given_back() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let (system, other) = (between.client(), cluster.client());
    let before = other.space().unwrap().files;
    for name in ["/mine", "/theirs"] {
        let file = other.create_new(name).unwrap();
        file.write_at(0, b"written").unwrap();
        file.sync().unwrap();
    }
    between.lose(Some(Kind::Map));
    assert!(system.open("/mine").is_err());
    assert!(system.open("/theirs").is_err());
    between.lose(None);
    // What nobody has open and has no name is gone at once where its client hears of it, and else after a while.
    system.remove("/mine").unwrap();
    other.remove("/theirs").unwrap();
    eventually("files without a name are gone", || {
        other.space().unwrap().files == before
    });
}

#[test]
fn who_makes_a_file_that_was_closed_meanwhile_does_not_have_its_lease() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let maker = made_unheard(&between, &system);
    let found = system.open("/f").unwrap();
    found.write_at(0, b"old").unwrap();
    drop(found);
    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    assert_eq!(theirs.read_at(0, 100).unwrap(), b"old");
    theirs.write_at(0, b"new, and longer").unwrap();
    theirs.sync().unwrap();
    between.hold(None);
    let made = maker.join().unwrap();
    assert_eq!(made.read_at(0, 100).unwrap(), b"new, and longer");
}

#[test]
fn extents_that_were_not_written_are_used_again() {
    let cluster = Cluster::new(2, 16 << 20, LEASE);
    let between = Between::new(&cluster);
    let system = between.client();
    let file = system.create_new("/f").unwrap();
    // One data server is known to the client, and has the first half of the extents that it reserves.
    file.write_at(0, &[1; EXTENT_BYTES as usize]).unwrap();
    let rest = vec![2; (8 << 20) - EXTENT_BYTES as usize];
    between.lose(Some(Kind::Servers));
    assert!(file.write_at(EXTENT_BYTES, &rest).is_err());
    let free = system.space().unwrap().free;
    assert!(file.write_at(EXTENT_BYTES, &rest).is_err());
    between.lose(None);
    file.write_at(EXTENT_BYTES, &rest).unwrap();
    file.sync().unwrap();
    assert_eq!(system.space().unwrap().free, free);
    assert!(file.read_at(EXTENT_BYTES, rest.len()).unwrap() == rest);
    drop((file, system));
    drop(between);
    assert_eq!(cluster.check().mapped, 256);
}
