//! Messages that are longer than what one verb of the device takes along.

use dunlin_rpc::{CallError, Client, LocalServer, Preset, Region, Server, ServerBuilder};
use dunlin_shm::{ShmConfig, ShmDevice};

const ECHO: u16 = 1;
/// What a verb takes along.
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

/// They come in several pieces, and are whole when they are there.
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

/// A one-sided operation is one verb: a longer one is refused, and the connection goes on.
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
