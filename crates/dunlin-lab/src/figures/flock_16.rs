//! FLOCK Fig. 16 to 18: an ordered index over FLOCK and eRPC.
//!
//! The cluster is that of FLOCK's figures of RPC with 22 client nodes (§8.6). Declared before the first run:
//!
//! - the index is the ordered store of `dunlin-store` instead of HydraList: a GET finds its key in the store's hash
//!   table, a scan counts the keys of a range in its tree;
//! - it has 200,000 keys instead of 32 million, and its operations cost as much as with 32 million: instructions as
//!   callgrind counts them with a million keys (`examples/operations.rs`), and 90 ns for each access that no cache has,
//!   as in the databases of other papers. A GET has two, bucket and item. Leaves of the tree have up to 14 keys, ten on
//!   average, so 32 million keys are 3.2 million leaves of some 450 bytes, and the caches hold (16 MB for four cores)
//!   what is above the lowest two levels of inner nodes: three accesses to come down, and six for the other leaves that
//!   have 64 keys;
//! - 32 threads of the server poll (§8.6: all physical cores), at most 256 queue pairs are active, threads of FLOCK
//!   have its dispatcher;
//! - several outstanding requests are eight, the maximum of FLOCK's other figures; keys are drawn uniformly.

use dunlin::{ChannelConfig, Preset, WaitMode};

use super::auto::against_best;
use super::flock_rpc::{cluster, settled, SCHEDULED_NS, SEEN_NS};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Application, ApplicationResult, Cost, IndexLoad};
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-16",
    title: "FLOCK Fig. 16 to 18: an index, 90 % GET and 10 % scans of 64 keys, 22 clients of 1 to 32 threads, 1 and 8 outstanding",
    says: "with one outstanding alike, FLOCK lower at 16 threads; with more FLOCK is ahead, 1.4 times at 32 threads",
    run,
};

const CLIENTS: usize = 22;
const SYSTEMS: [Preset; 3] = [Preset::Flock, Preset::Erpc, Preset::Auto];
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Numbers of outstanding requests of a thread: one, and several.
const OUTSTANDING: [usize; 2] = [1, 8];
const POLLERS: usize = 32;
const KEYS: u64 = 200_000;
/// Number of keys of a range.
const RANGE: u64 = 64;
/// Percentage of scans.
const SCANS: u64 = 10;
/// An access to memory that misses all caches.
const MISS_NS: u64 = 90;
const GET: Cost = Cost {
    instructions: 780,
    memory_ns: 2 * MISS_NS,
};
const SCAN: Cost = Cost {
    instructions: 8_600,
    memory_ns: 9 * MISS_NS,
};
/// Hardware threads of a node.
const HARDWARE_THREADS: f64 = 64.0;
const WARM_NS: u64 = 300_000;
const WINDOW_NS: u64 = 500_000;

/// A point: preset, threads of a client, and outstanding requests of each.
type Point = (Preset, usize, usize);

fn point((preset, threads, outstanding): Point, effort: Effort) -> ApplicationResult {
    let clients = if effort.quick { 4 } else { CLIENTS };
    let scheduled = [Preset::Flock, Preset::Auto].contains(&preset);
    let load = IndexLoad {
        application: Application {
            preset,
            threads: clients * threads,
            outstanding,
            pollers: POLLERS,
            dispatched: preset == Preset::Flock,
            paced: scheduled,
            channel: ChannelConfig {
                ring_bytes: 64 << 10,
                max_outstanding: 64,
                wait: WaitMode::Spin,
                answer_each_message: true,
                ..ChannelConfig::default()
            },
        },
        most_active: 256,
        keys: if effort.quick { 2_000 } else { KEYS },
        range: RANGE,
        scans: SCANS,
        get: GET,
        scan: SCAN,
    };
    let bench = load.serve(cluster(clients, effort));
    let result = match effort.quick {
        true => bench.measure(WARM_NS, WARM_NS, 100_000),
        false => {
            let paced = if scheduled { SCHEDULED_NS } else { 0 };
            let warm = if preset == Preset::Auto {
                SEEN_NS
            } else {
                WARM_NS
            };
            let measure = |paced, warm| bench.measure(paced, warm, WINDOW_NS);
            settled(measure(paced, warm), || measure(0, 0), |of| of.rpc.mops)
        }
    };
    assert_eq!(
        bench.stop(),
        (0, 0),
        "operations that failed or were answered otherwise"
    );
    result
}

/// All points.
struct Sweep {
    threads: &'static [usize],
    points: parallel::Sweep<Point, ApplicationResult>,
}

impl Sweep {
    fn of(&self, preset: Preset, threads: usize, outstanding: usize) -> &ApplicationResult {
        self.points.of(&(preset, threads, outstanding))
    }

    /// Rate of FLOCK over that of eRPC.
    fn ratio(&self, threads: usize, outstanding: usize) -> f64 {
        let of = |preset| self.of(preset, threads, outstanding).rpc.mops;
        of(Preset::Flock) / of(Preset::Erpc)
    }

    /// 99th percentile of FLOCK over that of eRPC, for a kind of operation.
    fn p99(&self, threads: usize, outstanding: usize, kind: usize) -> f64 {
        let of = |preset| self.of(preset, threads, outstanding).kinds[kind].1;
        of(Preset::Flock) / of(Preset::Erpc)
    }

    fn findings(&self) -> Findings {
        let mut findings = Findings::new("threads of a client", "M operations/s; us", true);
        for preset in SYSTEMS {
            for outstanding in OUTSTANDING {
                for (what, value) in [
                    ("", (|r| r.rpc.mops) as fn(&ApplicationResult) -> f64),
                    (", GET, median, us", |r| r.kinds[0].0),
                    (", GET, 99th percentile, us", |r| r.kinds[0].1),
                    (", scan, median, us", |r| r.kinds[1].0),
                    (", scan, 99th percentile, us", |r| r.kinds[1].1),
                    (", requests a message", |r| r.rpc.degree),
                    (", busy pollers", |r| {
                        r.rpc.server_busy * HARDWARE_THREADS / POLLERS as f64
                    }),
                ] {
                    let line = self.threads.iter();
                    let line = line.map(|&n| (n as f64, value(self.of(preset, n, outstanding))));
                    let name = format!("{preset}, {outstanding} out{what}");
                    findings.line(&name, line.collect());
                }
            }
        }
        findings
    }
}

fn run(effort: Effort) -> Findings {
    let threads: &[usize] = if effort.quick { &[1, 4] } else { &THREADS };
    let mut points: Vec<Point> = Vec::new();
    for &threads in threads.iter().rev() {
        for outstanding in OUTSTANDING {
            points.extend(SYSTEMS.map(|preset| (preset, threads, outstanding)));
        }
    }
    let sweep = Sweep {
        threads,
        points: parallel::Sweep::new(effort.threads, points, |&one| point(one, effort)),
    };
    let mut findings = sweep.findings();
    if !effort.quick {
        answer(&sweep, &mut findings);
    }
    findings
}

fn answer(sweep: &Sweep, findings: &mut Findings) {
    let all = || {
        let each = THREADS.into_iter();
        each.flat_map(|threads| OUTSTANDING.map(|outstanding| (threads, outstanding)))
    };
    let compared = all().map(|(threads, outstanding)| {
        let rate = |preset| (preset, sweep.of(preset, threads, outstanding).rpc.mops);
        let words = format!("{threads} threads, {outstanding} out");
        (words, SYSTEMS.map(rate).to_vec())
    });
    let compared: Vec<_> = compared.collect();
    against_best(findings, "auto, flock-16", &compared);
    let most = |of: &dyn Fn((usize, usize)) -> f64| all().map(of).fold(f64::MIN, f64::max);
    let gain = most(&|(threads, outstanding)| sweep.ratio(threads, outstanding) - 1.0);
    let why = "FLOCK over eRPC, less one, the most of 1 to 32 threads with one and eight out";
    findings.answer("FL-007", "up to +50%", gain, (0.25, 0.75), why);
    let shorter = most(&|(threads, outstanding)| {
        let of = [0, 1].map(|kind| 1.0 - sweep.p99(threads, outstanding, kind));
        of[0].max(of[1])
    });
    let why = "by how much FLOCK's 99th percentile is below eRPC's, the most of GET and scan, 1 to 32 threads, one and eight out";
    findings.answer("FL-008", "up to 32%", shorter, (0.15, 1.0), why);
    let few = [1, 2, 4, 8].map(|threads| 1.0 / sweep.ratio(threads, 1) - 1.0);
    let why = "eRPC over FLOCK, less one, of 1 to 8 threads, one out";
    let (paper, bounds) = ("similar or slightly better", (0.0, 0.1));
    let least = few.into_iter().fold(f64::MAX, f64::min);
    findings.answer("FL-061 (least)", paper, least, bounds, why);
    let best = few.into_iter().fold(f64::MIN, f64::max);
    findings.answer("FL-061 (most)", paper, best, bounds, why);
    let flock = |threads| sweep.of(Preset::Flock, threads, 1).rpc.mops;
    let change = flock(16) / flock(8) - 1.0;
    let why = "FLOCK, 16 threads over 8, less one, one out";
    findings.answer("FL-062", "drop", change, (-1.0, 0.0), why);
    let why = "FLOCK over eRPC, less one, 32 threads, one out";
    let ahead = sweep.ratio(32, 1) - 1.0;
    findings.answer("FL-063", "slightly better", ahead, (0.0, 0.15), why);
    let others = [1, 2, 4, 8, 32].map(|threads| sweep.ratio(threads, 8));
    let least = others.into_iter().fold(f64::MAX, f64::min);
    let why = "FLOCK over eRPC, eight out, the least of 1, 2, 4, 8 and 32 threads";
    findings.answer("FL-064 (others)", "better", least, (1.0, f64::MAX), why);
    let why = "FLOCK over eRPC, eight out, 16 threads";
    findings.answer(
        "FL-064 (16)",
        "similar",
        sweep.ratio(16, 8),
        (0.9, 1.1),
        why,
    );
    let why = "FLOCK over eRPC, eight out, 32 threads";
    findings.answer("FL-065", "1.4x", sweep.ratio(32, 8), (1.2, 1.6), why);
    let latencies = |preset| sweep.of(preset, 32, 8).kinds;
    let pairs = latencies(Preset::Flock)
        .into_iter()
        .zip(latencies(Preset::Erpc));
    let longest = pairs
        .map(|(flock, erpc)| (flock.0 / erpc.0).max(flock.1 / erpc.1))
        .fold(f64::MIN, f64::max);
    let why = "FLOCK over eRPC, the most of median and 99th percentile of GET and scan, eight out, 32 threads";
    findings.answer("FL-065 latency", "lower", longest, (0.0, 1.0), why);
}
