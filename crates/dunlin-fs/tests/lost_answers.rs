//! Changes that the metadata server makes and whose answers do not come: a client neither gives one file's extents to
//! another nor keeps a lease that is another's by now.

mod common;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{eventually, Cluster};
use dunlin::{Client, HandlerError, RunningServer, Server};
use dunlin_fs::types::EXTENT_BYTES;
use dunlin_fs::wire::{decode, meta, Change, Envelope};
use dunlin_fs::FileSystem;

const LEASE: Duration = Duration::from_secs(10);
const NOTHING: u8 = 0;
const COMMITS: u8 = 1;
const RELEASES: u8 = 2;

/// What stands between a client and the metadata server: it hands all on, and loses some answers.
struct Between {
    server: RunningServer,
    loses: Arc<AtomicU8>,
    lost: Arc<AtomicUsize>,
}

impl Between {
    fn new(cluster: &Cluster) -> Self {
        let loses = Arc::new(AtomicU8::new(NOTHING));
        let lost = Arc::new(AtomicUsize::new(0));
        let client = Client::builder().connect(&cluster.address).unwrap();
        let mut server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        for handler in [
            meta::ASK,
            meta::ASK_DURABLE,
            meta::CHANGE,
            meta::HELLO,
            meta::WATCH,
        ] {
            let client = client.within(LEASE);
            let (loses, lost) = (Arc::clone(&loses), Arc::clone(&lost));
            server = server.handle_deferred(handler, move |request, responder| {
                let payload = request.payload().to_vec();
                let (client, loses, lost) = (client.clone(), loses.clone(), Arc::clone(&lost));
                std::thread::spawn(move || {
                    let answer = client.call(handler, &payload);
                    let is_lost = handler == meta::CHANGE
                        && matches!(
                            (
                                decode::<Envelope<'_>>(&payload).map(|it| it.change),
                                loses.load(Ordering::SeqCst)
                            ),
                            (Some(Change::Commit { .. }), COMMITS)
                                | (Some(Change::Release { .. }), RELEASES)
                        );
                    match answer {
                        Ok(answer) if !is_lost => responder.reply(answer.to_vec()),
                        _ => {
                            lost.fetch_add(usize::from(is_lost), Ordering::SeqCst);
                            responder.fail(HandlerError::new(9, "no answer"));
                        }
                    }
                });
            });
        }
        let server = server.serve().unwrap();
        Self {
            server,
            loses,
            lost,
        }
    }

    fn client(&self) -> FileSystem {
        let system = FileSystem::connect(&self.server.address().to_string()).unwrap();
        eventually("the data servers are known", || {
            system.space().unwrap().bytes > 0
        });
        system
    }

    fn lose(&self, what: u8) {
        self.loses.store(what, Ordering::SeqCst);
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
    between.lose(COMMITS);
    assert!(file.sync().is_err());
    between.lose(NOTHING);
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
    between.lose(COMMITS);
    assert!(file.sync().is_err());
    // Nothing of it is to be written any more, as far as this client knows.
    file.set_len(0).unwrap();
    let second = system.create_new("/second").unwrap();
    let others = vec![2; bytes.len()];
    second.write_at(0, &others).unwrap();
    // Another client sees the file as it was committed, or as it was cut since; never the second one's bytes.
    between.lose(NOTHING);
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
    between.lose(RELEASES);
    drop(file);
    eventually("the lease of a closed file is given back", || {
        between.lost.load(Ordering::SeqCst) > 0
    });

    let other = cluster.client();
    let theirs = other.open("/f").unwrap();
    theirs.write_at(0, b"new, and longer").unwrap();
    theirs.sync().unwrap();
    drop((theirs, other));
    let again = system.open("/f").unwrap();
    assert_eq!(again.read_at(0, 100).unwrap(), b"new, and longer");
    between.lose(NOTHING);
}
