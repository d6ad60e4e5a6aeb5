//! FLOCK Fig. 6 to 8: FLOCK and eRPC, 23 clients with more and more threads, one to eight calls out.

use dunlin::Preset;

use super::auto::against_best;
use super::flock_rpc::{point, saturates_at};
use crate::figure::{Effort, Figure, Findings};
use crate::load::RpcPlan;
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-6",
    title: "FLOCK Fig. 6-8: FLOCK and eRPC; 23 clients, 64 B, a server of 32 cores",
    says: "alike up to 4 threads; eRPC saturates at 16; FLOCK gains 25 and 47 % from 16 to 32 to 48 threads, 1.25 to 3.4 times eRPC",
    run,
};

const WAYS: [Preset; 3] = [Preset::Flock, Preset::Erpc, Preset::Auto];

fn run(effort: Effort) -> Findings {
    let threads: &[usize] = if effort.quick {
        &[2, 8]
    } else {
        &[1, 2, 4, 8, 16, 32, 48]
    };
    let outstanding: &[usize] = if effort.quick { &[1] } else { &[1, 4, 8] };
    let mut points = Vec::new();
    for &threads in threads.iter().rev() {
        for &out in outstanding {
            points.extend(WAYS.map(|way| (way, threads, out)));
        }
    }
    let found = parallel::map(effort.threads, &points, |&(way, threads, out)| {
        point(RpcPlan::flock(way, threads, out), effort)
    });
    let by = |way: Preset, threads: usize, out: usize| {
        let place = points
            .iter()
            .position(|&point| point == (way, threads, out));
        &found[place.expect("a point of the sweep")]
    };
    let of = |flock: bool, threads: usize, out: usize| {
        let way = if flock { Preset::Flock } else { Preset::Erpc };
        by(way, threads, out)
    };
    let mut findings = Findings::new("threads a client", "M RPC/s", true);
    for &out in outstanding {
        for way in WAYS {
            let line = threads.iter().map(|&n| (n as f64, by(way, n, out).mops));
            findings.line(&format!("{way}, {out} out"), line.collect());
        }
    }
    let rates = |&(_, threads, out): &(Preset, usize, usize)| {
        let rates = WAYS.map(|way| (way, by(way, threads, out).mops));
        (format!("{threads} threads, {out} out"), rates.to_vec())
    };
    let compared: Vec<_> = points.iter().step_by(WAYS.len()).map(rates).collect();
    let ratio = |threads, out| of(true, threads, out).mops / of(false, threads, out).mops;
    let furthest = threads
        .iter()
        .filter(|&&n| n <= 4)
        .map(|&n| ratio(n, 1) - 1.0)
        .fold(
            0.0,
            |worst: f64, off| {
                if off.abs() > worst.abs() {
                    off
                } else {
                    worst
                }
            },
        );
    let why = "FLOCK over eRPC less one, the furthest of up to 4 threads, one call out";
    findings.answer("FL-015", "comparable", furthest, (-0.1, 0.1), why);
    let few = threads.iter().filter(|&&n| n <= 4);
    let least = few
        .map(|&n| of(true, n, 1).median_us / of(false, n, 1).median_us)
        .fold(f64::MAX, f64::min);
    let why = "median of FLOCK over that of eRPC, the least of up to 4 threads, one call out";
    let bounds = (0.95, f64::MAX);
    findings.answer("FL-022", "equal or slightly better", least, bounds, why);
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, flock-6", &compared);
    let saturated = |out| saturates_at(threads.iter().map(|&n| (n, of(false, n, out).mops)));
    let why = "fewest threads with nine tenths of the best rate of eRPC";
    findings.answer("FL-016", "16", saturated(1), (12.0, 24.0), why);
    findings.answer("FL-025", "8", saturated(8), (4.0, 12.0), why);
    let active = of(true, 16, 1).active as f64;
    let why = "active queue pairs of 368 threads";
    findings.answer("FL-018", "256", active, (256.0, 256.0), why);
    let growth = |to, from| of(true, to, 1).mops / of(true, from, 1).mops - 1.0;
    let why = "FLOCK's growth with one call out";
    findings.answer("FL-019", "+25%", growth(32, 16), (0.15, 0.35), why);
    findings.answer("FL-020", "+47%", growth(48, 32), (0.30, 0.60), why);
    let high = [16, 32, 48]
        .into_iter()
        .flat_map(|n| outstanding.iter().map(move |&out| ratio(n, out)));
    let (least, most) = high.fold((f64::MAX, 0.0f64), |(least, most), ratio| {
        (least.min(ratio), most.max(ratio))
    });
    let why = "FLOCK over eRPC, of 16 threads and more";
    findings.answer("FL-021 (least)", "1.25x", least, (1.1, 1.5), why);
    findings.answer("FL-021 (most)", "3.4x", most, (2.6, 4.2), why);
    let more = of(false, 48, 8).mops / of(false, 48, 1).mops - 1.0;
    let why = "eRPC at 48 threads, eight calls out over one, less one";
    findings.answer("FL-026", "similar", more, (-0.1, 0.1), why);
    let slower =
        |threads, out| of(false, threads, out).median_us / of(true, threads, out).median_us;
    let jump = of(false, 32, 1).median_us / of(false, 16, 1).median_us;
    let why = "median of eRPC with 32 threads over that with 16, one call out";
    let bounds = (1.6, f64::MAX);
    findings.answer("FL-017", "sharp increase", jump, bounds, why);
    let tails = of(false, 32, 1).p99_us / of(true, 32, 1).p99_us;
    let why = "99th percentile of eRPC over FLOCK's, one call out";
    findings.answer("FL-024", "1.5x", tails, (1.2, 2.0), why);
    let why = "median of eRPC over FLOCK's";
    findings.answer("FL-023", "2x", slower(32, 1), (1.5, 2.6), why);
    findings.answer("FL-027", "2.9x", slower(32, 8), (2.2, 3.6), why);
    findings.answer("FL-028", "3.9x", slower(48, 8), (2.9, 4.9), why);
    findings
}
