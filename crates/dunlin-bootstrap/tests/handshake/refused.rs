//! What a server or the system refuses, and how it says so.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dunlin_bootstrap::wire::{self, ParseError};
use dunlin_bootstrap::{
    dial, dial_until, Acceptor, AcceptorConfig, Address, BootstrapError, Capability, DialConfig,
    HostId, Peer, Reach, Refusal, StopHandle,
};

use crate::harness::*;

/// A listener that answers the first client with these bytes.
fn impostor(answer: &'static [u8]) -> (Address, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        receive(&mut stream);
        stream.write_all(answer).unwrap();
    });
    (address, thread)
}

fn meets(answer: &'static [u8]) -> BootstrapError {
    let (address, thread) = impostor(answer);
    let error = dial(&address, &dialing()).unwrap_err();
    thread.join().unwrap();
    error
}

#[test]
fn a_port_in_use() {
    let server = Server::new(serving());
    let error = Acceptor::bind(server.address(), serving()).unwrap_err();
    assert!(
        matches!(&error, BootstrapError::AddressInUse { address } if address == server.address())
    );
    assert!(error.to_string().contains("in use"));
}

#[test]
fn a_host_that_is_not_known() {
    let address = "no-such-host.invalid:1".parse().unwrap();
    let error = dial(&address, &dialing()).unwrap_err();
    assert!(
        matches!(error, BootstrapError::UnknownHost { .. }),
        "{error}"
    );
}

#[test]
fn a_server_of_something_else() {
    let error = meets(b"SSH-2.0-OpenSSH_9.2p1\r\n");
    assert!(matches!(error, BootstrapError::NotDunlin { .. }), "{error}");
    let error = meets(b"\x0e\0\0\0HTTP/1.1 400 Bad");
    assert!(matches!(error, BootstrapError::NotDunlin { .. }), "{error}");
    let error = meets(b"");
    assert!(matches!(error, BootstrapError::Closed { .. }), "{error}");
}

#[test]
fn a_server_of_another_version() {
    let error = meets(b"\x0a\0\0\0\x89DUNLIN\0\x09\x01");
    assert!(
        matches!(
            error,
            BootstrapError::Version {
                ours: wire::VERSION,
                theirs: 0x0109,
                ..
            }
        ),
        "{error}"
    );
    let ours = format!("version {} ", wire::VERSION);
    assert!(error.to_string().contains(&ours) && error.to_string().contains("version 265"));
}

#[test]
fn a_client_of_another_version() {
    let server = Server::new(serving());
    let mut stream = server.stranger();
    let mut hello = wire::MAGIC.to_vec();
    hello.extend_from_slice(&9_u16.to_le_bytes());
    hello.extend_from_slice(b"what version 9 says");
    send(&mut stream, &hello);
    let answer = receive(&mut stream);
    assert_eq!(
        answer,
        [&wire::MAGIC[..], &wire::VERSION.to_le_bytes()].concat()
    );
    is_closed(&mut stream);
    server.wait_for("the version", |counts| counts.version == 1);
    server.is_well(&dialing());
}

#[test]
fn another_host_is_told_so() {
    let reach = Reach::SameHost(HostId::from_bytes([9; 16]));
    let mut config = dialing();
    config.capabilities = vec![Capability {
        device: "shm".into(),
        reach,
    }];
    let server = Server::new(serving());
    let error = dial(server.address(), &config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::NoCommonDevice { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("no device in common"), "{error}");
    server.wait_for("the refusal", |counts| counts.no_common_device == 1);
}

#[test]
fn a_device_that_the_client_or_the_server_lacks() {
    let server = Server::new(serving());
    let mut config = dialing();
    config.device = Some("roce".into());
    let error = dial(server.address(), &config).unwrap_err().to_string();
    assert!(
        error.contains("client does not have the device `roce`"),
        "{error}"
    );
    config.capabilities.push(network("roce"));
    let error = dial(server.address(), &config).unwrap_err().to_string();
    assert!(
        error.contains("server does not have the device `roce`"),
        "{error}"
    );
    assert!(
        error.contains("of the client: shm (same host only), roce"),
        "{error}"
    );
    config.device = Some(String::new());
    let error = dial(server.address(), &config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::Limit(ParseError::Name { .. })),
        "{error}"
    );
}

#[test]
fn the_layer_above_says_no() {
    let server = Server::opening(serving(), |request, _| {
        Err(match request.parameters.len() {
            0 => Refusal::Limit {
                name: "connections".into(),
                limit: 7,
            },
            1 => Refusal::UnknownPreset {
                asked: request.preset,
                known: vec!["plain".into()],
            },
            2 => Refusal::rejected(format!("line\none {}", "long ".repeat(1000))),
            _ => panic!("the opening breaks"),
        })
    });
    let open = |parameters: u64| {
        let mut request = request();
        request.parameters = (0..parameters).map(|at| (at.to_string(), at)).collect();
        match dial(server.address(), &dialing())
            .unwrap()
            .open(request)
            .unwrap_err()
        {
            BootstrapError::Refused { refusal, .. } => refusal.to_string(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(open(0), "limit reached: the server allows 7 connections");
    assert_eq!(
        open(1),
        "the server does not support the preset `plain`; it supports: plain"
    );
    assert!(open(2).starts_with("the server refused: line one long long"));
    assert!(open(3).contains("the server failed"));
    server.wait_for("all refused", |counts| {
        counts.refused == 4 && counts.opened == 0
    });
}

#[test]
fn a_reply_or_request_over_the_limits() {
    let server = Server::opening(serving(), |request, _| {
        let mut reply = echo(request, Peer::default())?;
        reply
            .parameters
            .extend((0..100).map(|at| (at.to_string(), at)));
        Ok(reply)
    });
    let error = server.open(&dialing()).unwrap_err();
    assert!(
        matches!(
            error,
            BootstrapError::Refused {
                refusal: Refusal::Failed,
                ..
            }
        ),
        "{error}"
    );

    let mut large = request();
    large
        .parameters
        .extend((0..100).map(|at| (at.to_string(), at)));
    let error = dial(server.address(), &dialing())
        .unwrap()
        .open(large)
        .unwrap_err();
    assert!(matches!(
        error,
        BootstrapError::Limit(ParseError::TooMany { limit: 64, .. })
    ));
    let mut named = request();
    named.preset = "p".repeat(65);
    let error = dial(server.address(), &dialing())
        .unwrap()
        .open(named)
        .unwrap_err();
    assert!(
        matches!(error, BootstrapError::Limit(ParseError::Name { .. })),
        "{error}"
    );

    let capabilities = vec![shm(); 17];
    let error = Acceptor::bind(
        &"127.0.0.1:0".parse().unwrap(),
        AcceptorConfig {
            capabilities,
            ..serving()
        },
    );
    assert!(matches!(
        error,
        Err(BootstrapError::Limit(ParseError::TooMany { limit: 16, .. }))
    ));
}

#[test]
fn a_server_that_does_not_answer() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let server = Server::opening(serving(), move |request, _| {
        let _ = held.lock().unwrap().recv();
        echo(request, Peer::default())
    });
    let mut config = dialing();
    config.timeout = Duration::from_secs(3);
    let error = server.open(&config).unwrap_err();
    assert!(matches!(error, BootstrapError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("open request"), "{error}");
    drop(release);
    config.timeout = Duration::from_millis(200);

    // A listener that never accepts: the system connects, nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = dial(&silent.local_addr().unwrap().into(), &config).unwrap_err();
    assert!(matches!(error, BootstrapError::Timeout { .. }), "{error}");
    assert!(
        error.to_string().contains("waiting for the server's hello"),
        "{error}"
    );
}

#[test]
fn one_deadline_holds_for_the_hellos_and_the_open_request() {
    let server = Server::new(serving());
    let deadline = Instant::now() + Duration::from_secs(5);
    // The timeout is a minute; the caller's deadline ends first.
    let dialed = dial_until(server.address(), &dialing(), deadline).unwrap();
    let timeout = Duration::from_secs(6);
    let shorter = DialConfig {
        timeout,
        ..dialing()
    };
    let late = dial_until(server.address(), &shorter, deadline + 2 * PATIENCE).unwrap();
    thread::sleep(timeout);
    for (dialed, most) in [(dialed, Duration::from_secs(5)), (late, timeout)] {
        // The server would answer; the caller has no time left to ask.
        let error = dialed.open(request()).unwrap_err();
        let BootstrapError::Timeout { timeout, .. } = error else {
            panic!("{error}");
        };
        assert!(timeout <= most, "{timeout:?}");
    }
    let error = dial_until(server.address(), &dialing(), deadline).unwrap_err();
    assert!(matches!(error, BootstrapError::Timeout { .. }), "{error}");
}

#[test]
fn a_stop_ends_the_handshakes_that_wait() {
    let mut server = Server::new(serving());
    let dialed = dial(server.address(), &dialing()).unwrap();
    let mut silent = server.stranger();
    server.wait_for("both accepted", |counts| counts.accepted == 2);
    // With a handshake timeout of a minute, this returns only because the stop cuts both short.
    server.stop();
    is_closed(&mut silent);
    let error = dialed.open(request()).unwrap_err();
    let refusal = Refusal::ShuttingDown;
    assert!(
        matches!(&error, BootstrapError::Refused { refusal: said, .. } if *said == refusal),
        "{error}"
    );
    assert!(StopHandle::new().is_ok_and(|fresh| !fresh.is_stopped()) && server.stop.is_stopped());
}
