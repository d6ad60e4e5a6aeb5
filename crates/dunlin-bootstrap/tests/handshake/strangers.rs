//! What someone who is not a client can do to a server: nothing that a client would notice.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use dunlin_bootstrap::{dial, Acceptor, AcceptorConfig, BootstrapError, StopHandle};

use crate::harness::*;

fn impatient() -> AcceptorConfig {
    AcceptorConfig {
        handshake_timeout: Duration::from_millis(300),
        ..serving()
    }
}

#[test]
fn random_bytes_are_counted_and_closed() {
    let server = Server::new(serving());
    let garbage: Vec<u8> = (0..100_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let beginnings: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: db1\r\n\r\n",
        &garbage,
        &[0; 4],
        &[9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        &[0xff; 64],
        &[
            16, 0, 0, 0, 0x89, b'D', b'U', b'N', b'L', b'I', b'N', 1, 1, 0, 0, 0, 0, 0, 0, 0,
        ],
    ];
    for (index, bytes) in beginnings.iter().enumerate() {
        let mut stream = server.stranger();
        // The server may close before all is written.
        let _ = stream.write_all(bytes);
        is_closed(&mut stream);
        server.wait_for("counted", |counts| counts.malformed == index as u64 + 1);
    }
    server.is_well(&dialing());
}

#[test]
fn a_hello_that_is_cut_or_continued_is_refused() {
    let server = Server::new(serving());
    let hello = client_hello();
    for frame in [
        &hello[..hello.len() - 1],
        &hello[..10],
        &[&hello[..], &[0]].concat(),
    ] {
        let mut stream = server.stranger();
        send(&mut stream, frame);
        is_closed(&mut stream);
    }
    server.wait_for("three malformed", |counts| counts.malformed == 3);

    // Gone in the middle of the hello, at every byte of it.
    for end in 0..hello.len() {
        let mut stream = server.stranger();
        stream
            .write_all(&u32::try_from(hello.len()).unwrap().to_le_bytes())
            .unwrap();
        stream.write_all(&hello[..end]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        is_closed(&mut stream);
    }
    let gone = hello.len() as u64;
    server.wait_for("all gone", |counts| counts.closed == gone);
    server.is_well(&dialing());
}

#[test]
fn an_open_request_that_is_not_one_is_refused() {
    let server = Server::new(serving());
    for frame in [&b""[..], &[0], &[1, 2, 3], &[0, 9, 9, 9], &[7; 100]] {
        let mut stream = server.stranger();
        send(&mut stream, &client_hello());
        receive(&mut stream);
        send(&mut stream, frame);
        receive(&mut stream);
        is_closed(&mut stream);
    }
    let mut stream = server.stranger();
    send(&mut stream, &client_hello());
    receive(&mut stream);
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    receive(&mut stream);
    is_closed(&mut stream);
    server.wait_for("six malformed", |counts| counts.malformed == 6);
    server.is_well(&dialing());
}

#[test]
fn silence_is_closed_and_blocks_nobody() {
    let server = Server::new(serving());
    // Their handshakes last a minute, longer than this test.
    let silent: Vec<_> = (0..40).map(|_| server.stranger()).collect();
    let mut slow = server.stranger();
    slow.write_all(&[40]).unwrap();
    server.wait_for("all accepted", |counts| counts.accepted == 41);
    (0..10).for_each(|_| server.is_well(&dialing()));
    assert_eq!(server.acceptor.counters().too_slow, 0);
    drop(silent);
    server.wait_for("the silent gone", |counts| counts.closed == 40);

    let server = Server::new(AcceptorConfig {
        handshake_timeout: Duration::from_secs(3),
        ..serving()
    });
    let mut silent = server.stranger();
    let mut half = server.stranger();
    send(&mut half, &client_hello());
    receive(&mut half);
    is_closed(&mut silent);
    assert!(!receive(&mut half).is_empty(), "who has said hello is told");
    is_closed(&mut half);
    server.wait_for("both too slow", |counts| counts.too_slow == 2);
}

#[test]
fn a_trickle_gains_no_time() {
    let server = Server::new(impatient());
    let mut stream = server.stranger();
    let hello = client_hello();
    let mut bytes = u32::try_from(hello.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(&hello);
    // One byte each 50 ms is 4 seconds for all of it; the server closes long before, so a write fails.
    for byte in bytes {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    server.wait_for("too slow", |counts| counts.too_slow == 1);
    assert_eq!(server.acceptor.counters().opened, 0);
}

#[test]
fn more_than_the_limit_wait_until_somebody_is_late() {
    let server = Server::new(AcceptorConfig {
        max_pending: 3,
        ..serving()
    });
    // Their open requests may take a minute while nobody else wants their places.
    let held: Vec<_> = (0..3)
        .map(|_| dial(server.address(), &dialing()).unwrap())
        .collect();
    assert_eq!(server.acceptor.counters().busy, 0);
    server.is_well(&dialing());
    // Each newcomer has made one of them go; a client that had to go comes again with its request.
    (0..5).for_each(|_| server.is_well(&dialing()));
    let busy = server.acceptor.counters().busy;
    assert!((1..=3).contains(&busy), "{busy} had to leave");
    for dialed in held {
        assert_eq!(dialed.open(request()).unwrap().endpoint, endpoint(18));
    }

    // Without time to come again it is told why.
    let mut impatient = dialing();
    impatient.timeout = Duration::from_secs(3);
    let late = dial(server.address(), &impatient).unwrap();
    let held: Vec<_> = (0..3)
        .map(|_| dial(server.address(), &dialing()).unwrap())
        .collect();
    std::thread::sleep(impatient.timeout);
    let error = late.open(request()).unwrap_err();
    assert!(matches!(error, BootstrapError::Timeout { .. }), "{error}");
    drop(held);
}

#[test]
fn silence_takes_nobodys_place() {
    let server = Server::new(AcceptorConfig {
        max_pending: 3,
        ..serving()
    });
    let mut silent: Vec<_> = (0..30).map(|_| server.stranger()).collect();
    server.wait_for("all accepted", |counts| counts.accepted == 30);
    // All places are taken for a minute, by clients that say nothing: they have to make room.
    (0..10).for_each(|_| server.is_well(&dialing()));
    assert!(!receive(&mut silent[0]).is_empty(), "it is told");
    is_closed(&mut silent[0]);
    assert_eq!(server.acceptor.counters().too_slow, 0);
}

/// Times that a thread has been switched to and clock ticks that it has used, and whether it sleeps.
fn activity(thread: &std::path::Path) -> (Vec<String>, bool) {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = fields[11..13].iter().copied();
    (
        switches.chain(ticks).map(str::to_owned).collect(),
        fields[0] == "S",
    )
}

#[test]
fn an_idle_server_is_asleep() {
    let acceptor = Acceptor::bind(&"127.0.0.1:0".parse().unwrap(), serving()).unwrap();
    let stop = StopHandle::new().unwrap();
    let (report, reported) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            report
                .send(std::fs::read_link("/proc/thread-self").unwrap())
                .unwrap();
            acceptor.run(&stop, echo).unwrap();
        });
        let thread = std::path::Path::new("/proc").join(reported.recv().unwrap());
        // A loop that polled would be seen to run in each of these intervals.
        let quiet = (0..100).any(|_| {
            let (before, _) = activity(&thread);
            std::thread::sleep(Duration::from_millis(200));
            let (after, sleeps) = activity(&thread);
            sleeps && before == after
        });
        stop.stop();
        assert!(quiet, "the accept loop never slept");
    });
}
