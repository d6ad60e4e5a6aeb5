//! ScaleRPC Fig. 1(a) and 13: metadata of a file system, by Octopus's RPC and by ScaleRPC.
//!
//! The namespace is that of `dunlin-fs`, from memory; Octopus has its own in memory, too. Declared before the first
//! run:
//!
//! - a client is a process of mdtest: a thread with a connection and one operation at a time, in a directory of its own
//!   with 60 files, as many names as a directory of Octopus has (`MAX_DIRECTORY_COUNT` of its source); Rmnod begins
//!   with more of them, so that there are some left;
//! - Mknod is a change `Make`, Rmnod `Unlink`, Stat `Lookup` in a directory that the client knows, ReadDir one answer
//!   with all names; messages are those of `dunlin-fs`, which are shorter than Octopus's (paths of 255 bytes, names of
//!   50), in blocks of 4 KB as in Octopus; a client's handling of an answer takes no time;
//! - ten threads of the server poll, ScaleRPC has groups of 40 in static mode and slices of 100 us, as in the figures
//!   of RPC;
//! - queries share the namespace (§2.2: Octopus imposes no locking overhead for them), changes lock it one after the
//!   other;
//! - the cost of an operation is what callgrind counts for it in release (`examples/operations.rs`), with 120 clients,
//!   at two instructions a cycle of 2.9 GHz, the turbo frequency of this Xeon. The parameter files have no price of an
//!   instruction there, because those of its verbs have FaSST's code in them; they have no file system in them.

use dunlin::{ChannelConfig, Grouping, Preset, WaitMode};

use super::{cluster, AUTO_WINDOW, CLIENT_MACHINES, HARDWARE_THREADS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::load::{Application, ApplicationResult, Metadata, Operation};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-metadata",
    title: "ScaleRPC Fig. 1(a), 13: Mknod, Rmnod, Stat and ReadDir by selfRPC and ScaleRPC, 40 to 120 clients",
    says: "Stat and ReadDir lose half from 40 to 120 clients by selfRPC, and gain 50 and 90 % by ScaleRPC; Mknod and Rmnod hardly change",
    run,
};

const SYSTEMS: [Preset; 3] = [Preset::SelfRpc, Preset::ScaleRpc, Preset::Auto];
const CLIENTS: [usize; 3] = [40, 80, 120];
const POLLERS: usize = 10;
/// Bytes of a block.
const BLOCK_BYTES: usize = 4 << 10;
/// Files of a directory.
const FILES: usize = 60;
/// More than a client removes in all windows.
const REMOVED: usize = 4_000;
/// Two instructions a cycle of 2.9 GHz.
const INSTRUCTION_NS: f64 = 0.172;

/// Instructions of an operation, as counted by callgrind.
fn instructions(operation: Operation) -> u32 {
    match operation {
        Operation::Mknod => 12_300,
        Operation::Rmnod => 12_100,
        Operation::Stat => 2_560,
        Operation::ReadDir => 57_700,
    }
}

/// A point: preset, operation, and number of clients.
type Point = (Preset, Operation, usize);

fn point((preset, operation, clients): Point, effort: Effort) -> ApplicationResult {
    let grouping = Grouping {
        by_priority: false,
        ..Grouping::default()
    };
    let load = Metadata {
        application: Application {
            preset,
            threads: clients,
            outstanding: 1,
            pollers: POLLERS,
            dispatched: false,
            paced: false,
            channel: ChannelConfig {
                ring_bytes: 4 * BLOCK_BYTES,
                eager_bytes: BLOCK_BYTES,
                wait: WaitMode::Spin,
                ..ChannelConfig::default()
            },
        },
        grouping,
        operation,
        files: match operation {
            Operation::Rmnod => REMOVED,
            _ => FILES,
        },
        cost_ns: (f64::from(instructions(operation)) * INSTRUCTION_NS) as u64,
    };
    // Every group has several turns.
    let groups = clients.div_ceil(grouping.clients) as u64;
    let round = groups * grouping.slice.as_nanos() as u64;
    let (warm, measured) = match (effort.quick, preset) {
        (true, _) => (round, round),
        (false, Preset::Auto) => (AUTO_WINDOW.warm_ns, AUTO_WINDOW.measured_ns),
        (false, _) => (5 * round, 10 * round),
    };
    let bench = load.serve(cluster(CLIENT_MACHINES + 1, effort));
    let result = bench.measure(0, warm.max(300_000), measured);
    assert_eq!(
        bench.stop(),
        (0, 0),
        "operations that failed or were answered otherwise"
    );
    result
}

fn run(effort: Effort) -> Findings {
    let clients: &[usize] = if effort.quick { &[22] } else { &CLIENTS };
    let mut points: Vec<Point> = Vec::new();
    for operation in Operation::ALL {
        for &clients in clients.iter().rev() {
            points.extend(SYSTEMS.map(|preset| (preset, operation, clients)));
        }
    }
    let found = parallel::map(effort.threads, &points, |&one| point(one, effort));
    let of = |point: Point| -> &ApplicationResult {
        let place = points.iter().position(|&other| other == point);
        &found[place.expect("a point")]
    };
    let mut findings = Findings::new("clients", "M operations/s; us", false);
    for operation in Operation::ALL {
        for preset in SYSTEMS {
            for (what, value) in [
                ("", (|r| r.rpc.mops) as fn(&ApplicationResult) -> f64),
                (", median, us", |r| r.rpc.median_us),
                (", 99th percentile, us", |r| r.rpc.p99_us),
                (", busy pollers", |r| {
                    r.rpc.server_busy * HARDWARE_THREADS / POLLERS as f64
                }),
            ] {
                let value = |&n: &usize| (n as f64, value(of((preset, operation, n))));
                let name = format!("{} {preset}{what}", operation.name());
                findings.line(&name, clients.iter().map(value).collect());
            }
        }
    }
    if effort.quick {
        return findings;
    }
    let rate = |preset, operation, clients| of((preset, operation, clients)).rpc.mops;
    let compared = Operation::ALL.iter().flat_map(|&operation| {
        clients.iter().map(move |&n| {
            let rates = SYSTEMS.map(|preset| (preset, rate(preset, operation, n)));
            (format!("{}, {n} clients", operation.name()), rates.to_vec())
        })
    });
    let compared: Vec<_> = compared.collect();
    against_best(&mut findings, "auto, scalerpc-metadata", &compared);
    for (id, operation, paper, bounds) in [
        ("SR-001", Operation::Stat, "almost -50%", (-0.6, -0.35)),
        ("SR-002", Operation::ReadDir, "almost -50%", (-0.6, -0.35)),
        ("SR-003", Operation::Mknod, "about -5%", (-0.12, 0.0)),
    ] {
        let of = |clients| rate(Preset::SelfRpc, operation, clients);
        let name = operation.name();
        let why = format!("{name} by selfRPC, 120 clients over 40, less one");
        findings.answer(id, paper, of(120) / of(40) - 1.0, bounds, &why);
    }
    let gain = |operation, clients| {
        let of = |preset| rate(preset, operation, clients);
        of(Preset::ScaleRpc) / of(Preset::SelfRpc) - 1.0
    };
    let changes = [Operation::Mknod, Operation::Rmnod];
    let changes = changes.map(|operation| [80, 120].map(|clients| gain(operation, clients)));
    let changes = changes.as_flattened();
    let bounds = (0.02, 0.12);
    let why = "ScaleRPC over selfRPC, less one, Mknod and Rmnod, 80 and 120 clients";
    let least = changes.iter().copied().fold(f64::MAX, f64::min);
    findings.answer("SR-048 (least)", "+5%..+6.5%", least, bounds, why);
    let most = changes.iter().copied().fold(f64::MIN, f64::max);
    findings.answer("SR-048 (most)", "+5%..+6.5%", most, bounds, why);
    let mean = |operation| (gain(operation, 80) + gain(operation, 120)) / 2.0;
    let why = "ScaleRPC over selfRPC, less one, Stat, the mean of 80 and 120 clients";
    findings.answer("SR-049", "+50%", mean(Operation::Stat), (0.3, 0.7), why);
    let why = "ScaleRPC over selfRPC, less one, ReadDir, the mean of 80 and 120 clients";
    let bounds = (0.55, 1.25);
    findings.answer("SR-050", "+90%", mean(Operation::ReadDir), bounds, why);
    let best = Operation::ALL
        .map(mean)
        .into_iter()
        .fold(f64::MIN, f64::max);
    let why = "ScaleRPC over selfRPC, less one, the most of the four operations, each the mean of 80 and 120 clients";
    findings.answer("SR-016", "up to +90%", best, bounds, why);
    findings
}
