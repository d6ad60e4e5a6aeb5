//! FLOCK Fig. 12: more and more client processes, with one or two threads each.

use dunlin::Preset;

use super::auto::against_best;
use super::flock_rpc::{point, saturates_at, MACHINES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::RpcPlan;
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-12",
    title: "FLOCK Fig. 12: 23 to 368 client processes on 23 machines, 64 B, eight calls out a thread",
    says: "one thread: saturates at 46 clients, 74 % above eRPC; two threads on one queue pair are 10 to 30 % ahead of two on two",
    run,
};

const OUTSTANDING: usize = 8;

/// Threads and queue pairs of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    OneOnOne,
    TwoOnTwo,
    TwoOnOne,
    /// eRPC.
    Datagrams,
    /// `auto`, with one and with two threads.
    Auto(usize),
}

fn plan(way: Way, processes: usize) -> RpcPlan {
    let (preset, threads, lanes) = match way {
        Way::TwoOnTwo => (Preset::QpPerThread, 2, 2),
        Way::TwoOnOne => (Preset::Flock, 2, 1),
        Way::Auto(threads) => (Preset::Auto, threads, threads),
        Way::OneOnOne => (Preset::Flock, 1, 1),
        Way::Datagrams => (Preset::Erpc, 1, 1),
    };
    RpcPlan {
        processes: processes.div_ceil(MACHINES),
        most_processes: processes,
        lanes,
        ..RpcPlan::flock(preset, threads, OUTSTANDING)
    }
}

fn run(effort: Effort) -> Findings {
    let processes: &[usize] = if effort.quick {
        &[23, 92]
    } else {
        &[23, 46, 92, 184, 276, 368]
    };
    let ways = [
        Way::OneOnOne,
        Way::TwoOnTwo,
        Way::TwoOnOne,
        Way::Datagrams,
        Way::Auto(1),
        Way::Auto(2),
    ];
    let points: Vec<(Way, usize)> = processes
        .iter()
        .rev()
        .flat_map(|&count| ways.map(|way| (way, count)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(way, count)| {
        point(plan(way, count), effort)
    });
    let of = |way: Way, count: usize| {
        let place = points.iter().position(|&point| point == (way, count));
        &found[place.expect("a point of the sweep")]
    };
    let mut findings = Findings::new("client processes", "M RPC/s", true);
    for (name, way) in [
        ("1 thread, 1 queue pair", Way::OneOnOne),
        ("2 threads, 2 queue pairs", Way::TwoOnTwo),
        ("2 threads, 1 queue pair", Way::TwoOnOne),
        ("eRPC", Way::Datagrams),
        ("1 thread, auto", Way::Auto(1)),
        ("2 threads, auto", Way::Auto(2)),
    ] {
        let line = processes
            .iter()
            .map(|&count| (count as f64, of(way, count).mops));
        findings.line(name, line.collect());
    }
    let rate = |way: Way, count: usize| of(way, count).mops;
    let alone = |&n: &usize| {
        let rates = vec![
            (Preset::Flock, rate(Way::OneOnOne, n)),
            (Preset::Erpc, rate(Way::Datagrams, n)),
            (Preset::Auto, rate(Way::Auto(1), n)),
        ];
        (format!("{n} processes of one thread"), rates)
    };
    let both = |&n: &usize| {
        let rates = vec![
            (Preset::QpPerThread, rate(Way::TwoOnTwo, n)),
            (Preset::Flock, rate(Way::TwoOnOne, n)),
            (Preset::Auto, rate(Way::Auto(2), n)),
        ];
        (format!("{n} processes of two threads"), rates)
    };
    let compared: Vec<_> = processes.iter().flat_map(|n| [alone(n), both(n)]).collect();
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, flock-12", &compared);
    let single = |count| of(Way::OneOnOne, count).mops;
    findings.answer(
        "FL-043",
        "46 clients",
        saturates_at(processes.iter().map(|&count| (count, single(count)))),
        (35.0, 92.0),
        "fewest processes of one thread with nine tenths of their best rate",
    );
    let ahead = |count: &usize| single(*count) / of(Way::Datagrams, *count).mops - 1.0;
    findings.answer(
        "FL-044",
        ">=+74%",
        processes.iter().map(ahead).fold(f64::MAX, f64::min),
        (0.5, 4.0),
        "one thread over eRPC, less one, the least of all counts",
    );
    let median = of(Way::OneOnOne, 368).median_us / of(Way::Datagrams, 368).median_us;
    findings.answer(
        "FL-045",
        "-51%",
        median - 1.0,
        (-0.65, -0.35),
        "median over that of eRPC, less one",
    );
    let tail = of(Way::OneOnOne, 368).p99_us / of(Way::Datagrams, 368).p99_us;
    findings.answer(
        "FL-046",
        "-25%",
        tail - 1.0,
        (-0.4, -0.1),
        "99th percentile over that of eRPC, less one",
    );
    let from_46 = || processes.iter().filter(|&&count| count >= 46);
    let gains =
        from_46().map(|&count| of(Way::TwoOnOne, count).mops / of(Way::TwoOnTwo, count).mops);
    let (least, most) = gains.fold((f64::MAX, 0.0f64), |(least, most), gain| {
        (least.min(gain), most.max(gain))
    });
    let why = "two threads on one queue pair over two on two, less one";
    findings.answer("FL-047 (least)", "+10%", least - 1.0, (0.05, 0.4), why);
    findings.answer("FL-047 (most)", "+30%", most - 1.0, (0.05, 0.4), why);
    let tails: Vec<f64> = from_46()
        .map(|&count| of(Way::TwoOnOne, count).p99_us / of(Way::TwoOnTwo, count).p99_us - 1.0)
        .collect();
    findings.answer(
        "FL-048",
        "10-30% lower",
        tails.iter().sum::<f64>() / tails.len() as f64,
        (-0.4, -0.05),
        "99th percentile of two on one over two on two, less one, mean of 46 clients and more",
    );
    findings
}
