//! The list of all keys that an experiment can have.

use dunlin::Preset;

use super::parameters::{CPU_NAMES, NIC_NAMES, SWITCH_NAMES};
use super::schema::{Key, Kind, Need, Section};
use super::unit::{BANDWIDTH, BYTES, RATE, SHARE, TIME};

/// The section of a name.
pub(super) fn section(name: &str) -> &'static Section {
    let found = SECTIONS.iter().find(|section| section.name == name);
    found.expect("a name of the list")
}

pub(super) const fn key(name: &'static str, kind: Kind, need: Need, meaning: &'static str) -> Key {
    Key {
        name,
        kind,
        need,
        meaning,
    }
}

/// Faults.
pub(super) const FAULTS: [&str; 8] = [
    "loss",
    "delay",
    "duplicate",
    "slow",
    "crash",
    "partition",
    "no-dma",
    "slow-dma",
];

fn presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.name()).collect()
}

const MOST: f64 = f64::INFINITY;
pub(super) const TIME_OR_ZERO: Kind = Kind::Quantity(TIME, 0.0, MOST);
const TIME_ABOVE: Kind = Kind::Quantity(TIME, 1.0, MOST);
/// The longest message that the channels of a default configuration take.
const LONGEST: f64 = 1_048_576.0;

/// All of them, in the order of the page.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "",
        many: false,
        needed: true,
        keys: &[
            key(
                "title",
                Kind::Text,
                Need::Or("the name of the file"),
                "What the experiment is called.",
            ),
            key(
                "says",
                Kind::Text,
                Need::Or("nothing"),
                "What is said of it elsewhere, in a paper: printed beside it.",
            ),
        ],
    },
    Section {
        name: "topology",
        many: false,
        needed: true,
        keys: &[
            key(
                "switch",
                Kind::Word(|| SWITCH_NAMES.to_vec()),
                Need::Default("sx1012"),
                "Which switch.",
            ),
            key(
                "switch_file",
                Kind::Text,
                Need::Or("`switch`"),
                "A parameter file of a switch, beside the experiment; goes before \
                 `switch`.",
            ),
            key(
                "switches",
                Kind::Count(1, 64),
                Need::Default("1"),
                "How many of them, in a row: each has cables to the next.",
            ),
            key(
                "links",
                Kind::Count(1, 16),
                Need::Default("1"),
                "Cables between two switches that are neighbours.",
            ),
            key(
                "link_rate",
                Kind::Quantity(BANDWIDTH, 0.1, 1e4),
                Need::Default("100Gbps"),
                "Rate of each of those cables. A host's cable has its NIC's.",
            ),
            key(
                "ns3",
                Kind::Text,
                Need::Or("the keys above"),
                "The topology file of HPCC's ns-3, beside the experiment: switches, cables, rates, delay. One \
                 `[[topology.hosts]]` says what its hosts are, by the order of their nodes.",
            ),
        ],
    },
    Section {
        name: "topology.cables",
        many: true,
        needed: false,
        keys: &[
            key(
                "switches",
                Kind::Counts(0, 63),
                Need::Must,
                "Numbers of two switches, or of more: the first has cables to each of the \
                 others. With such tables no row is made.",
            ),
            key(
                "count",
                Kind::Count(1, 64),
                Need::Default("1"),
                "Cables between each two of them.",
            ),
            key(
                "rate",
                Kind::Quantity(BANDWIDTH, 0.1, 1e4),
                Need::Default("100Gbps"),
                "Rate of each of those cables.",
            ),
        ],
    },
    Section {
        name: "topology.hosts",
        many: true,
        needed: true,
        keys: &[
            key(
                "name",
                Kind::Text,
                Need::Must,
                "What other tables call this group of hosts; one of its hosts is \
                 `name.0`, `name.1` and so on.",
            ),
            key(
                "count",
                Kind::Count(1, 1024),
                Need::Default("1"),
                "How many hosts.",
            ),
            key(
                "nic",
                Kind::Word(|| NIC_NAMES.to_vec()),
                Need::Default("connectx-5"),
                "Their NIC.",
            ),
            key(
                "nic_file",
                Kind::Text,
                Need::Or("`nic`"),
                "A parameter file of a NIC, beside the experiment; goes before `nic`.",
            ),
            key(
                "cpu",
                Kind::Word(|| CPU_NAMES.to_vec()),
                Need::Default("epyc-7452"),
                "Their processor.",
            ),
            key(
                "cores",
                Kind::Count(1, 256),
                Need::Or("the processor's"),
                "Cores of each.",
            ),
            key(
                "switch",
                Kind::Count(0, 63),
                Need::Default("0"),
                "Which switch they are on, from 0.",
            ),
        ],
    },
    Section {
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
        ],
    },
    Section {
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
                Kind::Quantity(TIME, 1e3, MOST),
                Need::Default("10s"),
                "Longest time of a call.",
            ),
            key(
                "loss_timeout",
                Kind::Quantity(TIME, 1e7, 3.6e12),
                Need::Default("1s"),
                "Presets over datagrams: how long a call may be without a sign before \
                 its caller asks what became of it.",
            ),
        ],
    },
    super::flows::SECTION,
    super::verbs::SECTION,
    Section {
        name: "faults",
        many: true,
        needed: false,
        keys: &[
            key(
                "kind",
                Kind::Word(|| FAULTS.to_vec()),
                Need::Must,
                "What happens.",
            ),
            key(
                "from",
                TIME_OR_ZERO,
                Need::Default("0ns"),
                "When it begins.",
            ),
            key(
                "to",
                TIME_ABOVE,
                Need::Or("the end of the run"),
                "When it ends. A crash does not, `no-dma` must.",
            ),
            key(
                "share",
                Kind::Quantity(SHARE, 0.0, 1.0),
                Need::Default("100%"),
                "`loss`, `delay`, `duplicate`: which share of the packets. `slow-dma`: which \
                 share of its bandwidth to memory the NIC has.",
            ),
            key(
                "sender",
                Kind::Text,
                Need::Or("any host"),
                "`loss`, `delay`, `duplicate`: only packets of this host.",
            ),
            key(
                "receiver",
                Kind::Text,
                Need::Or("any host"),
                "`loss`, `delay`, `duplicate`: only packets to this host.",
            ),
            key(
                "traffic",
                Kind::Word(|| vec!["all", "requests", "answers"]),
                Need::Default("all"),
                "`loss`, `delay`, `duplicate`: all packets, those that carry verbs' \
                 requests, or acknowledgements and what READs bring.",
            ),
            key(
                "least",
                TIME_OR_ZERO,
                Need::Default("0ns"),
                "`delay`: least delay.",
            ),
            key(
                "most",
                TIME_ABOVE,
                Need::Default("10us"),
                "`delay`: greatest delay. Packets overtake each other where it differs \
                 from `least`.",
            ),
            key(
                "after",
                TIME_ABOVE,
                Need::Default("1us"),
                "`duplicate`: how long after the first the second one comes.",
            ),
            key(
                "hosts",
                Kind::Texts,
                Need::Or("an error for those kinds"),
                "`slow`, `crash`, `partition`, `no-dma`, `slow-dma`: which hosts; a partition \
                 cuts them off from all others, with `no-dma` their NICs do not reach memory.",
            ),
            key(
                "factor",
                Kind::Number(1.0),
                Need::Default("10"),
                "`slow`: how many times as long the host's cores and the receiving side \
                 of its NIC take.",
            ),
        ],
    },
    Section {
        name: "run",
        many: false,
        needed: false,
        keys: &[
            key(
                "seed",
                Kind::Count(0, 1 << 53),
                Need::Default("1"),
                "Seed of the first run; a repeat takes the next.",
            ),
            key(
                "warm_up",
                TIME_OR_ZERO,
                Need::Default("500us"),
                "Before anything is counted.",
            ),
            key(
                "duration",
                Kind::Quantity(TIME, 1e3, 1e11),
                Need::Default("1ms"),
                "What is counted.",
            ),
            key(
                "paced",
                TIME_OR_ZERO,
                Need::Or("threads stand by until all have connected"),
                "From their connection on threads make a call every 250 us, and for so long when all have \
                 connected; then time zero is. Schedulers (FLOCK) have seen all of them by then.",
            ),
            key(
                "settle",
                Kind::Quantity(SHARE, 0.0, 1.0),
                Need::Or("one `duration`"),
                "Durations follow each other until the rate changes by less than this share; the last counts.",
            ),
            key(
                "windows",
                Kind::Count(1, 1000),
                Need::Default("8"),
                "`settle`: so many durations at most.",
            ),
            key(
                "repeats",
                Kind::Count(1, 1000),
                Need::Default("1"),
                "Runs of each point, each by another seed.",
            ),
        ],
    },
    Section {
        name: "print",
        many: false,
        needed: false,
        keys: &[
            key(
                "columns",
                Kind::Texts,
                Need::Or("`rate`, `p50`, `p99`, `failed`, and of flows `fct_p50`, `fct_p99`, `unfinished`"),
                "What is printed of each point.",
            ),
            key(
                "every",
                Kind::Quantity(TIME, 1e3, MOST),
                Need::Or("no time series"),
                "Prints the columns of each such piece of the duration, too.",
            ),
        ],
    },
    Section {
        name: "plot",
        many: false,
        needed: false,
        keys: &[
            key(
                "x",
                Kind::Text,
                Need::Or("the key of the sweep whose values are numbers"),
                "A key of the sweep, a column, or `time` where there is `print.every`.",
            ),
            key(
                "y",
                Kind::Text,
                Need::Or("the first column"),
                "A column. Each value of the other keys of the sweep is a line.",
            ),
            key(
                "line",
                Kind::Text,
                Need::Or("those values, with commas"),
                "What a line is called: a text with keys of the sweep in braces, as `{clients.threads} threads`.",
            ),
            key(
                "x_label",
                Kind::Text,
                Need::Or("`x`"),
                "What stands at the horizontal axis.",
            ),
            key(
                "y_label",
                Kind::Text,
                Need::Or("`y`"),
                "What stands at the vertical axis.",
            ),
            key(
                "log_x",
                Kind::Flag,
                Need::Default("false"),
                "Whether the horizontal axis is logarithmic.",
            ),
            key(
                "only_lines",
                Kind::Flag,
                Need::Default("false"),
                "Whether only the lines of `[[plot.lines]]` are drawn, and none of `y`.",
            ),
        ],
    },
    Section {
        name: "plot.lines",
        many: true,
        needed: false,
        keys: &[
            key("name", Kind::Text, Need::Must, "What a line beside those is called."),
            key(
                "value",
                Kind::Text,
                Need::Must,
                "What it shows: an expression that has a value for each value of `x`.",
            ),
        ],
    },
    Section {
        name: "cases",
        many: true,
        needed: false,
        keys: &[
            key(
                "name",
                Kind::Text,
                Need::Must,
                "What the case is called. All other keys of the table are keys of the experiment, which have this \
                 value in this case.",
            ),
            key(
                "label",
                Kind::Text,
                Need::Or("`name`"),
                "What plots call it.",
            ),
        ],
    },
    Section {
        name: "expect",
        many: true,
        needed: false,
        keys: &[
            key("name", Kind::Text, Need::Must, "What the expectation is called."),
            key(
                "value",
                Kind::Text,
                Need::Must,
                "An expression of columns that is one number.",
            ),
            key("least", Kind::Any, Need::Or("no bound"), "The least that it is to be."),
            key("most", Kind::Any, Need::Or("no bound"), "The most."),
            key(
                "says",
                Kind::Text,
                Need::Or("nothing"),
                "The value that a paper, or somebody else, has of it.",
            ),
            key("why", Kind::Text, Need::Or("`value`"), "What it is, in words."),
            key(
                "quick",
                Kind::Flag,
                Need::Default("false"),
                "Whether it can be judged by the quick points, too.",
            ),
        ],
    },
];

/// Tables whose keys are those of the parameter files: they change parameters of all NICs, processors, switches.
pub(super) const PARAMETERS: [&str; 3] = ["nic", "cpu", "switch"];
