//! What clients may do by who they are: over every preset, with certificates, by the kernel's word and by the secret.

mod authority;
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use authority::Authority;
use common::{pattern, ECHO};
use dunlin::{
    CallError, Client, ClientTls, Grant, Peer, Preset, Region, Rights, RunningServer, Secret,
    Server, ServerBuilder, ServerTls, Who, FIGURES,
};

const WHO: u16 = 2;
const WORKER: u16 = 3;
const DEFERRED: u16 = 4;
const ASYNC: u16 = 5;
/// All that count their calls, which are for the owner alone.
const COUNTED: [u16; 4] = [ECHO, WORKER, DEFERRED, ASYNC];

/// What the server runs, and how often its counted handlers ran.
fn server(ran: &Arc<AtomicU64>) -> ServerBuilder {
    let counted = || {
        let ran = Arc::clone(ran);
        move || ran.fetch_add(1, Ordering::SeqCst)
    };
    let (inline, worker, deferred, future) = (counted(), counted(), counted(), counted());
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, move |request, reply| {
            inline();
            reply.write(request.payload())
        })
        .handle_on_workers(WORKER, move |request, reply| {
            worker();
            reply.write(request.payload())
        })
        .handle_deferred(DEFERRED, move |request, responder| {
            deferred();
            responder.reply(request.payload());
        })
        .handle_async(ASYNC, move |request| {
            future();
            async move { Ok(request.payload().to_vec()) }
        })
        .handle(WHO, |request, reply| {
            reply.write(request.peer().to_string().as_bytes())
        })
        .name_handler(WORKER, "/test.Heavy/Work")
}

/// The owner may do everything, a guest may ask who it is and read one region; certificates say who is who.
struct World {
    authority: Authority,
    server: RunningServer,
    ran: Arc<AtomicU64>,
}

impl World {
    fn new() -> Self {
        let (authority, ran) = (Authority::new(), Arc::default());
        let own = authority.issue(&["127.0.0.1"]);
        let rights = Rights::new()
            .allow(
                Who::Name("owner.example".into()),
                Grant::new()
                    .call_named("*")
                    .read("*")
                    .write("*")
                    .atomic("counters"),
            )
            .allow(Who::Certificate, Grant::new().call(WHO).read("table"));
        let server = server(&ran)
            .region(&Region::new("table", 4096).writable())
            .region(&Region::new("counters", 4096).atomic())
            .tls(ServerTls::with_clients(&own, &authority.roots()).unwrap())
            .rights(rights)
            .serve()
            .unwrap();
        Self {
            authority,
            server,
            ran,
        }
    }

    fn client(&self, name: &str, preset: Preset) -> Client {
        let own = self.authority.issue(&[name]);
        let tls = ClientTls::new(&self.authority.roots(), Some(&own)).unwrap();
        Client::builder()
            .tls(tls)
            .preset(preset)
            .deadline(Duration::from_secs(30))
            .connect(&self.server.address().to_string())
            .unwrap()
    }
}

fn forbidden<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> String {
    match outcome {
        Err(CallError::Forbidden { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_without_a_right_is_refused_and_not_executed_over_every_preset() {
    let world = World::new();
    // In the ring or a packet, and long enough to be fetched.
    let payloads = [pattern(64, 1), pattern(200_000, 2)];
    for &preset in Preset::ALL {
        let (owner, guest) = (
            world.client("owner.example", preset),
            world.client("guest.example", preset),
        );
        let before = world.ran.load(Ordering::SeqCst);
        for handler in COUNTED {
            for payload in &payloads {
                let why = forbidden(guest.call(handler, payload));
                assert!(why.starts_with("guest.example (by certificate) has no right to call"));
                assert!(why.contains(&format!("handler {handler}")), "{why}");
                // With its own deadline it is another kind of request.
                let short = Duration::from_secs(20);
                forbidden(guest.call_within(short, handler, payload));
            }
        }
        let named = forbidden(guest.call(WORKER, b""));
        assert!(
            named.ends_with("call /test.Heavy/Work (handler 3)"),
            "{named}"
        );
        assert_eq!(world.ran.load(Ordering::SeqCst), before, "{preset}");
        // Several at once: those that are allowed are answered beside those that are not.
        let answers = guest
            .batch()
            .call(WHO, b"")
            .call(ECHO, b"x")
            .call(WHO, b"")
            .send();
        let answers = answers.unwrap();
        assert_eq!(
            &**answers[0].as_ref().unwrap(),
            b"guest.example (by certificate)"
        );
        assert!(matches!(answers[1], Err(CallError::Forbidden { .. })));
        assert!(answers[2].is_ok());
        for handler in COUNTED {
            for payload in &payloads {
                assert_eq!(
                    *owner.call(handler, payload).unwrap(),
                    **payload,
                    "{preset}"
                );
            }
        }
        assert_eq!(world.ran.load(Ordering::SeqCst), before + 8);
        assert!(matches!(
            guest.call(77, b""),
            Err(CallError::UnknownHandler(77))
        ));
    }
    let guest = world.client("guest.example", Preset::Plain);
    let why = forbidden(guest.server_figures());
    assert!(why.ends_with("call the server's figures"), "{why}");
    let owner = world.client("owner.example", Preset::Plain);
    assert!(owner.server_figures().is_ok());
}

#[test]
fn a_region_is_granted_with_the_rights_of_who_asks() {
    let world = World::new();
    for preset in [Preset::Plain, Preset::Flock] {
        let (owner, guest) = (
            world.client("owner.example", preset),
            world.client("guest.example", preset),
        );
        let why = forbidden(guest.attach("counters"));
        let words =
            "guest.example (by certificate) has no right to read, write or perform atomics on the \
                     region 'counters'";
        assert_eq!(why, words);
        let table = owner.attach("table").unwrap();
        table.write(0, b"written").unwrap();
        let seen = guest.attach("table").unwrap();
        assert_eq!(&*seen.read(0, 7).unwrap(), b"written");
        let refused = seen.write(0, b"changed");
        assert!(
            matches!(&refused, Err(CallError::RegionRight { region, right: "writing" }) if region == "table"),
            "{refused:?}"
        );
        assert_eq!(&*table.read(0, 7).unwrap(), b"written");
        let counters = owner.attach("counters").unwrap();
        counters.fetch_add(0, 5).unwrap();
        assert!(matches!(
            counters.write(0, b"12345678"),
            Err(CallError::RegionRight {
                right: "writing",
                ..
            })
        ));
    }
}

#[test]
fn without_certificates_the_kernel_and_the_secret_say_who_it_is() {
    let ran = Arc::default();
    let user = rustix::process::geteuid().as_raw();
    let rights = |user| {
        Rights::new()
            .allow(Who::User(user), Grant::new().call(WHO))
            .allow(Who::Secret, Grant::new().call(ECHO))
    };
    let start = |user| {
        let server = server(&ran).secret(Secret::new("s").unwrap());
        server.device("shm").rights(rights(user)).serve().unwrap()
    };
    let (ours, others) = (start(user), start(user + 1));
    for (server, may) in [(&ours, true), (&others, false)] {
        let client = Client::builder().secret(Secret::new("s").unwrap());
        let client = client.connect(&server.address().to_string()).unwrap();
        assert_eq!(&*client.call(ECHO, b"x").unwrap(), b"x");
        match may {
            true => {
                let words = format!("user {user} (by the kernel)");
                assert_eq!(&*client.call(WHO, b"").unwrap(), words.as_bytes());
            }
            false => assert!(forbidden(client.call(WHO, b"")).contains("user")),
        }
    }
}

#[test]
fn without_rights_all_may_do_everything_and_handlers_still_know_who_asks() {
    let ran = Arc::default();
    let server = server(&ran).handle(9, |request, reply| {
        let peer: &Peer = request.peer();
        let known = peer.address().is_some() && !peer.has_certificate() && peer.names().is_empty();
        reply.write(&[u8::from(known && request.may_call(ECHO))])
    });
    let server = server.serve().unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    assert_eq!(*client.call(9, b"").unwrap(), [1]);
    for handler in COUNTED {
        client.call(handler, b"x").unwrap();
    }
    assert!(client.call(FIGURES, b"").is_ok());
}

#[test]
fn rules_about_what_is_not_there_are_refused_when_the_server_begins() {
    let ran = Arc::default();
    for (rights, words) in [
        (
            Rights::new().allow(Who::Anyone, Grant::new().call_named("/test.Heavy/Wrok")),
            "no method `/test.Heavy/Wrok`; it has: /test.Heavy/Work",
        ),
        (
            Rights::new().allow(Who::Anyone, Grant::new().read("table")),
            "no region `table`",
        ),
        (
            Rights::new().allow(Who::Name("x".into()), Grant::new().call(1)),
            "does not ask clients for certificates",
        ),
    ] {
        let error = server(&ran).rights(rights).serve().unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
