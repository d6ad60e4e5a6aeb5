//! Settings of clients and servers: the command line before the environment, the environment before the file.

mod common;

use std::process::{Command, Output};

use common::{dunlin, failure, object, Folder, Scratch, Serving, DUNLIN};

fn with(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(DUNLIN);
    command.args(arguments).envs(variables.iter().copied());
    command.output().expect("dunlin runs")
}

/// The preset that a client has taken.
fn preset(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    object(output)["preset"]
        .as_str()
        .expect("a name")
        .to_owned()
}

#[test]
fn what_is_nearer_to_the_call_goes_first() {
    let server = Serving::start("echo", &[]);
    let file = Scratch::new("client.toml", b"[client]\npreset = \"fasst\"\n");
    let ping = ["ping", server.address(), "--count", "1", "--json"];
    let in_file = ["--config", file.path()];
    let of_file = [&in_file[..], &ping].concat();
    let variable = [("DUNLIN_CLIENT_PRESET", "flock")];
    assert_eq!(preset(&dunlin(&ping)), "auto");
    assert_eq!(preset(&dunlin(&of_file)), "fasst");
    assert_eq!(
        preset(&with(&[("DUNLIN_CONFIG", file.path())], &ping)),
        "fasst"
    );
    assert_eq!(preset(&with(&variable, &of_file)), "flock");
    let said = [&of_file[..], &["--preset", "plain"]].concat();
    assert_eq!(preset(&with(&variable, &said)), "plain");
    server.stop();
}

#[test]
fn a_server_has_its_limits_from_options_and_from_a_file() {
    let file = Scratch::new(
        "server.toml",
        b"[server]\nmax_message_bytes = \"128KiB\"\nmax_connections = 1\n",
    );
    let long = "x".repeat(100_000);
    let call = |server: &Serving, more: &[&str]| {
        let call = ["call", server.address(), "1", &long];
        dunlin(&[&call[..], more].concat())
    };
    let small = Serving::start("echo", &["--max-message-bytes", "64KiB"]);
    let words = failure(&call(&small, &[]), 1);
    assert!(words.contains("65536"), "{words}");
    small.stop();

    let server = Serving::start("echo", &["--config", file.path()]);
    assert_eq!(call(&server, &[]).stdout.len(), long.len());
    // The client's own limit is for what comes back.
    let words = failure(&call(&server, &["--max-message-bytes", "64KiB"]), 1);
    assert!(words.contains("65536"), "{words}");
    let held = ["top", server.address(), "--interval", "60"];
    let mut first = Command::new(DUNLIN)
        .args(held)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("dunlin runs");
    // Until the first client is in, others may be.
    let refused = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let output = call(&server, &[]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.code() == Some(1) && words.contains("connections")
    });
    let _ = first.kill();
    let _ = first.wait();
    assert!(refused, "a second client was never refused");
}

#[test]
fn all_clients_have_the_settings() {
    let secret = Scratch::new("settings-secret", b"sesame");
    let text = format!(
        "[client]\nsecret_file = {0:?}\npreset = \"flock\"\ndevice = \"roce\"\n\
         [server]\nsecret_file = {0:?}\n",
        secret.path()
    );
    let file = Scratch::new("all.toml", text.as_bytes());
    let config = ["--config", file.path()];
    let server = Serving::start("echo", &config);
    let ping = ["ping", server.address(), "--count", "1", "--json"];
    assert_eq!(preset(&dunlin(&[&config[..], &ping].concat())), "flock");
    let doctor = dunlin(&[&config[..], &["doctor", server.address()]].concat());
    let words = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success(), "{doctor:?}");
    assert!(words.contains("over roce"), "{words}");
    server.stop();
    let folder = Folder::new("settings-meta");
    let store = folder.path("store");
    let server = Serving::start("meta", &[&config[..], &["--store", &store]].concat());
    let meta = ["perf", "meta", "--address", server.address(), "--json"];
    let few = ["--clients", "1", "--files", "3"];
    let meta = dunlin(&[&config[..], &meta, &few].concat());
    assert_eq!(preset(&meta), "flock");
    server.stop();
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_longer_than_said() {
    // It takes connections and says nothing.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = deaf.local_addr().expect("its address").to_string();
    let ping = ["ping", &address, "--count", "1", "--connect-timeout", "0.2"];
    let words = failure(&dunlin(&ping), 1);
    assert!(words.contains("within 200ms"), "{words}");
}

#[test]
fn a_server_process_of_ones_own_has_the_settings_too() {
    let file = Scratch::new("perf.toml", b"[server]\nmax_message_bytes = 65536\n");
    let perf = ["perf", "rpc", "--size", "128KiB", "--seconds", "0.1"];
    let output = dunlin(&[&["--config", file.path()][..], &perf].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("limit is 65536 bytes"), "{words}");
}

#[test]
fn settings_that_make_no_sense_are_wrong_calls() {
    let file = Scratch::new("wrong.toml", b"[client]\ndeadlin = 3\n");
    let ping = ["ping", "127.0.0.1:1"];
    let words = failure(
        &dunlin(&[&["--config", file.path()][..], &ping].concat()),
        2,
    );
    assert!(words.contains("[client] deadlin"), "{words}");
    assert!(words.contains("connect_timeout"), "{words}");
    let words = failure(&dunlin(&[&["--config", "/no/such"][..], &ping].concat()), 2);
    assert!(words.contains("/no/such"), "{words}");
    for (variable, value) in [
        ("DUNLIN_CLIENT_DEADLINE", "soon"),
        ("DUNLIN_CLIENT_DEADLIN", "3"),
        ("DUNLIN_SERVER_POLLERS", "many"),
    ] {
        let words = failure(&with(&[(variable, value)], &ping), 2);
        assert!(words.contains(variable), "{words}");
    }
    let limits = ["--max-connections", "--workers", "--max-outstanding"];
    for limit in limits {
        let serve = ["serve", "echo", "--listen", "127.0.0.1:0", limit, "many"];
        assert_eq!(dunlin(&serve).status.code(), Some(2), "{limit}");
    }
    let serve = ["serve", "echo", "--listen", "127.0.0.1:0"];
    let words = failure(
        &dunlin(&[&serve[..], &["--max-outstanding", "0"]].concat()),
        2,
    );
    assert!(words.contains("max_outstanding"), "{words}");
}
