//! Volumes by hand: made, exported, used by fio and QEMU where these are, checked, removed; and what is said when
//! something is wrong. No test asserts a time.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{assert_environment, dunlin, failure, object, Folder, Serving, DUNLIN};

/// An export, which ends with the test.
struct Exporting {
    child: Child,
    uri: String,
}

impl Exporting {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(DUNLIN)
            .args(["volume", "export"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let uri = line.trim().strip_prefix("exported as ").unwrap().to_owned();
        Self { child, uri }
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs a program where it is there.
fn other(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{program}: {output:?}");
            Some(said)
        }
        Err(error) => {
            // Past the capture of the test runner.
            let words = format!("skipped: {program}: {error}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
            None
        }
    }
}

#[test]
fn a_volume_is_made_used_checked_and_removed() {
    let scratch = Folder::new("volume");
    let logs: Vec<String> = (0..2)
        .map(|n| scratch.path(&format!("blocks{n}")))
        .collect();
    let servers = [
        Serving::start("blocks", &["--log", &logs[0], "--durability", "process"]),
        Serving::start("blocks", &["--log", &logs[1], "--durability", "process"]),
        Serving::start("blocks", &["--log", "memory"]),
    ];
    let addresses = servers
        .iter()
        .map(Serving::address)
        .collect::<Vec<_>>()
        .join(",");
    let volume = |action: &str, rest: &[&str]| {
        dunlin(&[&["volume", action, "birds", "--server", &addresses], rest].concat())
    };
    let made = text(&volume("create", &["--size", "16MiB"]));
    assert_eq!(
        made,
        "birds: 4096 blocks of 4096 bytes, 3 copies on 3 servers\n"
    );
    let words = failure(&volume("create", &["--size", "16MiB"]), 1);
    assert!(
        words.contains("the volume 'birds' already exists"),
        "{words}"
    );
    let socket = format!("unix:{}", scratch.path("socket"));
    let exporting = Exporting::start(&["birds", "--server", &addresses, "--nbd", &socket]);
    let uri = exporting.uri.as_str();
    if let Some(said) = other("nbdinfo", &["--size", uri]) {
        assert_eq!(said.trim(), "16777216");
    }
    let steps = [
        "write -P 7 64k 256k",
        "read -P 7 64k 256k",
        "discard 64k 8k",
        "write -z 128k 8k",
        "read -P 0 64k 8k",
        "read -P 0 128k 8k",
        "read -P 7 72k 56k",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw", uri];
    arguments.extend(steps.iter().flat_map(|step| ["-c", step]));
    if let Some(said) = other("qemu-io", &arguments) {
        assert!(!said.contains("failed"), "{said}");
    }
    if other("fio", &["--enghelp=nbd"]).is_some_and(|said| said.contains("uri")) {
        let uri = format!("--uri={uri}");
        let verified = [
            "--name=v",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bs=4k",
            "--size=4m",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_state_save=0",
        ];
        other("fio", &verified);
    }
    drop(exporting);
    let checked = text(&volume("check", &[]));
    assert!(
        checked.starts_with("birds: 4096 blocks compared, "),
        "{checked}"
    );
    let checked = object(&volume("check", &["--json"]));
    assert_eq!(
        (&checked["name"], &checked["blocks"]),
        (&"birds".into(), &4096.into())
    );
    assert_eq!(checked["faulty"], 0, "{checked}");
    assert_eq!(checked["faults"], serde_json::json!([]), "{checked}");
    assert_environment(&checked);
    assert_eq!(text(&volume("remove", &[])), "birds is removed\n");
    let made = object(&volume("create", &["--size", "16MiB", "--json"]));
    for (key, is) in [
        ("blocks", 4096),
        ("block_bytes", 4096),
        ("copies", 3),
        ("servers", 3),
    ] {
        assert_eq!(made[key], is, "{made}");
    }
    text(&volume("remove", &[]));
    let words = failure(&volume("check", &[]), 1);
    assert!(words.contains("no volume 'birds'"), "{words}");
    servers.into_iter().for_each(|server| server.stop());
}

#[test]
fn what_is_wrong_is_said() {
    let server = Serving::start("blocks", &["--log", "memory", "--capacity", "32MiB"]);
    let one = |rest: &[&str]| {
        dunlin(
            &[
                &["volume", "create", "birds", "--server", server.address()],
                rest,
            ]
            .concat(),
        )
    };
    for (size, code, why) in [
        ("4097", 2, "not a multiple of"),
        ("0", 2, "from 4096 to"),
        ("1PiB", 2, "write bytes as a number"),
        ("1GiB", 1, "(capacity)"),
    ] {
        let words = failure(&one(&["--size", size]), code);
        assert!(words.contains(why), "{size}: {words}");
    }
    let two = format!("{0},{0}", server.address());
    let two = [
        "volume", "create", "birds", "--size", "1MiB", "--server", &two,
    ];
    let words = failure(&dunlin(&two), 2);
    assert!(
        words.contains("number of servers 2 for 3 copies"),
        "{words}"
    );
    let export = |nbd: &str| {
        let server = server.address();
        dunlin(&[
            "volume", "export", "birds", "--server", server, "--nbd", nbd,
        ])
    };
    let words = failure(&export("/run/birds"), 2);
    assert!(words.contains("unix:PATH or tcp:HOST:PORT"), "{words}");
    let words = failure(&export("tcp:127.0.0.1:0"), 1);
    assert!(words.contains("no volume 'birds'"), "{words}");
    let words = failure(&one(&["--size", "1GiB"]), 1);
    assert!(words.contains("its --capacity suffices"), "{words}");
    text(&one(&["--size", "64KiB"]));
    let words = failure(&one(&["--size", "64KiB"]), 1);
    assert!(words.contains("`dunlin volume remove`"), "{words}");
    // A file of the user's is not taken for a socket that somebody has left behind.
    let scratch = Folder::new("volume-no-socket");
    let file = scratch.path("letters");
    std::fs::write(&file, "mine").unwrap();
    let words = failure(&export(&format!("unix:{file}")), 1);
    assert!(words.contains("a file that is not a socket?"), "{words}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let serve = |log: &str| {
        dunlin(&[
            "serve",
            "blocks",
            "--listen",
            "dunlin://127.0.0.1:0",
            "--log",
            log,
        ])
    };
    let words = failure(&serve(&file), 1);
    assert!(words.contains("--log must be a directory"), "{words}");
    server.stop();
    let words = failure(&dunlin(&["serve", "blocks"]), 2);
    assert!(words.contains("--log DIR"), "{words}");
    let scratch = Folder::new("volume-damaged");
    let folder = scratch.path("blocks");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(format!("{folder}/log0000000001"), [7; 100]).unwrap();
    let damaged = [
        "serve",
        "blocks",
        "--listen",
        "dunlin://127.0.0.1:0",
        "--log",
        &folder,
    ];
    let words = failure(&dunlin(&damaged), 1);
    assert!(words.contains("is damaged at byte 0"), "{words}");
    let nobody = [
        "volume",
        "check",
        "birds",
        "--server",
        "dunlin://127.0.0.1:1",
        "--patience",
        "1",
    ];
    let words = failure(&dunlin(&nobody), 1);
    assert!(
        words.contains("is `dunlin serve blocks` running there?"),
        "{words}"
    );
}
