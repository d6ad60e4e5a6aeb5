//! Exact statements of FaSST about RPC over datagrams: doorbells, receive queues, lengths, round trips, and the maximum
//! number of machines.

use dunlin::Preset;
use dunlin_verbs::Device;

use super::{Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::load::AllToAll;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-limits",
    title: "FaSST: doorbells, receive queues, lengths and machines, Connect-IB",
    says: "one doorbell for a batch whoever it is for; receive queues for all that may come; 4096 bytes; one round trip; 192 machines",
    run,
};

/// Number of machines of the larger testbed.
const MACHINES: usize = 192;
/// Requests of a batch, each to another machine.
const BATCH: usize = 8;
/// Maximum value size of FaSST's store.
const VALUE_BYTES: usize = 4060;
/// Maximum number of outstanding calls of a session.
const CALLS: usize = 32;

fn run(effort: Effort) -> Findings {
    let one = |preset| AllToAll {
        askers: 1,
        ..AllToAll::new(preset, 1, 1)
    };
    let batch = |preset| AllToAll {
        workers: 1,
        batch: BATCH,
        ..one(preset)
    };
    let long = AllToAll {
        workers: 1,
        bytes: 8,
        response_bytes: VALUE_BYTES,
        ..one(Preset::Fasst)
    };
    let others = if effort.quick { 2 } else { 10 };
    let full = AllToAll {
        workers: CALLS * others,
        ..AllToAll::new(Preset::Fasst, 1, 1)
    };
    let many = |preset| AllToAll {
        reach: 2,
        workers: 2,
        ..AllToAll::new(preset, 1, 1)
    };
    let plans = [
        (BATCH + 1, batch(Preset::Fasst)),
        (BATCH + 1, batch(Preset::QpPerThread)),
        (2, long),
        (others + 1, full),
        (MACHINES, many(PRESETS[0])),
        (if effort.quick { 4 } else { MACHINES }, many(PRESETS[1])),
    ];
    let found = parallel::map(effort.threads, &plans, |(machines, plan)| {
        let few = plan.workers == 1;
        let measure = if few {
            Testbed::rpc_counted
        } else {
            Testbed::rpc
        };
        measure(Testbed::Cib, *machines, plan, effort)
    });
    let [datagrams, connected, long, full, many, _] = &found[..] else {
        unreachable!("as many results as plans");
    };
    let mut findings = Findings::new(
        "a batch of eight by datagrams, by connections",
        "doorbells",
        false,
    );
    let batches = BATCH as f64;
    let rung = [datagrams, connected].map(|result| result.doorbells_of_first * batches);
    findings.line("doorbells", vec![(0.0, rung[0]), (1.0, rung[1])]);
    let why = "doorbells of a thread for a batch of eight requests to eight machines, fasst";
    findings.answer("FS-038 datagrams", "1", rung[0], (0.95, 1.05), why);
    let why = "doorbells of a thread for a batch of eight requests to eight machines, a queue pair for each";
    let bounds = (0.95 * batches, 1.05 * batches);
    findings.answer("FS-038 connected", "8", rung[1], bounds, why);
    let why = "datagrams without a RECEIVE, with 32 calls of each thread out to each of the other machines";
    findings.answer("FS-039", "queues of N c m", full.dropped, (0.0, 0.0), why);
    let why = "machines of a cluster that called two others each and answered: Connect-IB, one core asks and one answers, not ConnectX-3 with 8 cores all to all";
    let running = (many.answering as f64, MACHINES as f64);
    findings.answer("FS-042", "192", running.0, (running.1, running.1), why);
    let device = Testbed::Cib.cluster(2, effort);
    let mtu = device.device(device.hosts()[0]).attributes().mtu_bytes as f64;
    let why = "bytes of the longest datagram";
    findings.answer("FS-043 message", "4096", mtu, (4096.0, 4096.0), why);
    let why = "packets of a call that brings a value of 4060 bytes";
    findings.answer("FS-043 value", "2", long.packets, (1.99, 2.01), why);
    findings
}
