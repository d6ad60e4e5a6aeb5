//! One thread with outstanding calls to several servers, on shared memory.

use std::time::Duration;

use dunlin_rpc::{CallError, Client, Peers, Preset, RunningServer, Server};

const NAME: u16 = 1;

fn serve(name: u8) -> RunningServer {
    Server::unbound()
        .device("shm")
        .handle(NAME, move |request, reply| {
            let mut answer = vec![name];
            answer.extend_from_slice(request.payload());
            reply.write(&answer)
        })
        .serve_at("dunlin://127.0.0.1:0")
        .unwrap()
}

fn connect(server: &RunningServer, preset: Preset) -> Client {
    let client = Client::builder().preset(preset).device("shm");
    let client = client.deadline(Duration::from_secs(20));
    client.connect(&server.address().to_string()).unwrap()
}

/// Each call is answered by the server that it was sent to, with its own bytes, with every preset.
#[test]
fn answers_come_from_whom_was_asked() {
    let servers: Vec<RunningServer> = (0..3).map(serve).collect();
    for &preset in Preset::ALL {
        let clients: Vec<Client> = servers.iter().map(|s| connect(s, preset)).collect();
        let mut peers = Peers::new(&clients).unwrap();
        let mut answered = [0u32; 3];
        let mut tag = 0u64;
        while answered.iter().sum::<u32>() < 300 {
            for peer in 0..3 {
                for _ in 0..4 {
                    if tag < 300 && peers.submit(peer, NAME, &tag.to_le_bytes(), tag).unwrap() {
                        tag += 1;
                    }
                }
            }
            peers
                .wait(|peer, tag, answer| {
                    let answer = answer.unwrap();
                    assert_eq!(answer[0] as usize, peer, "{preset}");
                    assert_eq!(answer[1..], tag.to_le_bytes(), "{preset}");
                    answered[peer] += 1;
                })
                .unwrap();
        }
        assert_eq!((tag, peers.outstanding()), (300, 0), "{preset}");
        assert!(
            answered.iter().all(|&count| count > 0),
            "{preset}: {answered:?}"
        );
    }
}

/// A server that ends fails the calls to it, and no others.
#[test]
fn a_server_that_ends_is_lost_alone() {
    for preset in [Preset::Fasst, Preset::Plain] {
        let (stays, ends) = (serve(0), serve(1));
        let clients = [connect(&stays, preset), connect(&ends, preset)];
        let mut peers = Peers::new(&clients).unwrap();
        for peer in 0..2 {
            assert!(peers.submit(peer, NAME, b"", 0).unwrap());
        }
        let mut answered = 0;
        while answered < 2 {
            let count = |_, _, answer: Result<&[u8], CallError>| {
                assert!(answer.is_ok());
                answered += 1;
            };
            // Servers on a busy machine also report the fate of calls, which counts as messages.
            peers.wait(count).unwrap();
        }
        assert!(ends.shutdown());
        // The client learns of that sooner or later; until then calls may be sent in vain, and end with an error.
        let refused = loop {
            match peers.submit(1, NAME, b"", 1) {
                Ok(_) => {
                    let _ = peers.wait(|_, _, _| {});
                }
                Err(error) => break error,
            }
        };
        assert!(
            matches!(
                refused,
                CallError::ShuttingDown | CallError::ConnectionLost { .. }
            ),
            "{preset}: {refused}"
        );
        assert!(peers.submit(0, NAME, b"more", 2).unwrap());
        let mut came = None;
        while came.is_none() {
            peers
                .wait(|peer, tag, answer| match (peer, answer) {
                    (0, answer) => came = Some((tag, answer.unwrap().to_vec())),
                    // A call that was sent in vain.
                    (_, answer) => assert!(answer.is_err(), "{preset}"),
                })
                .unwrap();
        }
        assert_eq!(came, Some((2, b"\0more".to_vec())), "{preset}");
    }
}
