//! `dunlin ping`, and what a server says of clients that it refuses.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};

use common::{assert_environment, dunlin, failure, object, Scratch, Serving, DUNLIN};

#[test]
fn every_service_answers() {
    for service in ["echo", "kv"] {
        let server = Serving::start(service, &[]);
        let ping = [
            "ping",
            server.address(),
            "--count",
            "3",
            "--interval",
            "0.01",
        ];
        let output = dunlin(&ping);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(text.starts_with("connected to dunlin://"), "{text}");
        assert!(text.contains("3 calls, 0 failed"), "{text}");
        let found = object(&dunlin(&[&ping[..], &["--json"]].concat()));
        assert_eq!(found["calls"], 3, "{found}");
        assert_eq!(found["device"], "shm", "{found}");
        assert!(found["latency_ns"]["p50"].as_u64() > Some(0), "{found}");
        // Of so few calls there is none.
        let tail = found["latency_ns"].get("p999");
        assert_eq!(tail, Some(&serde_json::Value::Null), "{found}");
        assert_environment(&found);
        server.stop();
    }
    failure(&dunlin(&["ping", "127.0.0.1:1"]), 1);
    failure(&dunlin(&["ping", "127.0.0.1:1", "--interval", "-1"]), 2);
}

#[test]
fn a_server_says_whom_it_refused_and_why() {
    let key = Scratch::new("key", b"the one");
    let other = Scratch::new("other", b"another");
    let serve = ["serve", "echo", "--listen", "127.0.0.1:0", "--with-parent"];
    for (log, says) in [(None, true), (Some("off"), false)] {
        let mut command = Command::new(DUNLIN);
        command.args(serve).args(["--secret-file", key.path()]);
        if let Some(log) = log {
            command.env("DUNLIN_LOG", log);
        }
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("dunlin runs");
        let mut line = String::new();
        let output = server.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("text");
        let address = line.trim().trim_start_matches("listening on ");
        let ping = ["ping", address, "--secret-file", other.path()];
        failure(&dunlin(&ping), 1);
        drop(server.stdin.take());
        let mut words = String::new();
        let mut errors = server.stderr.take().expect("its words");
        errors.read_to_string(&mut words).expect("text");
        assert!(server.wait().expect("an end").success());
        let said = words.contains("failed to authenticate") && words.contains("peer=127.0.0.1:");
        assert_eq!(said, says, "{words}");
    }
}
