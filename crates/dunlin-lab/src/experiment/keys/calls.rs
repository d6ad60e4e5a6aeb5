//! The keys of a server and of its clients.

use dunlin::Preset;

use super::{key, LONGEST, LONGEST_NS, MOST, TIME_OR_ZERO};
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::{BYTES, RATE, TIME};

fn presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.name()).collect()
}

/// The server.
pub(super) const SERVER: Section = Section {
    name: "server",
    many: false,
    needed: false,
    keys: &[
        key(
            "host",
            Kind::Text,
            Need::Must,
            "Where it runs: a group, of which it takes the first host, or one host.",
        ),
        key(
            "pollers",
            Kind::Count(1, 256),
            Need::Default("4"),
            "Threads that look for requests and run handlers, each on a core of its \
             own.",
        ),
        key(
            "handler",
            TIME_OR_ZERO,
            Need::Default("100ns"),
            "What a handler computes for each request.",
        ),
        key(
            "max_active",
            Kind::Count(1, 65536),
            Need::Default("256"),
            "Most queue pairs that are active (FLOCK).",
        ),
        key(
            "group",
            Kind::Count(1, 4096),
            Need::Default("40"),
            "Clients of a group (ScaleRPC).",
        ),
        key(
            "slice",
            Kind::Quantity(TIME, 1e3, 1e9),
            Need::Default("100us"),
            "A group's turn (ScaleRPC).",
        ),
        key(
            "warm_up_beside",
            Kind::Flag,
            Need::Default("false"),
            "Whether the requests of the next group are fetched while the last turns end (ScaleRPC). If not, when \
             they have.",
        ),
        key(
            "datagram_messages",
            Kind::Count(1, 255),
            Need::Default("255"),
            "For presets over datagrams: responses that one datagram carries at most.",
        ),
    ],
};

/// Groups of clients.
pub(super) const CLIENTS: Section = Section {
    name: "clients",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Or("its number, from 0"),
            "What columns call this group of clients.",
        ),
        key(
            "hosts",
            Kind::Texts,
            Need::Must,
            "Where they run: groups of hosts, or single hosts.",
        ),
        key(
            "processes",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "Processes on each host, each with a connection handle.",
        ),
        key(
            "threads",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "Threads of each process.",
        ),
        key(
            "preset",
            Kind::Word(presets),
            Need::Default("auto"),
            "How they call.",
        ),
        key(
            "lanes",
            Kind::Count(1, 256),
            Need::Or("as many as threads"),
            "Most queue pairs of a process, for presets whose threads share them.",
        ),
        key(
            "dispatcher",
            Kind::Flag,
            Need::Default("false"),
            "Whether each process has a thread that takes all answers (FLOCK §4.3).",
        ),
        key(
            "outstanding",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "Calls that each thread keeps out at most.",
        ),
        key(
            "together",
            Kind::Flag,
            Need::Default("true"),
            "Whether calls that are due together leave together. If not, each leaves by itself, and what \
             coalesces are threads (FLOCK's interface).",
        ),
        key(
            "request",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Default("64B"),
            "Size of a request.",
        ),
        key(
            "response",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Default("64B"),
            "Size of a response.",
        ),
        key(
            "large",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Or("no thread has others"),
            "Size of the requests of some threads instead.",
        ),
        key(
            "large_every",
            Kind::Count(1, 1024),
            Need::Default("10"),
            "Which: one thread in so many of each process.",
        ),
        key(
            "think",
            TIME_OR_ZERO,
            Need::Default("0ns"),
            "From an answer to the call that takes its place; first calls are spread \
             over it. Not together with `rate`.",
        ),
        key(
            "rate",
            Kind::Quantity(RATE, 1.0, MOST),
            Need::Or("a closed loop: a call follows an answer"),
            "An open loop: calls a second of the whole group, whatever the answers \
             do. A call that finds `outstanding` others out waits, and its latency \
             counts from when it was due.",
        ),
        key(
            "arrivals",
            Kind::Word(|| vec!["poisson", "even"]),
            Need::Default("poisson"),
            "How calls of an open loop come: at random, or at equal distances.",
        ),
        key(
            "deadline",
            Kind::Quantity(TIME, 1e3, LONGEST_NS),
            Need::Default("10s"),
            "Longest time of a call.",
        ),
        key(
            "loss_timeout",
            Kind::Quantity(TIME, 1e7, LONGEST_NS),
            Need::Default("1s"),
            "Presets over datagrams: how long a call may be without a sign before \
             its caller asks what became of it.",
        ),
        key(
            "datagram_messages",
            Kind::Count(1, 255),
            Need::Default("255"),
            "Presets over datagrams: requests that one datagram carries at most.",
        ),
    ],
};
