//! RB² §IV-A, Fig. 3: how pointers are transferred. Lazy push or pull of the head with write twice or immediate data
//! for the tail.

use dunlin_ring::{Batching, Design, HeadSync, TailSync};

use super::{extremes, gbit_s, ping_pong, size, streamed, unbatched};
use crate::figure::{Effort, Figure, Findings};
use crate::parallel;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "rb2-pointers",
    title: "RB² Fig. 3: ways for the pointers to cross, batches of 16",
    says: "pushing the head is 35.9 to 51.7 % faster than pulling it with 64 B; write twice and poll CQ are roughly equal but for 1 and 2 KB; in a ping-pong poll CQ has a higher mean and a much higher p99.9",
    run,
};

const SIZES: [usize; 8] = [64, 256, 1024, 2048, 4096, 32_768, 131_072, 1 << 20];

/// §IV-A: the slot size is the message size, the threshold is 16.
fn design(head_sync: HeadSync, tail_sync: TailSync) -> Design {
    Design {
        name: match (head_sync, tail_sync) {
            (HeadSync::LazyPull, TailSync::WriteTwice) => "Pull+WT",
            (HeadSync::LazyPull, _) => "Pull+CQ",
            (_, TailSync::WriteTwice) => "Push+WT",
            _ => "Push+CQ",
        },
        head_sync,
        tail_sync,
        push_slots: 16,
        batching: Batching::Adaptive {
            advance_slots: 16,
            transmit_slots: 16,
            sync_ahead: false,
            elastic: false,
        },
        ..Design::RB2
    }
}

fn run(effort: Effort) -> Findings {
    let [push_wt, push_cq, pull_wt, pull_cq] = [
        (HeadSync::LazyPush, TailSync::WriteTwice),
        (HeadSync::LazyPush, TailSync::CompletionQueue),
        (HeadSync::LazyPull, TailSync::WriteTwice),
        (HeadSync::LazyPull, TailSync::CompletionQueue),
    ]
    .map(|(head, tail)| design(head, tail));
    let designs = [push_wt, push_cq, pull_wt, pull_cq];
    let sizes: &[usize] = if effort.quick {
        &[64, 1024, 4096]
    } else {
        &SIZES
    };
    let points: Vec<(Design, usize)> = sizes
        .iter()
        .rev()
        .flat_map(|&bytes| designs.map(|design| (design, bytes)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(design, bytes)| {
        let streamed = streamed(design, bytes, 1, effort);
        let answered = ping_pong(unbatched(design), bytes, 1, effort);
        (streamed, answered.mean_us(), answered.p999_us())
    });
    let place = |design: Design, bytes: usize| {
        let place = points.iter().position(|point| *point == (design, bytes));
        &found[place.expect("a point of this figure")]
    };
    let rate = |design: Design, bytes: usize| place(design, bytes).0.mops;
    let mut findings = Findings::new("bytes of a message", "Gb/s; us", true);
    for design in designs {
        let line = sizes
            .iter()
            .map(|&bytes| (bytes as f64, gbit_s(rate(design, bytes), bytes)));
        findings.line(design.name, line.collect());
    }
    let pushed = |bytes| {
        [(push_wt, pull_wt), (push_cq, pull_cq)]
            .map(|(push, pull)| rate(push, bytes) / rate(pull, bytes))
    };
    let (low, high) = extremes(pushed(64));
    let rates = designs.map(|design| format!("{} {:.1}", design.name, rate(design, 64)));
    let rates = format!("64 B, push over pull; M/s: {}", rates.join(", "));
    findings.answer("RB-004 least", "+35.9%", low, (1.2, 1.7), &rates);
    findings.answer("RB-004 most", "+51.7%", high, (1.2, 1.7), &rates);
    let small = sizes.iter().filter(|bytes| (256..=4096).contains(*bytes));
    let (least, _) = extremes(small.flat_map(|&bytes| pushed(bytes)));
    findings.answer(
        "RB-005",
        "higher",
        least,
        (1.0, f64::MAX),
        "256 B to 4 KB, least of push over pull",
    );
    let equal = sizes.iter().filter(|bytes| ![1024, 2048].contains(*bytes));
    let (worst, from) = equal
        .map(|&bytes| {
            let ratio = rate(push_cq, bytes) / rate(push_wt, bytes);
            ((ratio - 1.0).abs(), bytes)
        })
        .fold(
            (0.0, 0),
            |most, one| if one.0 > most.0 { one } else { most },
        );
    findings.answer(
        "RB-006",
        "roughly equal",
        worst,
        (0.0, 0.1),
        &format!(
            "greatest difference of Push+CQ from Push+WT but at 1 and 2 KB, found at {}",
            size(from)
        ),
    );
    let others = [push_wt, pull_wt, pull_cq];
    let below = |limit: usize| sizes.iter().copied().filter(move |&bytes| bytes < limit);
    let excess = |bytes: usize, others: &[Design]| {
        let (_, worst) = extremes(others.iter().map(|&other| place(other, bytes).1));
        place(push_cq, bytes).1 - worst
    };
    let least = |others: &[Design]| extremes(below(32_768).map(|bytes| excess(bytes, others))).0;
    findings.answer(
        "RB-007",
        "slightly higher",
        least(&others),
        (0.0, f64::MAX),
        &format!(
            "us, below 32 KB, least excess of Push+CQ's mean round trip over the worst of the others; over both with WT {:.3}, over Pull+CQ {:.3}",
            least(&[push_wt, pull_wt]),
            least(&[pull_cq])
        ),
    );
    let work = |design: Design| {
        let streamed = &place(design, 64).0;
        streamed.receiver.mops(|c| c.busy_ps) / 1_000.0 / streamed.mops
    };
    findings.answer(
        "RB-042",
        "extra CPU",
        work(push_cq) - work(push_wt),
        (0.0, f64::MAX),
        "ns of the receiver for each message of 64 B in batches of 16, Push+CQ less Push+WT",
    );
    if effort.quick {
        // Too few round trips for a 99.9th percentile.
        return findings;
    }
    let tails = below(131_072).map(|bytes| {
        let (_, worst) = extremes(others.map(|other| place(other, bytes).2));
        place(push_cq, bytes).2 / worst
    });
    findings.answer(
        "RB-008",
        "significantly higher",
        extremes(tails).0,
        (1.5, f64::MAX),
        "below 128 KB, least of Push+CQ's p99.9 over the worst of the others",
    );
    findings
}
