//! Messages longer than what one verb of the device carries.

use std::sync::Mutex;

use dunlin_rpc::{
    CallError, ChannelConfig, Client, DatagramBatches, LocalServer, Preset, Region, Server,
    ServerBuilder,
};
use dunlin_shm::{ShmConfig, ShmDevice};

const ECHO: u16 = 1;
/// Maximum length that a verb carries.
const MOST: usize = 20_000;

fn device() -> ShmDevice {
    let mut config = ShmConfig::default();
    config.max_message_bytes = MOST;
    ShmDevice::open(config).unwrap()
}

fn serve(server: ServerBuilder) -> LocalServer {
    let server = server.handle(ECHO, |request, reply| reply.write(request.payload()));
    server.serve_on(device()).unwrap()
}

fn connect(preset: Preset, server: &LocalServer) -> Client {
    let client = Client::builder().preset(preset);
    client.connect_on(device(), &server.acceptor()).unwrap()
}

/// They arrive in several pieces, and complete.
#[test]
fn long_messages_come_in_pieces() {
    let server = serve(Server::unbound());
    for &preset in Preset::ALL {
        let client = connect(preset, &server);
        for bytes in [MOST - 1, MOST, MOST + 1, 10 * MOST, (1 << 20) + 5] {
            let payload: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
            let answer = client.call(ECHO, &payload).unwrap();
            assert!(*answer == payload, "{preset}, {bytes} bytes");
        }
    }
}

/// A server keeps long responses until its client says that they have arrived. It learns this before it runs the next
/// request, however full the packets of that are, and so has room for its response.
#[test]
fn responses_that_are_here_leave_room_for_others() {
    const TOGETHER: u16 = 2;
    const ALONE: u16 = 3;
    let config = |messages| ChannelConfig {
        max_message_bytes: 48 << 20,
        datagram_batches: DatagramBatches {
            messages,
            ..DatagramBatches::default()
        },
        ..ChannelConfig::default()
    };
    let held = Mutex::new(Vec::new());
    let server = Server::unbound()
        .channel(config(255))
        // Three are answered together, so that all are at the client at the same time.
        .handle_deferred(TOGETHER, move |_, responder| {
            let mut held = held.lock().unwrap();
            held.push(responder);
            if held.len() == 3 {
                held.drain(..)
                    .for_each(|responder| responder.reply(vec![1; 20 << 20]));
            }
        })
        .handle(ALONE, |_, reply| reply.in_place(46 << 20).map(drop));
    let server = serve(server);
    for messages in [255, 1] {
        // What one packet carries, and a request that fills many.
        for request_bytes in [8, 40 << 20] {
            let client = Client::builder().preset(Preset::Erpc);
            let client = client.channel(config(messages));
            let client = client.connect_on(device(), &server.acceptor()).unwrap();
            let three = (0..3).fold(client.batch(), |batch, _| batch.call(TOGETHER, b""));
            for answer in three.send().unwrap() {
                assert_eq!(answer.unwrap().len(), 20 << 20);
            }
            let answer = client.call(ALONE, &vec![0; request_bytes]);
            let bytes = answer.map(|answer| answer.len());
            assert_eq!(bytes.ok(), Some(46 << 20), "{messages}: {request_bytes}");
        }
    }
}

/// A one-sided operation is one verb: a longer one is refused, and the connection remains usable.
#[test]
fn one_sided_operations_are_as_long_as_a_verb() {
    let server = serve(Server::unbound().region(&Region::new("memory", 4 * MOST).writable()));
    for preset in [Preset::Plain, Preset::Flock] {
        let client = connect(preset, &server);
        let region = client.attach("memory").unwrap();
        let bytes = vec![7; MOST + 1];
        region.write(0, &bytes[..MOST]).unwrap();
        assert!(*region.read(0, MOST).unwrap() == bytes[..MOST]);
        for refused in [
            region.write(0, &bytes).unwrap_err(),
            region.read(0, MOST + 1).unwrap_err(),
        ] {
            let limit = matches!(refused, CallError::TooLong { bytes, limit } if (bytes, limit) == (MOST + 1, MOST));
            assert!(limit, "{preset}: {refused}");
        }
        assert_eq!(&*client.call(ECHO, b"still there").unwrap(), b"still there");
    }
}
