//! FLOCK Fig. 14 and 15: FLOCKTX compared with FaSST, TATP and SmallBank.
//!
//! The cluster is that of FLOCK's figures of RPC with three storing machines and twenty client nodes (§8.5.2). Declared
//! before the first run:
//!
//! - both systems by `dunlin-txn`: FaSST's protocol over `fasst`, FLOCKTX over `flock`, and `auto` with its own choice;
//! - 19 concurrent transactions of a thread, as many pollers of a machine as a client has threads, no dispatcher (a
//!   coroutine of the thread takes the responses), at most 256 active queue pairs;
//! - each request of FLOCKTX is sent alone, as by FLOCK's interface; a machine answers together what arrived in several
//!   messages (§8.5.2: "server coalesces response for coroutines in a larger message");
//! - 300,000 subscribers instead of three million, and of SmallBank's accounts the hot ones (4 % of 100,000 a thread
//!   and machine, in 90 % of the transactions) and twice as many others instead of 24 times: an item costs the same two
//!   accesses to memory, and the hot ones cause the conflicts;
//! - aborted transactions are not retried, and neither they nor those that TATP declines count.

use dunlin::{Grouping, Preset};

use super::auto::against_best;
use super::flock_rpc::{cluster, saturates_at, SCHEDULED_NS};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Transactions, TransactionsBench, TransactionsResult, Work};
use crate::parallel;

/// TATP.
pub(super) const TATP: Figure = Figure {
    name: "flock-14",
    title: "FLOCK Fig. 14: FLOCKTX and FaSST, TATP, 3 machines and 20 clients of 1 to 16 threads",
    says: "FaSST is slightly better up to 4 threads, where it saturates; FLOCKTX makes 1.9 and 2.4 times as many at 8 and 16",
    run: tatp,
};

/// SmallBank.
pub(super) const SMALL_BANK: Figure = Figure {
    name: "flock-15",
    title:
        "FLOCK Fig. 15: FLOCKTX and FaSST, SmallBank, 3 machines and 20 clients of 1 to 16 threads",
    says: "alike up to 2 threads; FLOCKTX is up to 24 % ahead with 4 and 88 % with 8",
    run: small_bank,
};

const STORES: usize = 3;
const CLIENTS: usize = 20;
/// Number of coroutines of a thread that submit transactions.
const SENDERS: u16 = 19;
const SUBSCRIBERS: u64 = 300_000;
/// SmallBank's accounts for each thread, on each storing machine; 4 % of them are hot.
const ACCOUNTS: u64 = 100_000;

/// The systems, with their presets.
const SYSTEMS: [(Preset, &str); 3] = [
    (Preset::Fasst, "fasst"),
    (Preset::Flock, "flocktx"),
    (Preset::Auto, "auto"),
];

/// A point is settled when two consecutive windows differ by less than this, or after this many.
const SETTLED: f64 = 0.02;
const WINDOWS_MOST: usize = 4;
const WINDOW_NS: u64 = 1_000_000;
/// Time by which a server has examined its load three times, which it does each millisecond with `auto`.
const SEEN_NS: u64 = 3_200_000;

fn point(preset: Preset, threads: usize, work: Work, effort: Effort) -> TransactionsResult {
    let found = SYSTEMS.iter().find(|(of, _)| *of == preset);
    let clients = if effort.quick { 4 } else { CLIENTS };
    let plan = Transactions {
        preset,
        protocol: found.expect("a system").1,
        alone: preset == Preset::Flock,
        stores: STORES,
        replicas: STORES,
        symmetric: false,
        most_machines: clients,
        threads,
        most_threads: usize::MAX,
        transactions: SENDERS,
        pollers: threads,
        most_active: 256,
        max_outstanding: 64,
        ring_bytes: 64 << 10,
        together: None,
        grouping: Grouping::default(),
        uses_queues: !effort.quick,
        work,
    };
    let bench = TransactionsBench::new(cluster(STORES + clients - 1, effort), &plan);
    if effort.quick {
        return bench.measure(0, 100_000, 100_000);
    }
    let (paced, warm) = match preset {
        Preset::Fasst => (0, WINDOW_NS),
        Preset::Auto => (SCHEDULED_NS, SEEN_NS),
        _ => (SCHEDULED_NS, WINDOW_NS),
    };
    let mut last = bench.measure(paced, warm, WINDOW_NS);
    for _ in 1..WINDOWS_MOST {
        let next = bench.measure(0, 0, WINDOW_NS);
        let change = next.mtps / last.mtps - 1.0;
        last = next;
        if change.abs() < SETTLED {
            break;
        }
    }
    last
}

/// The points of a figure.
struct Sweep {
    threads: &'static [usize],
    points: Vec<(Preset, usize)>,
    found: Vec<TransactionsResult>,
}

impl Sweep {
    /// Runs up to 16 threads with all systems, and `beyond` with FaSST only.
    fn new(effort: Effort, beyond: &[usize], work: impl Fn(usize) -> Work + Sync) -> Self {
        let threads: &[usize] = match effort.quick {
            true => &[1, 2],
            false => &[1, 2, 4, 8, 16],
        };
        let mut points: Vec<(Preset, usize)> = Vec::new();
        if !effort.quick {
            points.extend(beyond.iter().map(|&threads| (Preset::Fasst, threads)));
        }
        for &threads in threads.iter().rev() {
            points.extend(SYSTEMS.map(|(preset, _)| (preset, threads)));
        }
        let found = parallel::map(effort.threads, &points, |&(preset, threads)| {
            point(preset, threads, work(threads), effort)
        });
        Self {
            threads,
            points,
            found,
        }
    }

    fn of(&self, preset: Preset, threads: usize) -> &TransactionsResult {
        let mut points = self.points.iter();
        let place = points.position(|&point| point == (preset, threads));
        &self.found[place.expect("a point")]
    }

    /// Rate of FLOCKTX over that of FaSST.
    fn ratio(&self, threads: usize) -> f64 {
        self.of(Preset::Flock, threads).mtps / self.of(Preset::Fasst, threads).mtps
    }

    /// The maximum over thread counts of the share by which FLOCKTX shortens FaSST's 99th percentile.
    fn shortens(&self) -> f64 {
        let p99 = |preset, threads| self.of(preset, threads).p99_us;
        let each = self.threads.iter();
        let each = each.map(|&n| 1.0 - p99(Preset::Flock, n) / p99(Preset::Fasst, n));
        each.fold(f64::MIN, f64::max)
    }

    /// Datagrams that found no RECEIVE, plus transactions that failed.
    fn lost(&self, threads: usize) -> f64 {
        let of = self.of(Preset::Fasst, threads);
        of.dropped + of.failed as f64
    }

    fn findings(&self) -> Findings {
        let mut findings = Findings::new("threads", "M transactions/s; us", true);
        for (preset, protocol) in SYSTEMS {
            let name = if preset == Preset::Flock {
                protocol
            } else {
                preset.name()
            };
            for (what, value) in [
                ("", (|r| r.mtps) as fn(&TransactionsResult) -> f64),
                (", median, us", |r| r.median_us),
                (", 99th percentile, us", |r| r.p99_us),
                (", aborted", |r| r.aborted),
                (", requests a message", |r| r.degree),
                (", answers a message", |r| r.server_degree),
                (", busy", |r| r.server_busy),
            ] {
                let line = self.threads.iter();
                let line = line.map(|&n| (n as f64, value(self.of(preset, n))));
                findings.line(&format!("{name}{what}"), line.collect());
            }
        }
        findings
    }

    fn hold_auto(&self, findings: &mut Findings, id: &'static str) {
        let point = |&threads: &usize| {
            let rates = SYSTEMS.map(|(preset, _)| (preset, self.of(preset, threads).mtps));
            (format!("{threads} threads"), rates.to_vec())
        };
        let points: Vec<_> = self.threads.iter().map(point).collect();
        against_best(findings, id, &points);
    }
}

fn tatp(effort: Effort) -> Findings {
    let subscribers = if effort.quick { 2_000 } else { SUBSCRIBERS };
    let sweep = Sweep::new(effort, &[32], |_| Work::Tatp(subscribers));
    let mut findings = sweep.findings();
    if effort.quick {
        return findings;
    }
    sweep.hold_auto(&mut findings, "auto, flock-14");
    let why = "by how much FLOCKTX's 99th percentile is below FaSST's, the most of 1 to 16 threads";
    let most = (0.45, 1.0);
    findings.answer("FL-005", "up to 71%", sweep.shortens(), most, why);
    let ahead = [1, 2, 4].map(|threads| 1.0 / sweep.ratio(threads) - 1.0);
    let (least, most) = (
        ahead.into_iter().fold(f64::MAX, f64::min),
        ahead.into_iter().fold(f64::MIN, f64::max),
    );
    let why = "FaSST over FLOCKTX, less one, of 1, 2 and 4 threads";
    let bounds = (0.0, 0.15);
    findings.answer("FL-050 (least)", "slightly better", least, bounds, why);
    findings.answer("FL-050 (most)", "slightly better", most, bounds, why);
    let curve = sweep.threads.iter();
    let curve = curve.map(|&n| (n, sweep.of(Preset::Fasst, n).mtps));
    let why = "fewest threads with nine tenths of FaSST's best rate";
    findings.answer("FL-051", "4 threads", saturates_at(curve), (3.0, 6.0), why);
    let why = "FLOCKTX over FaSST, 8 threads";
    findings.answer("FL-052", "1.9x", sweep.ratio(8), (1.5, 2.3), why);
    let why = "FLOCKTX over FaSST, 16 threads";
    findings.answer("FL-053", "2.4x", sweep.ratio(16), (1.9, 2.9), why);
    let why = "FaSST's datagrams without a RECEIVE, and failed transactions, 32 threads";
    findings.answer("FL-054", "loss", sweep.lost(32), (1.0, f64::MAX), why);
    let few = [1, 2, 4, 8].map(|threads| *sweep.of(Preset::Flock, threads));
    let client = few.iter().map(|of| of.degree).fold(f64::MIN, f64::max);
    let server = few
        .iter()
        .map(|of| of.server_degree)
        .fold(f64::MAX, f64::min);
    let why = "FLOCKTX's requests a message of clients, the most of 1 to 8 threads";
    findings.answer("FL-055 client", "1", client, (1.0, 1.05), why);
    let why = "FLOCKTX's answers a message of machines, the least of 1 to 8 threads";
    findings.answer("FL-055 server", ">1", server, (1.05, f64::MAX), why);
    let per_thread = sweep.of(Preset::Fasst, 16).connections as f64 / 16.0;
    let senders = per_thread * f64::from(SENDERS);
    let why =
        "connections of a machine over its threads, times transactions of each, FaSST, 16 threads";
    findings.answer("FL-066", "380", senders, (380.0, 380.0), why);
    findings
}

fn small_bank(effort: Effort) -> Findings {
    let sweep = Sweep::new(effort, &[], |threads| {
        let accounts = if effort.quick { 5_000 } else { ACCOUNTS };
        let hot = accounts * threads as u64 * STORES as u64 / 25;
        Work::SmallBank {
            customers: 3 * hot,
            hot,
            percent: 90,
        }
    });
    let mut findings = sweep.findings();
    if effort.quick {
        return findings;
    }
    sweep.hold_auto(&mut findings, "auto, flock-15");
    let why = "by how much FLOCKTX's 99th percentile is below FaSST's, the most of 1 to 16 threads";
    let most = (0.25, 1.0);
    findings.answer("FL-006", "up to 50%", sweep.shortens(), most, why);
    let off = [1, 2].map(|threads| sweep.ratio(threads) - 1.0);
    let furthest = if off[0].abs() > off[1].abs() {
        off[0]
    } else {
        off[1]
    };
    let why = "FLOCKTX over FaSST, less one, the furthest of 1 and 2 threads";
    findings.answer("FL-056", "similar", furthest, (-0.1, 0.1), why);
    let why = "FLOCKTX over FaSST, less one, 4 threads";
    findings.answer("FL-057", "+24%", sweep.ratio(4) - 1.0, (0.1, 0.4), why);
    let why = "FLOCKTX over FaSST, less one, 8 threads";
    findings.answer("FL-058", "+88%", sweep.ratio(8) - 1.0, (0.5, 1.3), why);
    let p99 = |preset| sweep.of(preset, 1).p99_us;
    let (fasst, flock) = (p99(Preset::Fasst), p99(Preset::Flock));
    let why = "99th percentile of FaSST over FLOCKTX's, one thread";
    findings.answer("FL-059 ratio", "1.41", fasst / flock, (1.2, 1.7), why);
    let why = "99th percentile of FaSST, one thread, us";
    findings.answer("FL-059 FaSST", "178 us", fasst, (106.8, 249.2), why);
    let why = "99th percentile of FLOCKTX, one thread, us";
    findings.answer("FL-059 FLOCK", "126 us", flock, (75.6, 176.4), why);
    let why = "FaSST's datagrams without a RECEIVE, and failed transactions, 16 threads";
    findings.answer("FL-060", "loss", sweep.lost(16), (1.0, f64::MAX), why);
    findings
}
