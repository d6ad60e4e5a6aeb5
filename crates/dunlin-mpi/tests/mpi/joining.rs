//! How ranks join: what differs is refused, and whoever is missing is named.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use dunlin_bootstrap::{dial, DialConfig, OpenRequest};
use dunlin_mpi::{run_threads, BootstrapError, JoinError, Rendezvous, Secret, Settings, World};

const ANYWHERE: &str = "dunlin://127.0.0.1:0";

fn short() -> Settings {
    Settings::default().join_timeout(Duration::from_millis(300))
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let root = Rendezvous::bind(ANYWHERE, 3, &short()).unwrap();
    let error = root.join().unwrap_err();
    let JoinError::Timeout { missing, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(missing, [1, 2]);
}

#[test]
fn a_rendezvous_that_does_not_come_is_named() {
    // A port that nobody listens on: it was just given back.
    let free = Rendezvous::bind(ANYWHERE, 2, &short()).unwrap();
    let address = free.address().to_string();
    drop(free);
    let error = World::join(1, 2, &address, &short()).unwrap_err();
    assert!(
        matches!(&error, JoinError::Timeout { missing, .. } if missing == &[0]),
        "{error}"
    );
    // With what would help.
    assert!(
        error.to_string().contains("no server listens at"),
        "{error}"
    );
}

/// Lets rank 1 of 2 join with settings other than those of rank 0; returns its error.
fn error(ours: &Settings, theirs: &Settings) -> JoinError {
    let root = Rendezvous::bind(ANYWHERE, 2, ours).unwrap();
    World::join(1, 2, &root.address().to_string(), theirs).unwrap_err()
}

fn refused(ours: &Settings, theirs: &Settings) -> String {
    error(ours, theirs).to_string()
}

#[test]
fn differences_are_refused() {
    let secret = |text: &str| Secret::new(text).unwrap();
    let known = Settings::default().secret(secret("a"));
    let without = error(&known, &Settings::default());
    assert!(
        matches!(
            without,
            JoinError::Bootstrap(BootstrapError::SecretRequired { .. })
        ),
        "{without}"
    );
    let other = error(&known, &Settings::default().secret(secret("b")));
    assert!(
        matches!(
            other,
            JoinError::Bootstrap(BootstrapError::WrongSecret { .. })
        ),
        "{other}"
    );
    assert!(refused(&Settings::default(), &Settings::default().job(5)).contains("`job`"));
    assert!(
        refused(&Settings::default(), &Settings::default().eager_bytes(99)).contains("`eager`")
    );
    assert!(refused(
        &Settings::default(),
        &Settings::default().ring_bytes(1 << 15).eager_bytes(16 << 8)
    )
    .contains("eager"));
    assert!(refused(
        &Settings::default(),
        &Settings::default().ring_bytes(1 << 20)
    )
    .contains("slots"));
    let root = Rendezvous::bind(ANYWHERE, 2, &Settings::default()).unwrap();
    let address = root.address().to_string();
    assert!(World::join(2, 3, &address, &Settings::default()).is_err());
    assert!(World::join(2, 2, &address, &Settings::default()).is_err());
}

/// A process that ends or starts again closes connections that it has accepted; that says nothing about the next.
#[test]
fn a_connection_that_closes_is_tried_again() {
    let root = Rendezvous::bind(ANYWHERE, 2, &Settings::default()).unwrap();
    let behind = root.address().to_string();
    let behind = behind.strip_prefix("dunlin://").unwrap().to_owned();
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("dunlin://{}", front.local_addr().unwrap());
    // Not a scoped thread: when the rank does not come again, it waits for ever.
    std::thread::spawn(move || {
        drop(front.accept().unwrap());
        let (near, _) = front.accept().unwrap();
        let far = TcpStream::connect(behind).unwrap();
        for (mut from, mut to) in [(&near, &far), (&far, &near)].map(|(from, to)| {
            let again = |one: &TcpStream| one.try_clone().unwrap();
            (again(from), again(to))
        }) {
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| root.join()?.finalize().map_err(JoinError::from));
        let second = World::join(1, 2, &address, &Settings::default());
        second.unwrap().finalize().unwrap();
        first.join().unwrap().unwrap();
    });
}

/// A build whose messages are of another version says so before anything else.
#[test]
fn ranks_of_another_version_are_refused_with_both_versions() {
    let root = Rendezvous::bind(ANYWHERE, 2, &Settings::default()).unwrap();
    let config = DialConfig {
        capabilities: dunlin_rpc::capabilities_towards(None).unwrap().0,
        ..DialConfig::default()
    };
    for (theirs, said) in [(Some(77), "77"), (None, "none")] {
        let parameters = [("rank", Some(1)), ("version", theirs)].into_iter();
        let parameters = parameters.filter_map(|(name, number)| Some((name.to_owned(), number?)));
        let dialed = dial(root.address(), &config).unwrap();
        let refused = dialed.open(OpenRequest {
            device: String::new(),
            preset: "mpi".to_owned(),
            endpoint: dunlin_verbs::EndpointAddress::decode(&[0; 48]),
            parameters: parameters.collect(),
        });
        let refused = refused.unwrap_err().to_string();
        let versions = format!("version 1 of the messages between ranks, rank 1 version {said}");
        assert!(refused.contains(&versions), "{refused}");
    }
}

#[test]
fn a_rank_can_join_once() {
    // The one that is admitted waits for rank 2 until its time limit, which must be long enough to join.
    let settings = Settings::default().join_timeout(Duration::from_secs(5));
    let root = Rendezvous::bind(ANYWHERE, 3, &settings).unwrap();
    let address = root.address().to_string();
    let join = || {
        World::join(1, 3, &address, &settings)
            .unwrap_err()
            .to_string()
    };
    let errors = std::thread::scope(|scope| {
        let both = [scope.spawn(join), scope.spawn(join)];
        both.map(|one| one.join().unwrap())
    });
    assert!(
        errors.iter().any(|one| one.contains("has joined already")),
        "{errors:?}"
    );
}

#[test]
fn a_job_with_a_secret_assembles() {
    let settings = Settings::default()
        .secret(Secret::new("known to all").unwrap())
        .job(9);
    let ranks = run_threads(4, &settings, |mut world| {
        world.barrier().unwrap();
        world.rank()
    });
    assert_eq!(ranks.unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_job_of_one_needs_nobody() {
    let mut world = World::join(0, 1, ANYWHERE, &Settings::default()).unwrap();
    world.send(0, 1, b"me").unwrap();
    let mut buffer = [0; 2];
    world.receive(0, 1, &mut buffer).unwrap();
    world.broadcast(0, &mut buffer).unwrap();
    assert_eq!(&buffer, b"me");
    world.finalize().unwrap();
}
