//! FaSST's transactions: TATP on Connect-IB with one and with 19 workers per thread, and on increasing numbers of
//! machines with ConnectX-3; and the rate of the cores with O(4,2).
//!
//! Every machine stores and runs transactions; three copies of each key and the log of the coordinator. Declared before
//! the first run: a machine's cores are divided among threads that call and threads that answer, in the best way (a
//! thread of FaSST does both), and those that call have as many workers as all of its threads together; ten thousand
//! subscribers per machine and a hundred thousand keys; aborted transactions are not retried, and neither they nor
//! those that TATP declines count.

use dunlin::{Grouping, Preset};

use super::Testbed;
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::load::{Transactions, TransactionsBench, TransactionsResult, Work};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-transactions",
    title: "FaSST: TATP with one and 19 workers of a thread, and on 4 to 16 machines; O(4,2)",
    says: "19.7 and 95.7 M/s on eleven machines with Connect-IB, with medians of 2.8 and 12.6 us; linear in machines",
    run,
};

const SUBSCRIBERS: u64 = 10_000;
const KEYS: u64 = 100_000;
const COPIES: usize = 3;
const WORKERS: usize = 19;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    bed: Testbed,
    preset: Preset,
    machines: usize,
    workers: usize,
    objects: bool,
}

impl Point {
    /// Runs with this many cores of a machine that answer.
    fn with(self, pollers: usize, effort: Effort) -> TransactionsResult {
        let cores = if effort.quick { 4 } else { self.bed.cores() };
        let threads = cores - pollers;
        let machines = self.machines as u64;
        let share = if effort.quick { 50 } else { 1 };
        let plan = Transactions {
            preset: self.preset,
            protocol: match self.preset {
                Preset::Auto => "auto",
                _ => "fasst",
            },
            alone: false,
            stores: self.machines,
            replicas: COPIES,
            symmetric: true,
            most_machines: usize::MAX,
            threads,
            most_threads: usize::MAX,
            transactions: (cores * self.workers).div_ceil(threads) as u16,
            pollers,
            most_active: 256,
            max_outstanding: 32,
            ring_bytes: 16 << 10,
            together: None,
            grouping: Grouping::default(),
            uses_queues: !effort.quick,
            work: match self.objects {
                true => Work::Objects {
                    keys: KEYS * machines / share,
                    all: 4,
                    changed: 2,
                },
                false => Work::Tatp(SUBSCRIBERS * machines / share),
            },
        };
        let cluster = self.bed.cluster(self.machines, effort);
        let window = if effort.quick { 60_000 } else { 300_000 };
        TransactionsBench::new(cluster, &plan).measure(0, window, window)
    }

    /// Runs with the best division of the cores; also returns how many of them answer.
    fn run(self, effort: Effort) -> (TransactionsResult, usize) {
        let half = if effort.quick {
            2
        } else {
            self.bed.cores() / 2
        };
        let mut best = (self.with(half, effort), half);
        if effort.quick {
            return best;
        }
        for step in [1, -1] {
            let first = best.1;
            while let Some(pollers) = best.1.checked_add_signed(step) {
                if !(1..self.bed.cores()).contains(&pollers) {
                    break;
                }
                let next = self.with(pollers, effort);
                if next.mtps <= best.0.mtps {
                    break;
                }
                best = (next, pollers);
            }
            if best.1 != first {
                break;
            }
        }
        best
    }
}

fn run(effort: Effort) -> Findings {
    let cib = |preset, workers, objects| Point {
        bed: Testbed::Cib,
        preset,
        machines: if effort.quick { 3 } else { 11 },
        workers,
        objects,
    };
    let sweep: &[usize] = if effort.quick { &[4] } else { &[4, 8, 16] };
    let cx3 = |machines| Point {
        bed: Testbed::Cx3,
        preset: Preset::Fasst,
        machines,
        workers: WORKERS,
        objects: false,
    };
    let mut points = Vec::new();
    points.extend(sweep.iter().rev().map(|&machines| cx3(machines)));
    for preset in [Preset::Fasst, Preset::Auto] {
        points.extend([1, WORKERS].map(|workers| cib(preset, workers, false)));
        points.push(cib(preset, WORKERS, true));
    }
    let found = parallel::map(effort.threads, &points, |point| point.run(effort));
    let of = |point: Point| -> &(TransactionsResult, usize) {
        let place = points.iter().position(|&other| other == point);
        &found[place.expect("a point")]
    };
    let mut findings = Findings::new("workers; machines", "M transactions/s; us", false);
    for (point, (result, pollers)) in points.iter().zip(&found) {
        let what = if point.objects { "O(4,2)" } else { "TATP" };
        let (bed, machines, preset) = (point.bed.name(), point.machines, point.preset);
        let name = format!("{what}, {machines} machines with {bed}, {preset}");
        for (words, value) in [
            ("", result.mtps),
            (", median, us", result.median_us),
            (", 99th percentile, us", result.p99_us),
            (", aborted", result.aborted),
            (", cores that answer", *pollers as f64),
        ] {
            let value = vec![(point.workers as f64, value)];
            findings.line(&format!("{name}{words}"), value);
        }
    }
    if effort.quick {
        return findings;
    }
    let tatp = |workers| of(cib(Preset::Fasst, workers, false)).0;
    let (one, many) = (tatp(1), tatp(WORKERS));
    let why = "M/s of eleven machines with Connect-IB, TATP, one worker of a thread";
    findings.answer("FS-030", "19.7 M/s", one.mtps, (15.76, 23.64), why);
    let why = "median of it, us";
    findings.answer("FS-031", "2.8us", one.median_us, (2.2, 3.6), why);
    let why = "99th percentile of it, us";
    findings.answer("FS-032", "21.8us", one.p99_us, (14.0, 32.0), why);
    let why = "M/s of eleven machines with Connect-IB, TATP, 19 workers of a thread";
    findings.answer("FS-033", "95.7 M/s", many.mtps, (76.56, 114.84), why);
    let why = "median of it, us";
    findings.answer("FS-034", "12.6us", many.median_us, (9.0, 17.0), why);
    let why = "99th percentile of it, us";
    findings.answer("FS-035", "87.2us", many.p99_us, (60.0, 120.0), why);
    let of_machine = |&machines: &usize| of(cx3(machines)).0.mtps / machines as f64;
    let each: Vec<f64> = sweep.iter().map(of_machine).collect();
    let kept = each
        .iter()
        .map(|rate| rate / each[0])
        .fold(f64::MAX, f64::min);
    let why = "what a machine with ConnectX-3 does of 4 to 16, the least over that of 4, TATP";
    findings.answer("FS-025", "linear", kept, (0.95, f64::MAX), why);
    let (changing, _) = of(cib(Preset::Fasst, WORKERS, true));
    let why = "share of its 14 cores' time that a machine with Connect-IB was busy, O(4,2), polling in vain included";
    let busy = changing.server_cores / Testbed::Cib.cores() as f64;
    findings.answer("FS-023", "CPU", busy, (0.95, 1.05), why);
    let rates = [(1, false), (WORKERS, false), (WORKERS, true)].map(|(workers, objects)| {
        let rates = [Preset::Fasst, Preset::Auto];
        let rates = rates.map(|preset| (preset, of(cib(preset, workers, objects)).0.mtps));
        let what = if objects { "O(4,2)" } else { "TATP" };
        (format!("{what}, {workers} workers"), rates.to_vec())
    });
    against_best(&mut findings, "auto, fasst-transactions", &rates);
    findings
}
