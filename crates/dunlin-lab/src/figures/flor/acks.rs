//! Flor Fig. 5 and Fig. 17: when a receiver acknowledges.

use dunlin_flor::ack::{Ack, AckTriggers, AckedNumber, MAX_ACK_BYTES};
use dunlin_flor::connection::Deployment;
use dunlin_sim::NicParameters;

use super::{flor, two, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Flor, FlorResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-acks",
    title: "Flor Fig. 5, 17: coalesced acknowledgements, ConnectX-4 Lx, 8 threads, 64 queue pairs, 128 B",
    says: "about 40 % more than with an acknowledgement for each; 120 us and 32 work requests do; the delay grows with them, round trips do not",
    run,
};

/// Numbers of work requests before an acknowledgement.
const WORK_REQUESTS: [usize; 5] = [1, 4, 8, 16, 32];
/// Timers in microseconds.
const TIMERS_US: [u64; 3] = [30, 120, 480];
/// The paper's choice.
const CHOSEN: (usize, u64) = (32, 120);

fn run(effort: Effort) -> Findings {
    let (requests, timers): (&[usize], &[u64]) = match effort.quick {
        true => (&[1, 32], &[120]),
        false => (&WORK_REQUESTS, &TIMERS_US),
    };
    let mut points: Vec<(usize, u64)> = Vec::new();
    for &timer in timers {
        points.extend(requests.iter().map(|&count| (count, timer)));
    }
    let found = parallel::map(effort.threads, &points, |&(work_requests, timer_us)| {
        let plan = Flor {
            triggers: AckTriggers {
                work_requests,
                timer_ns: timer_us * 1_000,
                ..AckTriggers::PAPER
            },
            threads: 8,
            connections: 8,
            fragment_bytes: 4 << 10,
            ..flor(Deployment::IntraPodUnreliable, 128)
        };
        let cluster = two(NicParameters::connectx_4_lx(), effort);
        plan.run(&cluster, window(2, effort))
    });
    let of = |point: (usize, u64)| -> &FlorResult {
        let place = points.iter().position(|&other| other == point);
        &found[place.expect("a point")]
    };
    let mut findings = Findings::new("work requests of an acknowledgement", "M RPC/s; us", false);
    for &timer in timers {
        let line = |value: &dyn Fn(&FlorResult) -> f64| -> Vec<(f64, f64)> {
            let point = |&count: &usize| (count as f64, value(of((count, timer))));
            requests.iter().map(point).collect()
        };
        findings.line(&format!("{timer} us, M/s"), line(&|result| result.mops));
        findings.line(
            &format!("{timer} us, 99th percentile of the delay, us"),
            line(&|result| result.ack_delay_us),
        );
        findings.line(
            &format!("{timer} us, 99th percentile of round trips, us"),
            line(&|result| result.rtt_us),
        );
    }
    let numbers = numbers_in(40) as f64;
    let why = "numbers in an acknowledgement of 40 bytes, by the codec";
    findings.answer("FR-053", "4", numbers, (4.0, 4.0), why);
    if effort.quick {
        return findings;
    }
    let each = of((1, CHOSEN.1));
    let chosen = of(CHOSEN);
    let why = "requests a second with 32 work requests and 120 us over one acknowledgement for each, less one";
    findings.answer(
        "FR-011",
        "~+40%",
        chosen.mops / each.mops - 1.0,
        (0.25, 0.6),
        why,
    );
    let best = found.iter().map(|result| result.mops).fold(0.0, f64::max);
    let why = "32 work requests and 120 us over the best of fifteen settings";
    findings.answer("FR-012", "satisfying", chosen.mops / best, (0.95, 1.0), why);
    let grows = chosen.ack_delay_us / each.ack_delay_us;
    let why = "99th percentile of the delay with 32 work requests over that with one";
    findings.answer("FR-050 delay", "rises", grows, (1.5, f64::INFINITY), why);
    let why = "the same of the round trips";
    let ours = chosen.rtt_us / each.rtt_us;
    findings.answer("FR-050 round trips", "unaffected", ours, (0.8, 1.25), why);
    findings
}

/// Number of entries in an acknowledgement of this length.
fn numbers_in(bytes: usize) -> usize {
    let mut ack = Ack::new(1, 0, false);
    let mut packet = [0; MAX_ACK_BYTES];
    while ack.encode(&mut packet) < bytes && ack.push(AckedNumber::Write(0)) {}
    ack.numbers().len()
}
