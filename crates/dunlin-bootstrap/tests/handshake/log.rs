//! What the log says of those who fail to authenticate themselves: at the default level, with their address, and not
//! without end.

use std::fmt::Write;
use std::sync::{Mutex, OnceLock};

use dunlin_bootstrap::{dial, AcceptorConfig, DialConfig};
use tracing::field::{Field, Visit};
use tracing::{span, Event, Level, Metadata, Subscriber};

use crate::harness::*;

/// Keeps the lines of the default level, of the whole process.
struct Lines;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn lines_with(words: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines
        .iter()
        .filter(|line| line.contains(words))
        .cloned()
        .collect()
}

#[test]
fn failed_authentication_is_logged_with_its_peer_at_a_bounded_rate() {
    static SET: OnceLock<()> = OnceLock::new();
    SET.get_or_init(|| tracing::subscriber::set_global_default(Lines).unwrap());
    let server = Server::new(AcceptorConfig {
        secret: secret("this is the one"),
        ..serving()
    });
    // A hello without the secret, and then one whose proof is wrong.
    let mut stranger = server.stranger();
    let without = format!("peer={}", stranger.local_addr().unwrap());
    send(&mut stranger, &client_hello());
    receive(&mut stranger);
    server.wait_for("refused", |counts| counts.secret_required == 1);
    let said = lines_with(&without);
    // Not under the lock: the other tests' servers write to the log, too.
    assert_eq!(said.len(), 1, "{:?}", lines_with(""));
    assert!(said[0].contains("requires a secret"), "{said:?}");

    let wrong = DialConfig {
        secret: secret("this is another"),
        ..dialing()
    };
    assert!(dial(server.address(), &wrong).is_err());
    server.wait_for("refused", |counts| counts.wrong_secret == 1);
    // Others are the other tests'.
    let count = || lines_with("client's secret differs").len();
    assert!(count() >= 1);
    for _ in 0..200 {
        let _ = dial(server.address(), &wrong);
    }
    server.wait_for("all refused", |counts| counts.wrong_secret == 201);
    let tests_beside = 10;
    assert!(count() <= 60 + tests_beside, "{} lines", count());
}
