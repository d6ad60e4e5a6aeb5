//! Services by hand: serve, call, kv and doctor, and what they say when something is wrong. No test asserts a time.

mod common;

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use common::{dunlin, dunlin_with_input, failure, object, stat, Scratch, Serving};

fn text(output: &std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn keys_are_put_got_scanned_and_deleted() {
    let server = Serving::start("kv", &[]);
    let kv =
        |arguments: &[&str]| dunlin(&[&["kv", "--address", server.address()], arguments].concat());
    assert_eq!(text(&kv(&["put", "bird", "dunlin"])), "");
    assert_eq!(text(&kv(&["put", "wader", "knot"])), "");
    assert_eq!(text(&kv(&["put", "bird", "Calidris alpina"])), "");
    assert_eq!(text(&kv(&["get", "bird"])), "Calidris alpina\n");
    assert_eq!(text(&kv(&["get", "bird", "--raw"])), "Calidris alpina");
    // From the server's memory, past its processor.
    assert_eq!(
        text(&kv(&["get", "bird", "--one-sided"])),
        "Calidris alpina\n"
    );
    let words = failure(&kv(&["get", "none", "--one-sided"]), 1);
    assert!(words.contains("no key 'none'"), "{words}");
    assert_eq!(text(&kv(&["scan"])), "bird\tCalidris alpina\nwader\tknot\n");
    assert_eq!(text(&kv(&["scan", "c"])), "wader\tknot\n");
    assert_eq!(
        text(&kv(&["scan", "--limit", "1"])),
        "bird\tCalidris alpina\n"
    );
    assert_eq!(text(&kv(&["del", "bird"])), "");
    for action in ["get", "del"] {
        let words = failure(&kv(&[action, "bird"]), 1);
        assert!(words.contains("no key 'bird'"), "{words}");
    }
    server.stop();
}

/// The longest value that a store takes is found by each way, and by scans, also of who takes shorter messages.
#[test]
fn what_is_put_is_found_however_long_it_is() {
    let server = Serving::start("kv", &[]);
    let kv = ["kv", "--address", server.address()];
    let put = |key: &str, bytes: usize| {
        dunlin_with_input(&[&kv[..], &["put", key, "-"]].concat(), vec![b'v'; bytes])
    };
    let longest = (16 << 20) - 1024 - 6;
    assert_eq!(text(&put("a", longest)), "");
    let words = failure(&put("a", longest + 1), 1);
    assert!(words.contains(&longest.to_string()), "{words}");
    for more in [&["get", "a"][..], &["get", "a", "--one-sided"]] {
        assert_eq!(text(&dunlin(&[&kv[..], more].concat())).len(), longest + 1);
    }
    for key in ["b", "c", "d"] {
        assert_eq!(text(&put(key, 60_000)), "");
    }
    assert_eq!(
        text(&dunlin(&[&kv[..], &["scan"]].concat()))
            .lines()
            .count(),
        4
    );
    let short = ["--max-message-bytes", "128KiB", "scan", "b"];
    assert_eq!(
        text(&dunlin(&[&kv[..], &short].concat())).lines().count(),
        3
    );
    server.stop();
}

#[test]
fn what_the_store_does_not_take_is_said() {
    let server = Serving::start("kv", &["--memory", "1MiB"]);
    let kv = ["kv", "--address", server.address()];
    let put = |key: &str, bytes: usize| {
        dunlin_with_input(&[&kv[..], &["put", key, "-"]].concat(), vec![b'v'; bytes])
    };
    assert_eq!(text(&put("long", 700_000)), "");
    let words = failure(&put("other", 700_000), 1);
    assert!(words.contains("the store is full"), "{words}");
    let get = [&kv[..], &["get", "long", "--one-sided"]].concat();
    assert_eq!(text(&dunlin(&get)).len(), 700_001);
    let words = failure(&put(&"k".repeat(1025), 1), 2);
    assert!(words.contains("the limit is 1024"), "{words}");
    server.stop();
    let words = failure(
        &dunlin(&["serve", "kv", "--memory", "1MiB", "--keys", "1000000"]),
        2,
    );
    assert!(words.contains("the store needs"), "{words}");
}

/// More than one answer holds: the client goes on from the last key.
#[test]
fn long_scans_take_several_calls() {
    let server = Serving::start("kv", &[]);
    let kv = ["kv", "--address", server.address()];
    for key in ["a", "b", "c", "d"] {
        let put = [&kv[..], &["put", key, "-"]].concat();
        assert_eq!(text(&dunlin_with_input(&put, vec![b'v'; 800_000])), "");
    }
    let scanned = text(&dunlin(&[&kv[..], &["scan", "b", "--limit", "3"]].concat()));
    let keys: Vec<&str> = scanned.lines().map(|line| &line[..2]).collect();
    assert_eq!(keys, ["b\t", "c\t", "d\t"]);
    server.stop();
}

#[test]
fn keys_and_values_are_any_bytes() {
    let server = Serving::start("kv", &[]);
    let kv = ["kv", "--address", server.address()];
    let put = |key: &str, value: &[u8]| {
        let put = [&kv[..], &["put", key, "-"]].concat();
        assert_eq!(text(&dunlin_with_input(&put, value.to_vec())), "");
    };
    put("a\tb\nc", b"tabs\tand\nlines");
    put("none", b"");
    put("raw", &[0xff, 0, 0x0a]);
    // A key that is no UTF-8, as a shell passes it.
    let raw = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(kv)
        .arg("put")
        .arg(OsStr::from_bytes(b"zz\xfe"))
        .arg("last")
        .output()
        .expect("it runs");
    assert_eq!(text(&raw), "");
    let lines = text(&dunlin(&[&kv[..], &["scan", "--json"]].concat()));
    let entries: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let expected = serde_json::json!([
        {"key": "a\tb\nc", "value": "tabs\tand\nlines"},
        {"key": "none", "value": ""},
        {"key": "raw", "value_hex": "ff000a"},
        {"key_hex": "7a7afe", "value": "last"},
    ]);
    assert_eq!(serde_json::Value::from(entries), expected);
    for (at, key) in [(0, "a\tb\nc"), (2, "raw")] {
        for how in [&["--json"][..], &["--json", "--one-sided"]] {
            let get = text(&dunlin(&[&kv[..], &["get", key], how].concat()));
            let entry: serde_json::Value = serde_json::from_str(&get).expect("one object");
            assert_eq!(entry, expected[at]);
        }
    }
    server.stop();
}

#[test]
fn a_megabyte_comes_back_as_it_went() {
    let server = Serving::start("echo", &[]);
    let sent: Vec<u8> = (0..1_048_576u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let arguments = ["call", server.address(), "1", "-"];
    let output = dunlin_with_input(&arguments, sent.clone());
    assert_eq!(output.status.code(), Some(0), "{:?}", output.status);
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
    assert_eq!(
        text(&dunlin(&["call", server.address(), "1", "hello"])),
        "hello"
    );
    let words = failure(&dunlin(&["call", server.address(), "999", "hello"]), 1);
    assert!(words.contains("999"), "{words}");
    server.stop();
}

#[test]
fn a_port_in_use_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("dunlin://{}", taken.local_addr().expect("its address"));
    let words = failure(&dunlin(&["serve", "echo", "--listen", &address]), 1);
    assert!(words.contains(&address), "{words}");
    assert!(words.contains("in use by another process"), "{words}");
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("dunlin://{}", free.local_addr().expect("its address"));
    drop(free);
    for arguments in [
        &["call", &address, "1", "hello"][..],
        &["kv", "--address", &address, "get", "bird"],
        &["perf", "rpc", "--address", &address],
    ] {
        let words = failure(&dunlin(arguments), 1);
        assert!(words.contains("no server listens at"), "{words}");
        assert!(words.contains(&address), "{words}");
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let server = Serving::start("echo", &[]);
    for arguments in [
        &["serve", "echo", "--listen", "dunlin://127.0.0.1:0"][..],
        &["call", server.address(), "1", "hello"],
    ] {
        let device = ["--device", "ibv:no-such-nic"];
        let words = failure(&dunlin(&[arguments, &device].concat()), 1);
        assert!(words.contains("ibv:no-such-nic"), "{words}");
        assert!(words.contains("shm"), "{words}");
    }
    server.stop();
}

#[test]
fn a_wrong_secret_is_said_and_harms_nobody_else() {
    let ours = Scratch::new("ours", b"a secret of more than sixteen bytes");
    let other = Scratch::new("other", b"another secret of as many bytes.....");
    let server = Serving::start("echo", &["--secret-file", ours.path()]);
    let call = |more: &[&str]| dunlin(&[&["call", server.address(), "1", "hello"], more].concat());
    assert_eq!(text(&call(&["--secret-file", ours.path()])), "hello");
    let words = failure(&call(&["--secret-file", other.path()]), 1);
    assert!(
        words.contains("the secret differs from that of the server"),
        "{words}"
    );
    let words = failure(&call(&[]), 1);
    assert!(words.contains("requires a secret"), "{words}");
    assert_eq!(text(&call(&["--secret-file", ours.path()])), "hello");
    server.stop();
}

#[test]
fn doctor_says_what_a_connection_would_use() {
    let server = Serving::start("echo", &[]);
    let address = server.address().to_string();
    let all = |more: &[&str], code: i32| {
        let output = dunlin(&[&["doctor", &address, "--json"], more].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let examined = object(&output);
        let findings = examined["findings"].as_array().expect("findings").clone();
        assert!(findings.iter().any(|finding| finding["name"] == "devices"));
        findings
    };
    let found = |more: &[&str], code: i32| {
        let mut findings = all(more, code).into_iter();
        let connection = findings.find(|finding| finding["name"] == "connection");
        connection.expect("a finding about the connection")
    };
    let others = |more: &[&str]| -> Vec<String> {
        let findings = all(more, 0).into_iter();
        let others = findings.filter(|finding| finding["name"] == "other device");
        others.map(|finding| finding["found"].to_string()).collect()
    };
    let finding = found(&[], 0);
    assert_eq!(finding["state"], "ok", "{finding}");
    let words = finding["found"].as_str().expect("words");
    assert!(words.contains("over shm (same host"), "{words}");
    let of = |others: &[String], what: &str| others.iter().any(|words| words.contains(what));
    let words = others(&[]);
    assert!(of(&words, "roce: reaches the server as well"), "{words:?}");
    let words = others(&["--device", "roce"]);
    assert!(of(&words, "shm: reaches the server as well"), "{words:?}");
    let finding = found(&["--device", "roce"], 0);
    let words = finding["found"].as_str().expect("words");
    assert!(
        words.contains("MTU") && words.contains("datagrams arrive"),
        "{words}"
    );
    let finding = found(&["--device", "ibv:no-such-nic"], 1);
    assert_eq!(finding["state"], "missing", "{finding}");
    server.stop();
    let finding = found(&[], 1);
    assert_eq!(finding["state"], "missing", "{finding}");
    let words = finding["found"].as_str().expect("words");
    assert!(words.contains("no server listens at"), "{words}");
    assert!(finding["advice"].is_string(), "{finding}");
}

/// Processor time of a process, in clock ticks: of user and of system.
fn ticks(process: u32) -> u64 {
    let fields = stat(&process.to_string()).expect("the server runs");
    let tick = |at: usize| fields[at].parse::<u64>().expect("a number");
    // utime and stime are fields 14 and 15 of the whole line; the state is field 3.
    tick(11) + tick(12)
}

#[test]
fn a_server_without_calls_uses_little_processor_time() {
    let server = Serving::start("echo", &[]);
    assert_eq!(
        text(&dunlin(&["call", server.address(), "1", "hello"])),
        "hello"
    );
    let before = ticks(server.process());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let used = ticks(server.process()) - before;
    let per_second = rustix::param::clock_ticks_per_second();
    let share = used as f64 / per_second as f64 / 3.0;
    println!("an idle server used {:.2} % of a core", share * 100.0);
    // Generous: what is meant is that nothing polls.
    assert!(share < 0.2, "{share}");
    server.stop();
}
