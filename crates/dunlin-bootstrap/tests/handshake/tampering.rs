//! Someone between the two who changes, replays or reflects what is said.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dunlin_bootstrap::wire;
use dunlin_bootstrap::{
    dial, AcceptorConfig, Address, BootstrapError, DialConfig, OpenReply, Peer,
};

use crate::harness::*;

/// Passes four frames between a client and the server, the one with this number through `change`.
fn between(
    server: &Server,
    number: usize,
    change: impl Fn(&mut Vec<u8>) + Send,
    config: &DialConfig,
) -> Result<OpenReply, BootstrapError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut upstream = server.stranger();
            for step in 0..4 {
                let (from, to) = match step % 2 {
                    0 => (&mut client, &mut upstream),
                    _ => (&mut upstream, &mut client),
                };
                let Some(mut frame) = pass(from) else { return };
                if step == number {
                    change(&mut frame);
                }
                // Whoever has noticed is gone already.
                let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
                if to.write_all(&[&length, &frame[..]].concat()).is_err() {
                    return;
                }
            }
        });
        dial(&address, config)?.open(request())
    })
}

fn pass(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut byte = [0];
    match from.peek(&mut byte) {
        Ok(1) => Some(receive(from)),
        _ => None,
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let config = AcceptorConfig {
        secret: secret("s"),
        ..serving()
    };
    let server = Server::opening(config, |request, _| {
        // What the server is told is what the client said, or it is not told at all.
        assert_eq!(request.endpoint, endpoint(17));
        OPENED.fetch_add(1, Ordering::Relaxed);
        echo(request, Peer::default())
    });
    let mut client = dialing();
    client.secret = secret("s");
    assert!(
        between(&server, 9, |_| (), &client).is_ok(),
        "who changes nothing is not noticed"
    );

    for number in 0..4 {
        let before = OPENED.load(Ordering::Relaxed);
        let mut at = 0;
        loop {
            let length = AtomicU64::new(0);
            let change = |frame: &mut Vec<u8>| {
                length.store(frame.len() as u64, Ordering::Relaxed);
                frame[at] ^= 1 << (at % 8);
            };
            let outcome = between(&server, number, change, &client);
            assert!(
                outcome.is_err(),
                "byte {at} of frame {number} was changed unnoticed"
            );
            at += 7;
            if at as u64 >= length.load(Ordering::Relaxed) {
                break;
            }
        }
        let opened = OPENED.load(Ordering::Relaxed) > before;
        assert_eq!(
            opened,
            number == 3,
            "only a changed reply comes after the opening"
        );
    }
}

#[test]
fn a_server_cannot_be_played_back() {
    let server = Server::new(AcceptorConfig {
        secret: secret("s"),
        ..serving()
    });
    let mut client = dialing();
    client.secret = secret("s");
    let recorded = std::sync::Mutex::new(Vec::new());
    between(
        &server,
        1,
        |frame| recorded.lock().unwrap().clone_from(frame),
        &client,
    )
    .unwrap();
    let replay = |frame: &mut Vec<u8>| frame.clone_from(&recorded.lock().unwrap());
    let error = between(&server, 1, replay, &client).unwrap_err();
    assert!(
        matches!(error, BootstrapError::WrongSecret { .. }),
        "{error}"
    );
}

#[test]
fn a_client_cannot_be_played_back() {
    let server = Server::new(AcceptorConfig {
        secret: secret("s"),
        ..serving()
    });
    let mut client = dialing();
    client.secret = secret("s");
    let recorded = std::sync::Mutex::new([Vec::new(), Vec::new()]);
    for (step, number) in [0, 2].into_iter().enumerate() {
        let record = |frame: &mut Vec<u8>| recorded.lock().unwrap()[step].clone_from(frame);
        between(&server, number, record, &client).unwrap();
    }
    server.wait_for("both opened", |counts| counts.opened == 2);
    let [hello, open] = recorded.into_inner().unwrap();
    let mut stream = server.stranger();
    send(&mut stream, &hello);
    receive(&mut stream);
    send(&mut stream, &open);
    let reply = wire::parse_open_reply(&receive(&mut stream)).unwrap();
    assert!(
        matches!(reply.message, wire::Outcome::Refused(_)),
        "{reply:?}"
    );
    server.wait_for("refused", |counts| {
        counts.wrong_secret == 1 && counts.opened == 2
    });
}

#[test]
fn the_secret_is_never_sent() {
    let server = Server::new(AcceptorConfig {
        secret: secret("correct horse"),
        ..serving()
    });
    let mut client = dialing();
    client.secret = secret("correct horse");
    for number in 0..4 {
        let look = |frame: &mut Vec<u8>| {
            assert!(
                !frame.windows(7).any(|window| window == b"correct"),
                "frame {number}"
            );
        };
        between(&server, number, look, &client).unwrap();
    }
}

#[test]
fn a_server_that_has_no_secret_cannot_pretend() {
    // Somebody in between says that no secret is needed; the client has one and does not go on.
    let server = Server::new(serving());
    let mut client = dialing();
    client.secret = secret("s");
    let strip = |frame: &mut Vec<u8>| {
        let mut hello = wire::parse_client_hello(frame).unwrap();
        hello.has_secret = false;
        *frame = wire::encode_client_hello(&hello).unwrap();
    };
    let error = between(&server, 0, strip, &client).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretUnexpected { .. }),
        "{error}"
    );
    assert!(dial(server.address(), &dialing()).is_ok());
}
