//! `dunlin capture`: calls as lines, as JSON, and as a file that tshark reads with the dissector that goes with it.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use common::{dunlin, failure, Scratch, Serving, DUNLIN};
use serde_json::Value;

/// Three calls of a server while it is captured with these arguments: two of them are answered.
fn captured(server: &Serving, arguments: &[&str]) -> Output {
    let mut child = Command::new(DUNLIN)
        .args(["capture", server.address(), "--count", "3"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    wait_for_words(&mut child);
    for payload in ["first", "a\tb\"c"] {
        let call = dunlin(&["call", server.address(), "1", payload]);
        assert_eq!(call.stdout, payload.as_bytes(), "{call:?}");
    }
    // Names of methods are asked for there, in words that this is not.
    failure(&dunlin(&["call", server.address(), "1024", "?"]), 1);
    child.wait_with_output().expect("it ends")
}

/// It says when it has begun, on standard error.
fn wait_for_words(child: &mut Child) {
    let errors = child.stderr.take().expect("standard error");
    let mut line = String::new();
    BufReader::new(errors).read_line(&mut line).expect("text");
    assert!(line.starts_with("capturing the calls of"), "{line}");
}

#[test]
fn calls_are_lines_or_objects() {
    let server = Serving::start("echo", &["--allow-capture"]);
    let text = String::from_utf8(captured(&server, &[]).stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].contains("handler 1: 5 B \"first\" -> answered in "),
        "{text}"
    );
    assert!(lines[0].ends_with("5 B \"first\""), "{text}");
    assert!(lines[1].contains(r#"5 B "a\tb\"c""#), "{text}");
    assert!(lines[2].contains("-> error "), "{text}");

    let text = String::from_utf8(captured(&server, &["--json", "--snap", "2"]).stdout);
    let text = text.expect("UTF-8");
    let calls: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(calls.len(), 3, "{text}");
    assert_eq!(calls[0]["request"], "fi", "{text}");
    assert_eq!(calls[0]["request_bytes"], 5, "{text}");
    assert_eq!(calls[0]["end"], "answered", "{text}");
    assert!(calls[0]["took_ns"].as_u64() > Some(0), "{text}");

    let one = captured(&server, &["--handler", "1", "--seconds", "15"]);
    assert_eq!(String::from_utf8_lossy(&one.stdout).lines().count(), 2);
    server.stop();
}

#[test]
fn a_file_is_read_by_tshark_with_the_dissector() {
    let server = Serving::start("echo", &["--allow-capture"]);
    let file = Scratch::new("calls.pcapng", b"");
    captured(&server, &["--write", file.path()]);
    server.stop();
    let bytes = std::fs::read(file.path()).expect("the file");
    assert_eq!(
        bytes[..4],
        [0x0a, 0x0d, 0x0d, 0x0a],
        "it begins a section of pcapng"
    );
    let dissector = dunlin(&["capture", "--dissector"]);
    let lua = Scratch::new("dunlin.lua", &dissector.stdout);
    let script = format!("lua_script:{}", lua.path());
    let tshark = |arguments: &[&str]| {
        let run = Command::new("tshark")
            .args(["-X", &script, "-r", file.path()])
            .args(arguments)
            .output();
        run.map(|output| String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let fields = [
        "-T",
        "fields",
        "-e",
        "dunlin.kind",
        "-e",
        "dunlin.handler",
        "-e",
        "dunlin.length",
    ];
    let Ok(text) = tshark(&fields) else {
        eprintln!("skipped: tshark is not installed");
        return;
    };
    let rows: Vec<_> = text.lines().collect();
    assert_eq!(
        rows[..5],
        ["0\t1\t5", "1\t1\t5", "0\t1\t5", "1\t1\t5", "0\t1024\t1"],
        "{text}"
    );
    assert!(rows[5].starts_with("2\t1024\t"), "{text}");
    // What belongs together is found; nothing is malformed, and no line of the dissector fails.
    let asked = tshark(&["-T", "fields", "-e", "dunlin.asked_in"]).unwrap();
    assert_eq!(asked, "\n1\n\n3\n\n5\n");
    let whole = tshark(&["-V"]).unwrap();
    for word in ["Malformed", "Lua Error", "Another version"] {
        assert!(!whole.contains(word), "{whole}");
    }
    assert!(whole.contains("Message of the error"), "{whole}");
    let failed = tshark(&["-Y", "dunlin.kind >= 2"]).unwrap();
    assert_eq!(failed.lines().count(), 1, "{failed}");
}

#[test]
fn who_may_not_or_cannot_is_told_why() {
    let server = Serving::start("echo", &[]);
    let words = failure(&dunlin(&["capture", server.address()]), 1);
    assert!(words.contains("--allow-capture"), "{words}");
    let words = failure(
        &dunlin(&["capture", server.address(), "-w", "/proc/nope"]),
        1,
    );
    assert!(words.contains("/proc/nope"), "{words}");
    failure(&dunlin(&["capture"]), 2);
    server.stop();

    let rules = b"[[allow]]\nwho = 'anyone'\ncall = ['*']\n";
    let rights = Scratch::new("rights.toml", rules);
    let guarded = ["--allow-capture", "--rights", rights.path()];
    let server = Serving::start("echo", &guarded);
    let words = failure(&dunlin(&["capture", server.address()]), 1);
    assert!(words.contains("no right to call capture"), "{words}");
    server.stop();
}
