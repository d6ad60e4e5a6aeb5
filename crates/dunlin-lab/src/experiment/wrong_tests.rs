//! Wrong files and their error messages.

use std::path::Path;

use super::{Experiment, Settings};

/// A correct file; a wrong one differs by one line.
const RIGHT: &str = r#"
[topology]
switch = "sx1012"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 4
[server]
host = "server"
pollers = 4
[[clients]]
hosts = "clients"
threads = 2
preset = "flock"
[[faults]]
kind = "loss"
share = "1%"
[run]
duration = "100us"
[sweep]
"clients.threads" = [1, 2]
[print]
columns = ["rate"]
[plot]
x = "clients.threads"
"#;

/// The text replaced in [`RIGHT`], its replacement, and the message.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "[topology]",
        "[topology",
        "my.toml:2:10: this is not TOML: unclosed table, expected `]`",
    ),
    (
        "threads = 2",
        "threads = 2\nthink = \"99999999999s\"",
        "my.toml:15:9: `clients.think` is \"99999999999s\": it must be a time in ns, us, ms, s, from 0ns to 3600s",
    ),
    (
        "[topology]",
        "[topologie]",
        "my.toml:2:2: unknown `topologie`; did you mean `topology`? (there are: title, \
         says, topology, server, clients, flows, verbs, faults, run, print, plot, cases, expect, nic, \
         cpu, switch, sweep, quick)",
    ),
    (
        "pollers = 4",
        "polers = 4",
        "my.toml:11:1: unknown `server.polers`; did you mean `pollers`? (there are: \
         host, pollers, handler, max_active, group, slice, warm_up_beside, datagram_messages)",
    ),
    (
        "pollers = 4",
        "pollers = \"four\"",
        "my.toml:11:11: `server.pollers` is \"four\": it must be a whole number from 1 \
         to 256",
    ),
    (
        "pollers = 4",
        "pollers = 0",
        "my.toml:11:11: `server.pollers` is 0: it must be a whole number from 1 to 256",
    ),
    (
        "pollers = 4",
        "pollers = 200",
        "my.toml:11:11: `server.pollers` is 200: its host has 32 cores",
    ),
    (
        "host = \"server\"",
        "# none",
        "my.toml:9:1: [server] has no `host`, which must be there: a text",
    ),
    (
        "host = \"server\"",
        "host = \"sever\"",
        "my.toml:10:8: `server.host` is \"sever\": no group of hosts; did you mean \
         `server`? (there are: server, clients)",
    ),
    (
        "switch = \"sx1012\"",
        "switch = \"sx1021\"",
        "my.toml:3:10: `topology.switch` is \"sx1021\": it must be one of sx6036, \
         sx1012, sb7890, z9264f; did you mean `sx1012`?",
    ),
    (
        "preset = \"flock\"",
        "preset = \"floc\"",
        "my.toml:15:10: `clients.preset` is \"floc\": it must be one of plain, flock, \
         qp-per-thread, spinlock-2, spinlock-4, flock-no-coalescing, \
         flock-no-scheduling, fasst, scalerpc, rawwrite, selfrpc, erpc, herd, flor, \
         xrdma, rb2, auto; did you mean `flock`?",
    ),
    (
        "hosts = \"clients\"",
        "hosts = \"clients.4\"",
        "my.toml:13:9: `clients.hosts` is \"clients.4\": the group has the hosts \
         clients.0 to clients.3",
    ),
    (
        "duration = \"100us\"",
        "duration = 100",
        "my.toml:20:12: `run.duration` is 100: it must be a time in ns, us, ms, s, from \
         1us to 100s",
    ),
    (
        "duration = \"100us\"",
        "duration = \"100 minutes\"",
        "my.toml:20:12: `run.duration` is \"100 minutes\": it must be a time in ns, us, \
         ms, s, from 1us to 100s",
    ),
    (
        "share = \"1%\"",
        "share = \"120%\"",
        "my.toml:18:9: `faults.share` is \"120%\": it must be a share in %, or a \
         number, from 0 to 1",
    ),
    (
        "share = \"1%\"",
        "factor = 3",
        "my.toml:18:10: `faults.factor` is there: a fault of the kind \"loss\" does not \
         have it",
    ),
    (
        "kind = \"loss\"",
        "kind = \"lost\"",
        "my.toml:17:8: `faults.kind` is \"lost\": it must be one of loss, delay, \
         duplicate, slow, crash, partition, no-dma, slow-dma; did you mean `loss`?",
    ),
    (
        "kind = \"loss\"\nshare = \"1%\"",
        "kind = \"no-dma\"\nhosts = \"server\"",
        "my.toml:17:8: a fault of the kind \"no-dma\" needs `to`",
    ),
    (
        "kind = \"loss\"\nshare = \"1%\"",
        "kind = \"crash\"",
        "my.toml:17:8: a fault of the kind \"crash\" needs `hosts`",
    ),
    (
        "columns = [\"rate\"]",
        "columns = [\"rates\"]",
        "my.toml:24:11: `print.columns` is \"rates\": no such column; did you mean \
         `rate`? (there are: rate, calls, failed, bandwidth, mean, p50, p90, p99, p999, \
         max, coalescing, processes, flows, unfinished, fct_mean, fct_p50, fct_p95, fct_p99, fct_max, goodput, \
         verbs, verbs_p50, verbs_p99, nic_started, nic_answered, nic_received, nic_fetched, \
         nic_context_misses, llc_misses, busy_cores, server_busy, server_out, server_packets, context_misses, pcie_reads, \
         allocating_writes, active, retransmissions, timeouts, receiver_drops, \
         fault_drops, nic_pauses, notifications, switch_drops, switch_marks, \
         switch_pauses, switch_buffer, queue_max, queue_mean)",
    ),
    (
        "columns = [\"rate\"]",
        "columns = [\"rate.nobody\"]",
        "my.toml:24:11: `print.columns` is \"rate.nobody\": no group of clients (there \
         are: 0)",
    ),
    (
        "x = \"clients.threads\"",
        "x = \"time\"",
        "my.toml:26:5: `plot.x` is \"time\": it needs a time series: give `print.every`",
    ),
    (
        "\"clients.threads\" = [1, 2]",
        "\"clients.thread\" = [1, 2]",
        "my.toml:22:1: no key `clients.thread`; did you mean `threads`? (there are: \
         name, hosts, processes, threads, preset, lanes, dispatcher, outstanding, together, \
         request, response, large, large_every, think, rate, arrivals, deadline, loss_timeout, \
             datagram_messages)",
    ),
    (
        "\"clients.threads\" = [1, 2]",
        "\"clients.threads\" = [1, \"two\"]",
        "my.toml:22:25: `clients.threads` is \"two\": it must be a whole number from 1 \
         to 1024",
    ),
    (
        "\"clients.threads\" = [1, 2]",
        "\"clients.threads\" = 2",
        "my.toml:22:21: `sweep.clients.threads` is 2: it must be a list of values",
    ),
    (
        "threads = 2",
        "threads = 2\nthink = \"1us\"\nrate = \"1k/s\"",
        "my.toml:15:9: `clients.think` is 1µs: calls of an open loop (`rate`) do not \
         wait for answers: leave one out",
    ),
    (
        "name = \"clients\"",
        "name = \"server\"",
        "my.toml:7:8: `topology.hosts.name` is \"server\": another group has this name",
    ),
    (
        "columns = [\"rate\"]",
        "columns = [\"fct_p50\"]",
        "my.toml:24:11: `print.columns` is \"fct_p50\": the experiment has no flows",
    ),
    (
        "[[faults]]",
        "[[flows]]\nsenders = \"clients\"\nsize = \"1MB\"\n[[faults]]",
        "my.toml:16:1: [[flows]] needs `receivers`, or a `file` with flows",
    ),
    (
        "[[faults]]",
        "[[flows]]\nsenders = \"clients.1\"\nreceivers = \"clients.1\"\nsize = 5\n[[faults]]",
        "my.toml:18:13: `flows.receivers` is the sender itself: no flow is left",
    ),
    (
        "[[faults]]",
        "[[flows]]\nsenders = \"clients\"\nreceivers = \"server\"\nsize = 5\ncount = 2000\n[[faults]]",
        "my.toml:20:9: `flows.count` is too many: with it there are 4097 flows, 4096 at most",
    ),
    (
        "[[faults]]",
        "[[flows]]\nfile = \"list.flows\"\nsize = \"1MB\"\n[[faults]]",
        "my.toml:18:8: `flows.size` is there: a flow of a `file` has its own",
    ),
    (
        "[[faults]]",
        "[[flows]]\nfile = \"no-such.flows\"\n[[faults]]",
        "my.toml:17:8: `flows.file` is \"no-such.flows\": No such file or directory (os error 2)",
    ),
    (
        "[[faults]]",
        "[[topology.cables]]\nswitches = [0, 1]\n[[faults]]",
        "my.toml:17:12: `topology.cables.switches` is [0, 1]: there are 1 switches, from 0",
    ),
    (
        "[[faults]]",
        "[[topology.cables]]\nswitches = [0]\n[[faults]]",
        "my.toml:17:12: `topology.cables.switches` is a list: it must be a list of two \
         whole numbers or more, each from 0 to 63",
    ),
    (
        "[[clients]]",
        "[clients]",
        "my.toml:12:1: `clients` is a table: it must be tables, each begun by \
         [[clients]]",
    ),
];

fn complaint(text: &str, set: &[&str]) -> Option<String> {
    let settings = Settings {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        ..Settings::default()
    };
    let parsed = Experiment::parse("my.toml", text, Path::new(""), &settings);
    parsed.err().map(|wrong| wrong.to_string())
}

#[test]
fn the_right_file_is_right() {
    assert_eq!(complaint(RIGHT, &[]), None);
}

#[test]
fn wrong_files_are_told_where_and_what() {
    assert!(WRONG.len() >= 20);
    let mut differ = Vec::new();
    for (right, wrong, message) in WRONG {
        assert!(RIGHT.contains(right), "{right}");
        let said = complaint(&RIGHT.replacen(right, wrong, 1), &[]).unwrap_or_default();
        if said != *message {
            differ.push(format!("{wrong}\n  said:   {said}\n  wanted: {message}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Flows from a file, and errors in it: the message names the line of that file.
#[test]
fn a_wrong_list_of_flows_is_told_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.flows");
    let flows = "[[flows]]\nfile = \"list.flows\"\nfirst = 1\nzero = \"2s\"\n[[faults]]";
    let text = RIGHT.replacen("[[faults]]", flows, 1);
    let cases = [
        ("1\n1 2 3 100 500 2.5\n", ""),
        (
            "1\n1 2 3 100 500\n",
            "line 2: expected `SOURCE DESTINATION GROUP PORT BYTES START`, with START in seconds: missing start",
        ),
        (
            "1\n1 9 3 100 500 2\n",
            "line 2: no such node 9: hosts are 1 to 5",
        ),
        (
            "1\n0 2 3 100 500 2\n",
            "line 2: no such node 0: hosts are 1 to 5",
        ),
        (
            "1\n2 2 3 100 500 2\n",
            "line 2: a flow from a host to itself",
        ),
        (
            "1\n1 2 3 100 0 2\n",
            "line 2: the length of a flow must be from 1 to 1099511627776 bytes, not 0",
        ),
        (
            "1\n1 2 3 100 500 1\n",
            "line 2: the flow begins -1000000000 ns after `zero`: it must be 0 to 1000000000000",
        ),
        ("0\n", "there is no flow in it"),
    ];
    for (list, message) in cases {
        std::fs::write(&file, list).unwrap();
        let parsed = Experiment::parse("my.toml", &text, folder.path(), &Settings::default());
        let said = parsed
            .err()
            .map_or(String::new(), |wrong| wrong.to_string());
        match message {
            "" => assert_eq!(said, ""),
            _ => assert_eq!(
                said,
                format!("my.toml:17:8: `flows.file` is \"list.flows\": {message}")
            ),
        }
    }
}

#[test]
fn somebody_has_to_do_something() {
    let flows = "[[flows]]\nsenders = \"clients\"\nreceivers = \"server\"\nsize = \"1MB\"\n";
    let without = |begin: &str, end: &str, text: &str| {
        let (before, rest) = text.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        format!("{before}{end}{after}")
    };
    let neither = without("[server]", "[[faults]]", RIGHT);
    let neither = neither.replace("\"clients.threads\" = [1, 2]", "\"run.seed\" = [1, 2]");
    let neither = neither.replace("x = \"clients.threads\"", "x = \"run.seed\"");
    let cases = [
        (neither.clone(), "my.toml: there is no table [server]"),
        (
            neither.replace("[[faults]]", "[server]\nhost = \"server\"\n[[faults]]"),
            "my.toml: there is no table [[clients]]",
        ),
        (
            neither.replace("[[faults]]", &format!("{flows}[[faults]]")),
            "my.toml:21:11: `print.columns` is \"rate\": the experiment has no clients",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(complaint(&text, &[]).unwrap_or_default(), message);
    }
    for (key, message) in [
        ("clients", "my.toml: there is no table [[clients]]"),
        (
            "topology.hosts",
            "my.toml: there is no table [[topology.hosts]]",
        ),
    ] {
        let tables = format!("[[{key}]]");
        let (before, rest) = RIGHT.split_once(&tables).unwrap();
        let (_, after) = rest.rsplit_once(&tables).unwrap_or(("", rest));
        let (_, after) = after.split_once("\n[").unwrap();
        let none = match key.strip_prefix("topology.") {
            Some(hosts) => format!("{before}{hosts} = []\n[{after}"),
            None => format!("{key} = []\n{before}[{after}"),
        };
        let without = none.replace("\"clients.threads\" = [1, 2]", "\"run.seed\" = [1, 2]");
        let without = without.replace("x = \"clients.threads\"", "x = \"run.seed\"");
        assert_eq!(
            complaint(&without, &[]).unwrap_or_default(),
            message,
            "{without}"
        );
    }
    let alone = neither.replace("[[faults]]", &format!("{flows}[[faults]]"));
    assert_eq!(complaint(&alone, &["print.columns=fct_p99"]), None);
}

#[test]
fn wrong_settings_are_told_as_they_were_given() {
    let cases = [
        (
            "clients.treads=2",
            "--set clients.treads=2: no key `clients.treads`; did you mean `threads`? (there are: \
             name, hosts, processes, threads, preset, lanes, dispatcher, outstanding, together, request, \
             response, large, large_every, think, rate, arrivals, deadline, loss_timeout, \
             datagram_messages)",
        ),
        (
            "server.pollers=many",
            "--set server.pollers=many: `server.pollers` is \"many\": it must be a whole number from 1 to 256",
        ),
        ("server.pollers", "--set server.pollers: it must be KEY=VALUE"),
        (
            "clients.7.threads=2",
            "--set clients.7.threads=2: no key `clients.7.threads` (there are: 0)",
        ),
        (
            "nic.tx_wqe=2",
            "--set nic.tx_wqe=2: unknown `nic.tx_wqe`; did you mean `tx_wqe_ns`?",
        ),
    ];
    for (set, message) in cases {
        let said = complaint(RIGHT, &[set]).unwrap_or_default();
        // There are many parameters of a NIC.
        let said = said
            .split(" (there are: tx_wqe_ns")
            .next()
            .unwrap_or_default();
        assert_eq!(said, message);
    }
}

#[test]
fn settings_reach_every_key() {
    for set in [
        "clients.threads=8",
        "clients.0.threads=8",
        "topology.hosts.clients.nic=connectx-3",
        "topology.hosts.nic=connectx-3",
        "nic.tx_wqe_ns=20",
        "cpu.copy_ns=7.5",
        "switch.lossless=0",
        "print.every=10us",
        "print.columns=[\"p50\", \"rate\"]",
        "faults.share=0.5",
        "title=another",
        "run.seed=7",
    ] {
        assert_eq!(complaint(RIGHT, &[set]), None, "{set}");
    }
}

#[test]
fn settings_change_the_sweep() {
    let size = |text: &str, set: &str| {
        let settings = Settings {
            set: vec![set.to_owned()],
            ..Settings::default()
        };
        let parsed = Experiment::parse("my.toml", text, Path::new(""), &settings);
        parsed.expect("right").size().0
    };
    let nested = RIGHT.replace("\"clients.threads\" = [1, 2]", "clients.threads = [1, 2]");
    for text in [RIGHT, &nested] {
        assert_eq!(size(text, "title=as it is"), 2);
        assert_eq!(size(text, "clients.threads=8"), 1);
        assert_eq!(size(text, "sweep.clients.threads=[1, 2, 3]"), 3);
        assert_eq!(size(text, "sweep.run.seed=[1, 2, 3]"), 6);
    }
    let said = complaint(RIGHT, &["sweep.clients.threads=[1, 0]"]).unwrap_or_default();
    let wanted = "--set sweep.clients.threads=[1, 0]: `clients.threads` is 0: \
                  it must be a whole number from 1 to 1024";
    assert_eq!(said, wanted);
}
