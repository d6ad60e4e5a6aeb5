//! Wrong tables of verbs and their error messages.

use std::path::Path;

use super::super::{Experiment, Settings};

/// A correct file; a wrong one differs by one piece.
const RIGHT: &str = r#"
[topology]
switch = "sx1012"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 4
[[verbs]]
requesters = "clients"
targets = "server"
operation = "write"
transport = "rc"
size = "32B"
threads = 2
outstanding = 8
[run]
warm_up = "10us"
duration = "50us"
"#;

/// The text replaced in [`RIGHT`], its replacement, and the message.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "operation = \"write\"",
        "# none",
        "my.toml:9:1: [verbs] has no `operation`, which must be there: one of read, write, send, fetch-add",
    ),
    (
        "operation = \"write\"",
        "operation = \"wriet\"",
        "my.toml:12:13: `verbs.operation` is \"wriet\": it must be one of read, write, send, fetch-add; did you mean `write`?",
    ),
    (
        "requesters = \"clients\"",
        "# none",
        "my.toml:9:1: [verbs] has no `requesters`, which must be there: a text, or a list of texts",
    ),
    (
        "targets = \"server\"",
        "targets = \"sever\"",
        "my.toml:11:11: `verbs.targets` is \"sever\": no group of hosts; did you mean `server`? (there are: server, \
         clients)",
    ),
    (
        "targets = \"server\"",
        "targets = \"clients.1\"",
        "my.toml:11:11: `verbs.targets` is \"clients.1\": host 2 is a requester and has no target but itself",
    ),
    (
        "transport = \"rc\"",
        "transport = \"rd\"",
        "my.toml:13:13: `verbs.transport` is \"rd\": it must be one of rc, uc, ud",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"",
        "operation = \"read\"\ntransport = \"uc\"",
        "my.toml:13:13: `verbs.transport` is \"uc\": READs need rc",
    ),
    (
        "transport = \"rc\"",
        "transport = \"ud\"",
        "my.toml:13:13: `verbs.transport` is \"ud\": WRITEs need rc or uc",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"",
        "operation = \"fetch-add\"\ntransport = \"uc\"",
        "my.toml:13:13: `verbs.transport` is \"uc\": atomics need rc",
    ),
    (
        "operation = \"write\"",
        "operation = \"fetch-add\"",
        "my.toml:14:8: `verbs.size` is 32 B: an atomic is of 8 B",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\ndestinations = 2",
        "my.toml:17:16: `verbs.destinations` is 2: a queue pair of rc and uc has one peer: it is for ud",
    ),
    (
        "size = \"32B\"",
        "size = \"2MiB\"",
        "my.toml:14:8: `verbs.size` is \"2MiB\": it must be a size in B, KiB, MiB, GiB, kB, MB, GB, or a number, from \
         1B to 1MiB",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"\nsize = \"32B\"",
        "operation = \"send\"\ntransport = \"ud\"\nsize = \"8KiB\"",
        "my.toml:14:8: `verbs.size` is 8192 B: a datagram has the MTU at most, 4096 B",
    ),
    (
        "threads = 2",
        "threads = 64",
        "my.toml:15:11: `verbs.threads` is 64: one of its hosts has 32 cores, and each thread takes one",
    ),
    (
        "threads = 2",
        "queue_pairs = 70000",
        "my.toml:15:15: `verbs.queue_pairs` is 70000: it must be a whole number from 1 to 65536",
    ),
    (
        "threads = 2",
        "queue_pairs = 40000\n[[verbs]]\nrequesters = \"server\"\ntargets = \"clients\"\noperation = \
         \"read\"\nqueue_pairs = 30000",
        "my.toml:20:15: `verbs.queue_pairs` is 30000: with it there are 70000, 65536 at most",
    ),
    (
        "outstanding = 8",
        "outstanding = 0",
        "my.toml:16:15: `verbs.outstanding` is 0: it must be a whole number from 1 to 1024",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nsignal_every = 16",
        "my.toml:17:16: `verbs.signal_every` is 16: it must be `outstanding`, 8, at most",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nbatch = 9",
        "my.toml:17:9: `verbs.batch` is 9: it must be `outstanding`, 8, at most",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nbatch = 4\nsignal_every = 6",
        "my.toml:17:9: `verbs.batch` is 4: one of it and `signal_every`, 6, must divide the other",
    ),
    (
        "size = \"32B\"",
        "size = \"512B\"\ninline = true",
        "my.toml:15:10: `verbs.inline` is true: the NIC takes 220 B inline at most, and `size` is 512 B",
    ),
    (
        "operation = \"write\"",
        "operation = \"read\"\ninline = true",
        "my.toml:13:10: `verbs.inline` is true: READs and atomics bring bytes and carry none",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\ninline = \"yes\"",
        "my.toml:17:10: `verbs.inline` is \"yes\": it must be `true` or `false`",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\norder = \"turn\"",
        "my.toml:17:9: `verbs.order` is \"turn\": it must be one of random, in-turn",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nplaces = 0",
        "my.toml:17:10: `verbs.places` is 0: it must be a whole number from 1 to 65536",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nplace = \"fast\"",
        "my.toml:17:9: `verbs.place` is \"fast\": it must be a size in B, KiB, MiB, GiB, kB, MB, GB, or a number, \
         from 1B to 1GiB",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nown_places = 1",
        "my.toml:17:14: `verbs.own_places` is 1: it must be `true` or `false`",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nzone = \"4KiB\"",
        "my.toml:17:8: `verbs.zone` is 4096 B: it is for places of each queue pair: let `own_places` be true",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nown_places = true\nzone = \"1KiB\"",
        "my.toml:18:8: `verbs.zone` is too little: a queue pair's places take 4064 B and are 1024 B from the next \
         one's: they would overlap",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nown_places = true\nplace = \"8B\"",
        "my.toml:18:9: `verbs.place` is too little: a queue pair's places take 536 B and are 512 B from the next \
         one's: they would overlap",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nplaces = 65536\nplace = \"1MiB\"",
        "my.toml:17:10: `verbs.places` is too much: a host would need 68718428192 B for it, 17179869184 at most",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"",
        "operation = \"send\"\ntransport = \"ud\"\nown_completions = true",
        "my.toml:14:19: `verbs.own_completions` is true: with ud a thread posts on one queue pair at a time: it is for \
         rc and uc",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nanswer = \"8B\"",
        "my.toml:17:10: `verbs.answer` is 8 B: only SENDs are answered: leave it out, or let `operation` be \"send\"",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"",
        "operation = \"send\"\ntransport = \"rc\"\nown_completions = true\nanswer = \"8B\"",
        "my.toml:15:10: `verbs.answer` is 8 B: answers to all queue pairs of a thread come to one completion queue: \
         leave out `own_completions`",
    ),
    (
        "operation = \"write\"\ntransport = \"rc\"",
        "operation = \"send\"\ntransport = \"ud\"\nanswer = \"8KiB\"",
        "my.toml:14:10: `verbs.answer` is 8192 B: a datagram has the MTU at most, 4096 B",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nreceivers = 64",
        "my.toml:17:13: `verbs.receivers` is 64: one of its hosts has 32 cores, and each thread takes one",
    ),
    (
        "outstanding = 8",
        "outstanding = 8\nreceives = 8",
        "my.toml:17:12: `verbs.receives` is 8: only SENDs take RECEIVEs: leave it out, or let `operation` be \
         \"send\"",
    ),
    (
        "operation = \"write\"",
        "operation = \"send\"\nreceives = 32768\nqueue_pairs = 4000",
        "my.toml:13:12: `verbs.receives` is 32768: a thread of a target would keep 65667072 posted, 1048576 at most",
    ),
    (
        "[run]",
        "[[verbs]]\nname = \"0\"\nrequesters = \"server\"\ntargets = \"clients\"\noperation = \"read\"\n[run]",
        "my.toml:18:8: `verbs.name` is \"0\": another group has this name",
    ),
    (
        "[run]",
        "[print]\ncolumns = [\"verbs.1\"]\n[run]",
        "my.toml:18:11: `print.columns` is \"verbs.1\": no group of verbs (there are: 0)",
    ),
    (
        "[run]",
        "[print]\ncolumns = [\"nic_started.sever\"]\n[run]",
        "my.toml:18:11: `print.columns` is \"nic_started.sever\": no group of hosts; did you mean `server`? (there \
         are: server, clients)",
    ),
    (
        "[run]",
        "[plot]\nx = \"verbs.threads\"\nonly_lines = true\n[sweep]\n\"verbs.threads\" = [1, 2]\n[run]",
        "my.toml:19:14: `plot.only_lines` is true: there are no [[plot.lines]]",
    ),
];

fn complaint(text: &str) -> String {
    let parsed = Experiment::parse("my.toml", text, Path::new(""), &Settings::default());
    parsed
        .err()
        .map_or(String::new(), |wrong| wrong.to_string())
}

#[test]
fn wrong_tables_of_verbs_are_told_where_and_what() {
    assert_eq!(complaint(RIGHT), "");
    for (right, wrong, message) in WRONG {
        assert!(RIGHT.contains(right), "{right}");
        assert_eq!(complaint(&RIGHT.replacen(right, wrong, 1)), *message);
    }
}

/// Each key has a case, except names of hosts and of groups, which other tables have too.
#[test]
fn every_key_of_verbs_has_a_wrong_case() {
    for key in super::SECTION.keys {
        let name = format!("`verbs.{}`", key.name);
        let told = WRONG.iter().any(|(_, _, message)| {
            message.contains(&name) || message.contains(&format!("has no `{}`", key.name))
        });
        assert!(told, "{name}");
    }
}
