//! ScaleRPC Fig. 16: ScaleTX compared with transactions over its competitors, with the object store and SmallBank.
//!
//! Three of the twelve nodes store, nine run the clients (§4.2). Declared before the first run:
//!
//! - a client is a thread with eight transactions at once (the larger batch of Fig. 8: §4.2.1 names none), and each has
//!   a connection of its own to each machine; ten threads of a machine serve, as in the figures of RPC;
//! - the competitors run ScaleTX-O's protocol over their RPC (§4.2.1: RPCs instead of one-sided verbs), and so does
//!   `auto`;
//! - machines change turns together, by clocks that follow the first machine's every millisecond (the paper: every 100
//!   ms, which is longer than what is measured); each key has one copy (§4.2: each stores one shard);
//! - the object store has a million keys; its read-only transactions read four of them, its read-write ones read two
//!   and change two, as FaSST's O(4,0) and O(4,2);
//! - of SmallBank's three million accounts there are the 120,000 hot ones, which 60 % of the transactions go to, and
//!   twice as many others; aborted transactions are not retried.

use std::time::Duration;

use dunlin::{Grouping, Preset};

use super::cluster;
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::load::{Transactions, TransactionsBench, TransactionsResult, Work};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-transactions",
    title: "ScaleRPC Fig. 16: ScaleTX and its rivals, object store and SmallBank, 80 and 160 clients",
    says: "RawWrite is best with 80 clients of the object store and drops by half with 160, where ScaleTX is ahead of all; more so with SmallBank",
    run,
};

const STORES: usize = 3;
const MACHINES: usize = 9;
const POLLERS: usize = 10;
/// Number of clients of a group.
const GROUP: usize = 40;
const TRANSACTIONS: u16 = 8;
/// Interval at which the other machines set their clocks.
const SYNCHRONIZED: Duration = Duration::from_millis(1);
const WINDOW_NS: u64 = 1_200_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum System {
    RawWrite,
    Herd,
    Fasst,
    ScaleTxO,
    ScaleTx,
    Auto,
}

const SYSTEMS: [System; 6] = [
    System::RawWrite,
    System::Herd,
    System::Fasst,
    System::ScaleTxO,
    System::ScaleTx,
    System::Auto,
];

impl System {
    fn preset(self) -> Preset {
        match self {
            Self::RawWrite => Preset::RawWrite,
            Self::Herd => Preset::Herd,
            Self::Fasst => Preset::Fasst,
            Self::ScaleTxO | Self::ScaleTx => Preset::ScaleRpc,
            Self::Auto => Preset::Auto,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ScaleTxO => "ScaleTX-O",
            Self::ScaleTx => "ScaleTX",
            other => other.preset().name(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    ReadOnly,
    ReadWrite,
    SmallBank,
}

const LOADS: [Load; 3] = [Load::ReadOnly, Load::ReadWrite, Load::SmallBank];

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "(4, 0)",
            Self::ReadWrite => "(2, 2)",
            Self::SmallBank => "SmallBank",
        }
    }

    fn work(self, effort: Effort) -> Work {
        let share = if effort.quick { 100 } else { 1 };
        let keys = 1_000_000 / share;
        let objects = |changed| Work::Objects {
            keys,
            all: 4,
            changed,
        };
        let hot = 120_000 / share;
        match self {
            Self::ReadOnly => objects(0),
            Self::ReadWrite => objects(2),
            Self::SmallBank => Work::SmallBank {
                customers: 3 * hot,
                hot,
                percent: 60,
            },
        }
    }
}

/// A point: system, workload, number of clients, concurrent transactions of each, and whether clocks continue to be
/// set.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    system: System,
    load: Load,
    clients: usize,
    transactions: u16,
    synchronized: bool,
}

impl Point {
    fn new(system: System, load: Load, clients: usize) -> Self {
        Self {
            system,
            load,
            clients,
            transactions: TRANSACTIONS,
            synchronized: true,
        }
    }

    fn run(self, effort: Effort) -> TransactionsResult {
        let cluster = cluster(STORES + MACHINES, effort);
        let often = self.synchronized.then_some(SYNCHRONIZED);
        let groups = self.clients.div_ceil(GROUP);
        let plan = Transactions {
            preset: self.system.preset(),
            protocol: match self.system {
                System::ScaleTx => "scaletx",
                _ => "scaletx-o",
            },
            alone: false,
            stores: STORES,
            replicas: 1,
            symmetric: false,
            most_machines: MACHINES,
            threads: self.clients.div_ceil(MACHINES),
            most_threads: self.clients,
            transactions: self.transactions,
            pollers: POLLERS,
            most_active: 256,
            max_outstanding: 64,
            ring_bytes: 16 << 10,
            together: (self.system.preset() == Preset::ScaleRpc).then_some((groups, often)),
            grouping: Grouping {
                clients: GROUP,
                by_priority: false,
                ..Grouping::default()
            },
            uses_queues: !effort.quick,
            work: self.load.work(effort),
        };
        let window = if effort.quick { 100_000 } else { WINDOW_NS };
        TransactionsBench::new(cluster, &plan).measure(0, window, window)
    }
}

fn run(effort: Effort) -> Findings {
    let clients: &[usize] = if effort.quick { &[18] } else { &[80, 160] };
    let mut points = Vec::new();
    for load in LOADS {
        for &clients in clients.iter().rev() {
            points.extend(SYSTEMS.map(|system| Point::new(system, load, clients)));
        }
    }
    // The rate of few: a client on each machine, with one transaction at a time.
    let alone = |system| Point {
        transactions: 1,
        ..Point::new(system, Load::ReadOnly, MACHINES)
    };
    let unset = Point {
        synchronized: false,
        ..Point::new(System::ScaleTx, Load::ReadWrite, 160)
    };
    if !effort.quick {
        points.extend([alone(System::ScaleTx), alone(System::ScaleTxO), unset]);
    }
    let found = parallel::map(effort.threads, &points, |point| point.run(effort));
    let of = |point: Point| -> &TransactionsResult {
        let place = points.iter().position(|&other| other == point);
        &found[place.expect("a point")]
    };
    let rate = |system, load, clients| of(Point::new(system, load, clients)).mtps;
    let mut findings = Findings::new("clients", "M transactions/s", false);
    for load in LOADS {
        for system in SYSTEMS {
            for (what, value) in [
                ("", (|r| r.mtps) as fn(&TransactionsResult) -> f64),
                (", aborted", |r| r.aborted),
                (", median, us", |r| r.median_us),
                (", busy", |r| r.server_busy),
            ] {
                let value = |&n: &usize| (n as f64, value(of(Point::new(system, load, n))));
                let line = clients.iter().map(value).collect();
                findings.line(&format!("{} {}{what}", load.name(), system.name()), line);
            }
        }
    }
    if effort.quick {
        return findings;
    }
    let compared = LOADS.iter().flat_map(|&load| {
        clients.iter().map(move |&n| {
            let rates = SYSTEMS.map(|system| (system.preset(), rate(system, load, n)));
            (format!("{}, {n} clients", load.name()), rates.to_vec())
        })
    });
    let compared: Vec<_> = compared.collect();
    against_best(&mut findings, "auto, scalerpc-transactions", &compared);
    let stores = [Load::ReadOnly, Load::ReadWrite];
    let dropped = stores
        .map(|load| rate(System::RawWrite, load, 160) / rate(System::RawWrite, load, 80) - 1.0);
    let mean = dropped.iter().sum::<f64>() / dropped.len() as f64;
    let why = "RawWrite with 160 clients over 80, less one, the mean of both object stores";
    findings.answer("SR-051", "-56%", mean, (-0.7, -0.4), why);
    let ahead = stores.map(|load| {
        let others = SYSTEMS[1..5].iter().map(|&system| rate(system, load, 80));
        rate(System::RawWrite, load, 80) / others.fold(0.0, f64::max)
    });
    let least = ahead.into_iter().fold(f64::MAX, f64::min);
    let why = "RawWrite over the best other system, 80 clients, the lesser of both object stores";
    findings.answer("SR-052", "RawWrite", least, (1.0, f64::MAX), why);
    let gain = |over: System, load, n| rate(System::ScaleTx, load, n) / rate(over, load, n) - 1.0;
    let off = [80, 160].map(|n| gain(System::ScaleTxO, Load::ReadOnly, n));
    let furthest = if off[0].abs() > off[1].abs() {
        off[0]
    } else {
        off[1]
    };
    let why = "ScaleTX over ScaleTX-O, less one, reading only, the furthest of 80 and 160 clients";
    findings.answer("SR-053", "same", furthest, (-0.05, 0.05), why);
    let (with, without) = (of(alone(System::ScaleTx)), of(alone(System::ScaleTxO)));
    let shorter = with.median_us / without.median_us - 1.0;
    let why = "median of ScaleTX over ScaleTX-O's, less one, reading only, nine clients with one transaction at a time";
    findings.answer("SR-054", "-15%", shorter, (-0.25, -0.08), why);
    for (id, over, load, n, paper, bounds) in GAINS {
        let why = format!(
            "ScaleTX over {}, less one, {}, {n} clients",
            over.name(),
            load.name()
        );
        findings.answer(id, paper, gain(over, load, n), bounds, &why);
    }
    let best = [80, 160].map(|n| gain(System::RawWrite, Load::SmallBank, n));
    let why = "ScaleTX over RawWrite, less one, SmallBank, the most of 80 and 160 clients";
    let most = best.into_iter().fold(f64::MIN, f64::max);
    findings.answer("SR-017", "up to +160%", most, (1.1, 2.1), why);
    let over_o = |load| gain(System::ScaleTxO, load, 160);
    let wider = over_o(Load::SmallBank) - over_o(Load::ReadWrite);
    let why = "gain of ScaleTX over ScaleTX-O with SmallBank, less that with (2, 2), 160 clients";
    findings.answer("SR-067", "larger", wider, (0.0, f64::MAX), why);
    let set = rate(System::ScaleTx, Load::ReadWrite, 160) / of(unset).mtps - 1.0;
    let why = "ScaleTX whose clocks are set every millisecond over one whose are set once, less one, (2, 2), 160 clients";
    findings.answer("SR-068", "insignificant", set, (-0.01, 0.01), why);
    findings
}

type Gain = (&'static str, System, Load, usize, &'static str, (f64, f64));

/// Gains of ScaleTX over each other system, according to the paper.
const GAINS: [Gain; 12] = [
    (
        "SR-055",
        System::RawWrite,
        Load::ReadWrite,
        160,
        "+131%",
        (0.9, 1.7),
    ),
    (
        "SR-056",
        System::Herd,
        Load::ReadWrite,
        160,
        "+60%",
        (0.4, 0.85),
    ),
    (
        "SR-057",
        System::Fasst,
        Load::ReadWrite,
        160,
        "+51%",
        (0.3, 0.75),
    ),
    (
        "SR-058",
        System::ScaleTxO,
        Load::ReadWrite,
        160,
        "+10%",
        (0.03, 0.2),
    ),
    (
        "SR-059",
        System::RawWrite,
        Load::SmallBank,
        80,
        "+18%",
        (0.05, 0.35),
    ),
    (
        "SR-060",
        System::Herd,
        Load::SmallBank,
        80,
        "+112%",
        (0.75, 1.5),
    ),
    (
        "SR-061",
        System::Fasst,
        Load::SmallBank,
        80,
        "+120%",
        (0.8, 1.6),
    ),
    (
        "SR-062",
        System::ScaleTxO,
        Load::SmallBank,
        80,
        "+30%",
        (0.15, 0.45),
    ),
    (
        "SR-063",
        System::RawWrite,
        Load::SmallBank,
        160,
        "+160%",
        (1.1, 2.1),
    ),
    (
        "SR-064",
        System::Herd,
        Load::SmallBank,
        160,
        "+73%",
        (0.45, 1.0),
    ),
    (
        "SR-065",
        System::Fasst,
        Load::SmallBank,
        160,
        "+79%",
        (0.5, 1.1),
    ),
    (
        "SR-066",
        System::ScaleTxO,
        Load::SmallBank,
        160,
        "+26%",
        (0.12, 0.4),
    ),
];
