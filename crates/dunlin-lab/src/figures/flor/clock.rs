//! Flor A.2.1: how often a NIC's clock that is queried every 100 us has to be corrected, and the cost of a query.
//!
//! Declared: NICs' clocks are within 100 parts per million, as Ethernet allows a port's (IEEE 802.3), drawn for each by
//! the seed; the processor's has no error. Each connection sends a message of 64 bytes every 50 us, so that a clock is
//! queried when due. The cost of a query is set by FR-048, so that row shows only that it is charged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_flor::connection::Deployment;
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{thread, Device};

use crate::figure::{Effort, Figure, Findings};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-clock",
    title: "Flor A.2.1: clocks that are asked every 100 us and corrected by more than 10 us, ConnectX-4 Lx",
    says: "asking takes 1 us; less than 1 % of the answers correct anything",
    run,
};

/// Query time of a ConnectX-4, from FR-048.
const QUERY_NS: f64 = 1_000.0;
/// Drift of clocks of Ethernet ports, and a larger one for short runs.
const DRIFT_PPM: [f64; 2] = [100.0, 900.0];
/// Clocks begin within a second of each other.
const OFFSET_NS: f64 = 1e9;
/// Number of pairs of hosts.
const PAIRS: usize = 4;
const MESSAGE_BYTES: u32 = 64;
const PAUSE: Duration = Duration::from_micros(50);
/// Durations of a run.
const RUN_NS: [u64; 2] = [2_000_000_000, 60_000_000];

type Link = LogicalConnection<SimDevice>;

/// Counts of all threads.
#[derive(Debug, Default)]
struct Counted {
    asked: AtomicU64,
    corrected: AtomicU64,
    answered: AtomicU64,
    /// Duration of the first query, in nanoseconds.
    query_ns: AtomicU64,
}

fn run(effort: Effort) -> Findings {
    let [drift, quick_drift] = DRIFT_PPM;
    let [run_ns, quick_ns] = RUN_NS;
    let (drift, run_ns) = match effort.quick {
        true => (quick_drift, quick_ns),
        false => (drift, run_ns),
    };
    let points: Vec<f64> = [0.5, 1.0].iter().map(|share| share * drift).collect();
    let found = parallel::map(effort.threads, &points, |&ppm| {
        let counted = drift_for(ppm, run_ns, effort);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        assert!(of(&counted.asked) > 0.0, "nobody asked");
        let share = of(&counted.corrected) / of(&counted.asked);
        (share, of(&counted.query_ns) / 1_000.0)
    });
    let mut findings = Findings::new("parts per million at most", "share", false);
    let line = points
        .iter()
        .zip(&found)
        .map(|(&ppm, found)| (ppm, found.0));
    findings.line("answers that correct", line.collect());
    let [.., (share, query_us)] = found[..] else {
        unreachable!("there are two points")
    };
    let why = "us of a core that asking takes, which a parameter sets";
    findings.answer("FR-048", "1us", query_us, (1.0, 1.0), why);
    if effort.quick {
        return findings;
    }
    let why = "share of the answers, every 100 us, that show an error of more than 10 us, all NICs together";
    findings.answer("FR-049", "<1%", share, (0.0, 0.02), why);
    findings
}

/// Runs pairs of hosts that exchange messages for this long, with clocks of this drift.
fn drift_for(ppm: f64, run_ns: u64, effort: Effort) -> Arc<Counted> {
    let mut nic = effort.nic(NicParameters::connectx_4_lx());
    nic.clock_query_ns = QUERY_NS;
    nic.clock_offset_ns = OFFSET_NS;
    nic.clock_drift_ppm = ppm;
    let host = effort.host(HostParameters::xeon_gold_5118());
    let switch = effort.switch(SwitchParameters::z9264f());
    let cluster = Cluster::star(effort.seed, 2 * PAIRS, &host, &nic, &switch);
    let counted = Arc::new(Counted::default());
    for pair in cluster.hosts().chunks_exact(2) {
        let ends = [0, 1].map(|end| {
            let config = LinkConfig::new(Deployment::IntraPodUnreliable);
            Link::new(cluster.device(pair[end]), config).expect("a connection")
        });
        let addresses = ends.each_ref().map(Link::address);
        for (end, mut link) in ends.into_iter().enumerate() {
            link.connect(&addresses[1 - end], 0, 0).expect("an address");
            let device = cluster.device(pair[end]);
            let counted = Arc::clone(&counted);
            let talk = move || talk(link, &device, run_ns, &counted);
            cluster.spawn_thread(pair[end], 0, talk);
        }
    }
    // A little more, so that all have ended.
    cluster.run_for(run_ns + run_ns / 10);
    let answered = counted.answered.load(Ordering::Relaxed);
    assert!(answered > 0, "nothing came");
    counted
}

fn now() -> Duration {
    thread::simulated_now().unwrap_or_default()
}

fn now_ns() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends a message after each pause, and takes arriving ones.
fn talk(mut link: Link, device: &SimDevice, run_ns: u64, counted: &Counted) {
    let begun = now();
    if device.query_clock_ns().is_some() {
        let took = u64::try_from((now() - begun).as_nanos()).unwrap_or(u64::MAX);
        counted.query_ns.store(took, Ordering::Relaxed);
    }
    let region = link.allocate(MESSAGE_BYTES as usize).expect("memory");
    let mut under_way = false;
    while now_ns() < run_ns {
        if !under_way {
            let source = Source {
                region: region.clone(),
                offset: 0,
                bytes: MESSAGE_BYTES,
            };
            under_way = link.submit(now_ns(), source).is_ok();
        }
        while let Ok(Some(event)) = link.poll(now_ns()) {
            match event {
                LinkEvent::Message(_) => {
                    counted.answered.fetch_add(1, Ordering::Relaxed);
                }
                LinkEvent::Finished(..) => under_way = false,
                _ => {}
            }
        }
        thread::sleep(PAUSE);
    }
    let counts = link.clock_counts();
    counted.asked.fetch_add(counts.asked, Ordering::Relaxed);
    counted
        .corrected
        .fetch_add(counts.corrected, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With clocks that drift nine times as fast as the figure's, and for less time.
    #[test]
    fn clocks_are_asked_and_corrected() {
        let findings = run(Effort::new(true, 1));
        let points = &findings.series[0].points;
        assert!(points.iter().all(|&(_, share)| (0.0..0.1).contains(&share)));
        assert!(points.last().is_some_and(|&(_, share)| share > 0.0));
        let query = &findings.answers[0];
        assert!((query.id.as_str(), query.within) == ("FR-048", true));
    }
}
