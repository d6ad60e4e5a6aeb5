//! Wrong calls end with 2 and say why, before anything is done; what fails on the way ends with 1. No test asserts a
//! time.

mod common;

use common::{dunlin, failure, object, Serving};

#[test]
fn addresses_that_are_none() {
    for (address, why) in [
        ("127.0.0.1:99999", "invalid TCP port `99999`"),
        ("http://host", "unsupported scheme `http://`"),
        ("", "missing host"),
        ("::1:7711", "not an IPv6 address in brackets"),
        ("dunlin://[::1]:7711/path", "unexpected path `/path`"),
    ] {
        for arguments in [
            &["call", address, "1", "hello"][..],
            &["kv", "--address", address, "get", "bird"],
            &["top", address],
            &["doctor", address],
            &["perf", "rpc", "--address", address],
            &["perf", "rpc", "--address", address, "--processes", "2"],
            &["serve", "echo", "--listen", address],
        ] {
            let words = failure(&dunlin(arguments), 2);
            assert!(words.contains(why), "{arguments:?}: {words}");
        }
    }
}

#[test]
fn devices_and_presets_that_are_none() {
    for command in [
        &["call", "127.0.0.1:1", "1", "hello"][..],
        &["serve", "echo", "--listen", "127.0.0.1:0"],
        &["doctor", "127.0.0.1:1"],
        &["demo"],
        &["perf", "rpc"],
        &["perf", "rpc", "--processes", "2"],
        &["perf", "verbs"],
        &["perf", "ring"],
    ] {
        let with = |name| dunlin(&[command, &["--device", name]].concat());
        let words = failure(&with("nonsense"), 2);
        assert!(words.contains("nonsense"), "{words}");
        assert!(
            words.contains("devices are shm, roce, ibv and ibv:NIC"),
            "{words}"
        );
    }
    for command in [
        &["call", "127.0.0.1:1", "1", "hello"][..],
        &["perf", "rpc", "--processes", "2"],
    ] {
        let words = failure(&dunlin(&[command, &["--preset", "nonsense"]].concat()), 2);
        assert!(words.contains("unknown preset 'nonsense'"), "{words}");
    }
}

#[test]
fn times_that_are_none() {
    for time in ["nan", "0", "-1", "1e400", "soon"] {
        for arguments in [
            &["call", "127.0.0.1:1", "1", "hello", "--deadline", time][..],
            &["top", "127.0.0.1:1", "--interval", time],
            &["demo", "--seconds", time],
            &["perf", "rpc", "--seconds", time],
            &["perf", "verbs", "--seconds", time],
            &["perf", "ring", "--seconds", time],
            &["perf", "limits", "--seconds", time],
        ] {
            let words = failure(&dunlin(arguments), 2);
            let said = "the number of seconds must be more than 0 and at most 86400";
            let said = words.contains(said) || words.contains("is not a number of seconds");
            assert!(said, "{arguments:?}: {words}");
        }
    }
}

#[test]
fn numbers_that_cannot_be() {
    let words = failure(&dunlin(&["perf", "ring", "--slots", "3"]), 2);
    assert!(words.contains("the number of slots is 3"), "{words}");
    for more in [&[][..], &["--processes", "2"]] {
        let arguments = [&["perf", "rpc", "--size", "2000000000"], more].concat();
        let output = dunlin(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("limit is 16777216 bytes"), "{words}");
    }
    let response = dunlin(&["perf", "rpc", "--response-size", "2GiB"]);
    let words = failure(&response, 2);
    assert!(
        words.contains(
            "--response-size 2147483648 is too large: the server's limit is 16777216 bytes"
        ),
        "{words}"
    );
    for arguments in [
        &["--fairness", "0.5"][..],
        &["--fairness", "2", "--processes", "2"],
        &["--fairness", "-1", "--processes", "2"],
        &["--sweep", "--size", "64"],
        &["--sweep", "--processes", "2"],
        &["--histogram", "--against", "limits"],
    ] {
        let arguments = [&["perf", "rpc"][..], arguments].concat();
        failure(&dunlin(&arguments), 2);
    }
    let scans = ["perf", "kv", "--workload", "scan", "--value-size", "64KiB"];
    let words = failure(&dunlin(&scans), 2);
    assert!(words.contains("at most 1048576 bytes"), "{words}");
    for core in ["1000", "99999999999"] {
        let serve = ["serve", "echo", "--listen", "127.0.0.1:0", "--pin", core];
        let words = failure(&dunlin(&serve), 2);
        assert!(words.contains("cannot run on"), "{words}");
    }
}

#[test]
fn outputs_that_cannot_be_written_are_said_before_the_work() {
    let file = common::Scratch::new("a-file", b"");
    let below = format!("{}/folder", file.path());
    for folder in ["/proc/nope", "/proc", &below] {
        // All figures at full length: hours, were the folder not looked at first.
        let lab = ["lab", "run", "--threads", "1", "--out", folder];
        let sweep = [
            "perf",
            "ring",
            "--sweep",
            "--seconds",
            "80000",
            "--out",
            folder,
        ];
        for arguments in [&lab[..], &sweep] {
            let output = common::bounded(arguments, std::process::Stdio::null());
            let words = failure(&output, 1);
            assert!(words.contains(folder), "{arguments:?}: {words}");
        }
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_exit_code_1_of_doctor() {
    for more in [&[][..], &["--json"]] {
        let output = dunlin(&[&["doctor", "127.0.0.1:1"], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("cannot use dunlin://127.0.0.1:1"), "{words}");
        // What it found is said all the same.
        assert!(String::from_utf8_lossy(&output.stdout).contains("missing"));
        if !more.is_empty() {
            object(&output);
        }
    }
}

#[test]
fn what_cannot_be_is_said_in_words() {
    let echo = Serving::start("echo", &[]);
    let words = failure(&dunlin(&["kv", "--address", echo.address(), "get", "x"]), 1);
    assert!(words.contains("has no key-value store"), "{words}");
    assert!(words.contains("dunlin serve kv"), "{words}");
    let port = echo.address().trim_start_matches("dunlin://").to_owned();
    let serve = [
        "serve",
        "echo",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        &port,
    ];
    let words = failure(&dunlin(&serve), 1);
    assert!(words.contains("in use by another process"), "{words}");
    // An address of a network that is for examples only.
    let words = failure(&dunlin(&["serve", "echo", "--listen", "203.0.113.7:0"]), 1);
    assert!(
        words.contains("no network interface of this host") && words.contains("203.0.113.7"),
        "{words}"
    );
    echo.stop();
}

#[test]
fn places_that_are_something_else() {
    let file = common::Scratch::new("no-folder", b"");
    let (file, here) = (file.path(), "dunlin://127.0.0.1:0");
    for (arguments, why) in [
        (
            &["serve", "meta", "--listen", here, "--store", file][..],
            "not a directory",
        ),
        (
            &["serve", "blocks", "--listen", here, "--log", file],
            "not a directory",
        ),
        (&["mount", "dunlin://127.0.0.1:1", file], "not a directory"),
        (
            &["mount", "dunlin://127.0.0.1:1", "/no/such/folder"],
            "/no/such/folder: No such file",
        ),
        (&["fsck", file], "no store"),
    ] {
        let words = failure(&dunlin(arguments), 1);
        assert!(words.contains(why), "{arguments:?}: {words}");
    }
}

#[test]
fn a_store_that_another_has_open() {
    let store = std::env::temp_dir().join(format!("dunlin-taken-{}", std::process::id()));
    let path = store.to_str().expect("UTF-8");
    let serving = Serving::start("meta", &["--store", path]);
    for arguments in [
        &["serve", "meta", "--listen", "127.0.0.1:0", "--store", path][..],
        &["fsck", path],
    ] {
        let words = failure(&dunlin(arguments), 1);
        let said = format!("{path}: in use by another process");
        assert!(words.contains(&said), "{arguments:?}: {words}");
    }
    drop(serving);
    std::fs::remove_dir_all(&store).unwrap();
}

/// A user who asks for a log believes that there is one.
#[test]
fn options_of_another_service_are_refused() {
    for (service, option, value, of) in [
        ("kv", "--log", "/nowhere", "`store`, `blocks`"),
        ("kv", "--table", "accounts:1:8", "`store`"),
        (
            "echo",
            "--durability",
            "process",
            "`meta`, `data`, `blocks`",
        ),
        ("store", "--memory", "1GiB", "`kv`"),
        ("meta", "--size", "1GiB", "`data`"),
    ] {
        let serve = ["serve", service, "--listen", "127.0.0.1:0", option, value];
        let words = failure(&dunlin(&serve), 2);
        let why = format!("{option} cannot be used with `serve {service}`; it is for {of}");
        assert!(words.contains(&why), "{words}");
    }
}

#[test]
fn tables_of_others_are_not_measured_on() {
    let store = Serving::start("store", &["--table", "accounts:100:8"]);
    let txn = ["txn", "--address", store.address()];
    let put = dunlin(&[&txn[..], &["put", "accounts", "1", "100"]].concat());
    assert!(put.status.success(), "{put:?}");
    let perf = [
        "perf",
        "txn",
        "--address",
        store.address(),
        "--seconds",
        "1",
    ];
    let words = failure(&dunlin(&perf), 2);
    assert!(words.contains("available: accounts"), "{words}");
    assert!(words.contains("--load smallbank"), "{words}");
    let get = dunlin(&[&txn[..], &["get", "accounts", "1"]].concat());
    assert_eq!(String::from_utf8_lossy(&get.stdout), "accounts\t1\t100\n");
}

#[test]
fn a_server_of_something_else_is_not_said_to_lack_memory() {
    let echo = Serving::start("echo", &[]);
    let perf = ["perf", "kv", "--address", echo.address(), "--keys", "10"];
    let words = failure(&dunlin(&perf), 1);
    assert!(
        words.contains("10 of 10 entries were not stored, the first with: "),
        "{words}"
    );
    assert!(!words.contains("memory"), "{words}");
    echo.stop();
}

#[test]
fn a_transaction_on_what_is_not_there_or_too_large() {
    let store = Serving::start("store", &["--table", "accounts:100:8"]);
    let txn = |words: &str| {
        let address = ["txn", "--address", store.address()];
        let words: Vec<&str> = words.split(' ').collect();
        dunlin(&[&address[..], &words].concat())
    };
    let words = failure(&txn("get nope 1"), 2);
    assert!(words.contains("available: accounts"), "{words}");
    let most = i64::MAX;
    let put = txn(&format!("put accounts 1 {most} put accounts 2 7"));
    assert!(put.status.success(), "{put:?}");
    let words = failure(&txn("add accounts 2 1 add accounts 1 1"), 1);
    assert!(
        words.contains(&format!("accounts 1: the sum of {most} and 1")),
        "{words}"
    );
    let get = txn("get accounts 1 get accounts 2");
    let left = format!("accounts\t1\t{most}\naccounts\t2\t7\n");
    assert_eq!(String::from_utf8_lossy(&get.stdout), left);
}

#[test]
fn servers_that_could_not_serve() {
    let membership = common::Folder::new("no-members");
    let place = membership.path("who");
    let replicated = ["--membership", &place, "--table", "a:10:8"];
    let (table, store) = (["--table", "a:10:8"], "store");
    for (service, options, more, why) in [
        (
            store,
            &table[..],
            &["--machine", "3", "--machines", "3"][..],
            "machine number 3 of 3",
        ),
        (
            store,
            &table,
            &["--replicas", "9"],
            "number of copies: 9 on 1 machines",
        ),
        (
            store,
            &replicated,
            &["--replicas", "9"],
            "number of copies: 9 on 1 machines",
        ),
        (store, &table, &table, "name 'a' is used twice"),
        (store, &[], &["--table", "a:99999999999999:8"], "at most"),
        (
            "echo",
            &[],
            &["--max-connections", "0"],
            "no client could connect",
        ),
        (
            "kv",
            &[],
            &["--keys", "99999999999999"],
            "--keys 99999999999999",
        ),
    ] {
        let serve = ["serve", service, "--listen", "127.0.0.1:0"];
        let words = failure(&dunlin(&[&serve[..], options, more].concat()), 2);
        assert!(words.contains(why), "{more:?}: {words}");
    }
    let sort = ["sort", "run", "in", "out", "--preset", "fasst"];
    let words = failure(&dunlin(&sort), 2);
    assert!(words.contains("fasst uses datagrams"), "{words}");
    let words = failure(&dunlin(&["perf", "rpc", "--against", "limits,plain"]), 2);
    assert!(words.contains("`limits` cannot be combined"), "{words}");
}
