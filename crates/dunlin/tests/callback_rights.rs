//! Who calls whom back: rights of the server over its callable clients, rights of a client over its server, regions
//! that a client grants, and a client that is killed.

mod authority;
mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::time::Duration;

use authority::Authority;
use common::{eventually, pattern};
use dunlin::{
    CallError, CallableClients, CallbackServer, Client, ClientTls, Grant, Preset, Region, Rights,
    RunningServer, Secret, ServeError, Server, ServerTls, Who, CALLBACKS,
};
use process::{role, say, Other};

const WHO: u16 = 1;
const BYTES: usize = 1 << 20;

fn forbidden<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> String {
    match outcome {
        Err(CallError::Forbidden { why }) => why,
        other => panic!("{other:?}"),
    }
}

/// Answers who asks.
fn who(region: &Region) -> dunlin::ServerBuilder {
    Server::unbound()
        .handle(WHO, |request, reply| {
            reply.write(request.peer().to_string().as_bytes())
        })
        .region(region)
}

#[test]
fn certificates_say_who_may_be_called_and_who_may_call() {
    let authority = Authority::new();
    let list = CallableClients::new(8);
    let own = authority.issue(&["127.0.0.1", "prices.example"]);
    let member = Who::Name("member.example".into());
    let rights = Rights::new().allow(member, Grant::new().call(CALLBACKS));
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .tls(ServerTls::with_clients(&own, &authority.roots()).unwrap())
        .rights(rights)
        .callable_clients(&list)
        .serve()
        .unwrap();
    let client = |name: &str| {
        let own = authority.issue(&[name]);
        let tls = ClientTls::new(&authority.roots(), Some(&own)).unwrap();
        let builder = Client::builder().tls(tls);
        builder.connect(&server.address().to_string()).unwrap()
    };
    let stranger = client("stranger.example");
    let refused = who(&Region::new("memory", 8)).serve_to(&stranger);
    let ServeError::Callbacks(refused) = refused.unwrap_err() else {
        panic!("the server says no");
    };
    let why = forbidden::<()>(Err(refused));
    assert!(
        why.contains("stranger.example") && why.contains("callbacks"),
        "{why}"
    );
    assert!(list.is_empty());

    let member = client("member.example");
    let region = Region::new("memory", 64).writable();
    let prices = Who::Name("prices.example".into());
    let grant = Grant::new().call(WHO).read("memory");
    let serving = who(&region)
        .rights(Rights::new().allow(prices, grant))
        .serve_to(&member)
        .unwrap();
    let back = list.list().remove(0);
    assert!(back
        .peer()
        .names()
        .iter()
        .any(|name| name == "member.example"));
    let said = back.client().call(WHO, b"").unwrap();
    assert!(String::from_utf8_lossy(&said).contains("by certificate"));
    let remote = back.client().attach("memory").unwrap();
    assert_eq!(remote.read(0, 3).unwrap()[..], [0; 3]);
    let refused = remote.write(0, b"no").unwrap_err();
    assert!(
        matches!(refused, CallError::RegionRight { .. }),
        "{refused}"
    );
    drop(serving);

    // The other way round, a server that nobody has a rule for may do nothing.
    let other = Who::Name("other.example".into());
    let _serving = who(&region_like(&region))
        .rights(Rights::new().allow(other, Grant::new().call(WHO)))
        .serve_to(&member)
        .unwrap();
    eventually("it came again", || list.len() == 1);
    let back = list.list().remove(0);
    assert!(forbidden(back.client().call(WHO, b"")).contains("prices.example"));
    // A rule about what neither can know is refused when it is made.
    let secret = Rights::new().allow(Who::Secret, Grant::new().call(WHO));
    let error = who(&Region::new("memory", 8))
        .rights(secret)
        .serve_to(&member);
    assert!(error.unwrap_err().to_string().contains("secret"));
}

/// Another of the same name and length.
fn region_like(region: &Region) -> Region {
    Region::new(region.name(), 64).writable()
}

#[test]
fn the_secret_holds_in_both_directions() {
    let list = CallableClients::new(1);
    let secret = || Secret::new(b"a secret of more than sixteen bytes".to_vec()).unwrap();
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .secret(secret())
        .callable_clients(&list)
        .serve()
        .unwrap();
    let builder = Client::builder().secret(secret());
    let client = builder.connect(&server.address().to_string()).unwrap();
    let grant = Grant::new().call(WHO);
    let _serving = who(&Region::new("memory", 8))
        .rights(Rights::new().allow(Who::Secret, grant))
        .serve_to(&client)
        .unwrap();
    let back = list.list().remove(0);
    assert!(back.peer().knows_secret());
    assert!(!back.client().call(WHO, b"").unwrap().is_empty());
}

fn serve(list: &CallableClients) -> RunningServer {
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    server.callable_clients(list).serve().unwrap()
}

fn grant(server: &str, device: &str, region: &Region) -> (Client, CallbackServer) {
    let builder = Client::builder().device(device).preset(Preset::Plain);
    let client = builder.connect(server).unwrap();
    let serving = who(region).serve_to(&client).unwrap();
    (client, serving)
}

#[test]
fn a_server_reads_and_writes_memory_of_its_client() {
    let list = CallableClients::new(1);
    let server = serve(&list);
    for device in ["shm", "roce"] {
        let region = Region::new("memory", BYTES).writable().atomic();
        let (_client, serving) = grant(&server.address().to_string(), device, &region);
        let back = list.list().remove(0);
        let remote = back.client().attach("memory").unwrap();
        remote.write(64, b"a row").unwrap();
        assert_eq!(remote.fetch_add(8, 5).unwrap(), 0);
        assert_eq!(remote.compare_and_swap(8, 5, 6).unwrap(), 5);
        let mut stored = [0; 5];
        region.memory().unwrap().read(64, &mut stored);
        assert_eq!(&stored, b"a row");
        assert_eq!(remote.read(8, 8).unwrap()[..], 6_u64.to_le_bytes());
        let sent = pattern(BYTES - 3, 7);
        let mut transfer = remote.transfer().lanes(2).piece_bytes(100_000);
        transfer.put(3, &sent).unwrap();
        let mut stored = vec![0; sent.len()];
        region.memory().unwrap().read(3, &mut stored);
        assert!(stored == sent, "{device}");
        let mut back = vec![0; sent.len()];
        transfer.get(3, &mut back).unwrap();
        assert!(back == sent, "{device}");
        drop(serving);
        eventually("it has gone", || list.is_empty());
    }
}

#[test]
fn a_client_that_is_killed_has_gone_and_its_memory_with_it() {
    if let Some((_, address)) = role() {
        let region = Region::new("memory", BYTES).writable();
        let _granted = grant(&address, "shm", &region);
        say("granted");
        loop {
            std::thread::park();
        }
    }
    let list = CallableClients::new(1);
    let server = serve(&list);
    let name = "a_client_that_is_killed_has_gone_and_its_memory_with_it";
    let mut other = Other::start(name, "client", &server.address().to_string());
    assert_eq!(other.hear(), "granted");
    let back = list.list().remove(0);
    let remote = back.client().attach("memory").unwrap();
    remote.write(0, b"before").unwrap();
    other.kill();
    eventually("it has gone", || back.is_gone() && list.is_empty());
    let within = back.client().within(Duration::from_secs(5));
    eventually("calls say so", || {
        match (within.call(WHO, b""), remote.write(0, b"after")) {
            (Err(CallError::Connect(call)), Err(CallError::Connect(write))) => {
                call.is_caller_gone() && write.is_caller_gone()
            }
            (Err(_), Err(_)) => false,
            other => panic!("{other:?}"),
        }
    });
    // Its place is free.
    let region = Region::new("memory", 64);
    let _granted = grant(&server.address().to_string(), "shm", &region);
}
