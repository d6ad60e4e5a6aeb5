//! Flor §2.2, Fig. 1 and 2: NICs of two generations and of three vendors in one network, by perftest.
//!
//! Declared, since the paper is silent: WRITEs of 64 KB by RC at MTU 1024, four outstanding on each queue pair, hosts
//! as in all of Flor's figures. The switch is the model's Z9264F-ON with PFC, but it pauses a sender only when the
//! sender's packets occupy an eighth of its buffer, as HPCC's switch does: at the 200 KB of its file it would pause
//! before it marks. Between vendors (100 Gb/s) it marks by its file, which has HPCC's values; in the mesh (50 Gb/s) by
//! those of DCQCN's paper for 40 Gb/s, in proportion, because with HPCC's nothing is marked there at all.
//!
//! All rows here are `calibrate` or `exact`, and parameters without another source are set by them: how a ConnectX-4
//! differs ([`older`]) and the marks of the mesh by FR-003, the window of a P2100G (its parameter file) by FR-004.
//! FR-005 and FR-006 set nothing.

use dunlin_sim::{Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchParameters};

use super::{share, MTU_BYTES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Perftest, Window};
use crate::parallel::Sweep;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-vendors",
    title: "Flor §2.2, Fig. 1, 2: perftest between NICs of two generations and of three vendors",
    says: "28 and 41 Gb/s by ConnectX-4 and 5 in one mesh; 66 and 20 Gb/s by Mellanox and Broadcom to Intel, \
           turned round with many queue pairs; 43 and 15 Gb/s by Broadcom and Intel to Mellanox",
    run,
};

/// Queue pairs of a sender to a receiver.
const QUEUE_PAIRS: [usize; 3] = [1, 64, 512];
/// NICs of each generation in the mesh.
pub(super) const OF_EACH: usize = 8;
/// Rate of two ports of 25 Gb/s.
pub(super) const MESH_GBIT_S: f64 = 50.0;
/// Rate of the ports of the three vendors.
pub(super) const VENDORS_GBIT_S: f64 = 100.0;
/// DCQCN's marking for ports of 40 Gb/s: queue lengths in bytes at which it begins and is certain, and the probability
/// just before that (Zhu et al., SIGCOMM'15).
const MARKS_AT_40_GBIT_S: (f64, f64, f64) = (5_000.0, 200_000.0, 0.01);
const RESUME_BELOW_BYTES: f64 = 3_000.0;

/// A ConnectX-4, whose DCQCN is not that of a ConnectX-5 (§2.2): it forgets its previous rate with every cut, as the
/// algorithm was published (`clamp_target`), and rises every 680 us, for which FR-003 is the only source. With 300 us
/// it made 46.0 Gb/s compared with 46.1 of a ConnectX-5, with 600 us 34.5 compared with 46.2, with 900 us 23.3; those
/// were without the minimum time between two cuts (`reduce_interval_ns`), with which it makes 31.5 instead of 30.5.
pub(super) fn older() -> NicParameters {
    NicParameters {
        clamp_target: 1.0,
        increase_period: 680_000_000,
        ..NicParameters::connectx_4_lx()
    }
}

/// A ConnectX-5 at the rate of the mesh.
pub(super) fn newer() -> NicParameters {
    NicParameters {
        link_gbit_s: MESH_GBIT_S,
        ..NicParameters::connectx_5()
    }
}

/// The switch with ports of this rate.
pub(super) fn switch(gbit_s: f64, effort: Effort) -> SwitchParameters {
    let mut switch = effort.switch(SwitchParameters::z9264f());
    if gbit_s < VENDORS_GBIT_S {
        let (least, most, probability) = MARKS_AT_40_GBIT_S;
        switch.ecn_min_bytes = least * gbit_s / 40.0;
        switch.ecn_max_bytes = most * gbit_s / 40.0;
        switch.ecn_probability = probability;
    }
    switch.pause_bytes = switch.buffer_bytes * switch.buffer_alpha;
    switch.resume_bytes = switch.pause_bytes - RESUME_BELOW_BYTES;
    switch
}

/// A cluster of these NICs on one switch.
pub(super) fn cluster(nics: &[NicParameters], switch: SwitchParameters, effort: Effort) -> Cluster {
    let mut builder = ClusterBuilder::new(effort.seed);
    let switch = builder.switch(switch);
    for nic in nics {
        let mut nic = effort.nic(nic.clone());
        nic.mtu_bytes = MTU_BYTES;
        let host = effort.host(HostParameters::xeon_gold_5118());
        builder.host(host, nic, switch);
    }
    builder.build()
}

fn plan(queue_pairs: usize) -> Perftest {
    Perftest {
        queue_pairs,
        bytes: 64 << 10,
        depth: 4,
    }
}

/// Many periods of DCQCN's increase (300 us), but not many of those of [`older`]: after 60 ms instead of 20 a
/// ConnectX-4 sends 45.8 Gb/s in the mesh, compared with 46.2 of a ConnectX-5. So FR-003 sets the behaviour of the
/// model before its rates settle.
fn window(effort: Effort) -> Window {
    let share = share(8, effort);
    Window {
        warm_ns: 20_000_000 / share,
        measured_ns: 20_000_000 / share,
    }
}

/// Mean sending rates of the NICs of each generation in a full mesh.
fn mesh(older: NicParameters, of_each: usize, effort: Effort) -> [f64; 2] {
    let mut nics = vec![older; of_each];
    nics.resize(2 * of_each, newer());
    let hosts = 0..nics.len();
    let flows: Vec<(usize, usize)> = hosts
        .clone()
        .flat_map(|from| hosts.clone().map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let cluster = cluster(&nics, switch(MESH_GBIT_S, effort), effort);
    let rates = plan(1).run(&cluster, &flows, window(effort));
    let mut sums = [0.0; 2];
    for (&(from, _), rate) in flows.iter().zip(rates) {
        sums[usize::from(from >= of_each)] += rate / of_each as f64;
    }
    sums
}

/// Rates of two senders to one receiver.
fn to_one(
    [one, other, receiver]: [NicParameters; 3],
    queue_pairs: usize,
    effort: Effort,
) -> [f64; 2] {
    let cluster = cluster(
        &[one, other, receiver],
        switch(VENDORS_GBIT_S, effort),
        effort,
    );
    let rates = plan(queue_pairs).run(&cluster, &[(0, 2), (1, 2)], window(effort));
    [rates[0], rates[1]]
}

/// One of the measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Mesh,
    /// Mellanox and Broadcom to Intel.
    ToIntel(usize),
    /// Broadcom and Intel to Mellanox.
    ToMellanox(usize),
}

fn measure(point: Point, effort: Effort) -> [f64; 2] {
    let [mellanox, broadcom, intel] = [
        NicParameters::bluefield_2(),
        NicParameters::p2100g(),
        NicParameters::e810(),
    ];
    match point {
        Point::Mesh => mesh(older(), OF_EACH, effort),
        Point::ToIntel(count) => to_one([mellanox, broadcom, intel], count, effort),
        Point::ToMellanox(count) => to_one([broadcom, intel, mellanox], count, effort),
    }
}

fn run(effort: Effort) -> Findings {
    let most = QUEUE_PAIRS[2];
    let counts: &[usize] = if effort.quick { &[1] } else { &QUEUE_PAIRS };
    let mut points: Vec<Point> = counts.iter().map(|&count| Point::ToIntel(count)).collect();
    if !effort.quick {
        points.extend([Point::ToMellanox(most), Point::Mesh]);
    }
    let sweep = Sweep::new(effort.threads, points, |&point| measure(point, effort));
    let of = |wanted: Point| *sweep.of(&wanted);
    let mut findings = Findings::new("queue pairs", "Gb/s", true);
    for (sender, name) in ["BlueField-2 to E810", "P2100G to E810"].iter().enumerate() {
        let point = |&count: &usize| (count as f64, of(Point::ToIntel(count))[sender]);
        findings.line(name, counts.iter().map(point).collect());
    }
    let per_destination = |nic: NicParameters| nic.rate_per_destination != 0.0;
    let rule = per_destination(NicParameters::bluefield_2())
        && per_destination(NicParameters::connectx_5())
        && !per_destination(NicParameters::e810());
    let why = "1 where Mellanox's NICs have a rate for each destination, and Intel's a window for each queue pair";
    let ours = f64::from(u8::from(rule));
    let paper = "per destination IP / per 5-tuple";
    findings.answer("FR-007", paper, ours, (1.0, 1.0), why);
    if effort.quick {
        return findings;
    }
    for (sender, name) in ["P2100G to BlueField-2", "E810 to BlueField-2"]
        .iter()
        .enumerate()
    {
        let rate = of(Point::ToMellanox(most))[sender];
        findings.line(name, vec![(most as f64, rate)]);
    }
    let [slow, fast] = of(Point::Mesh);
    for (name, rate) in [
        ("ConnectX-4 in the mesh", slow),
        ("ConnectX-5 in the mesh", fast),
    ] {
        findings.line(name, vec![(1.0, rate)]);
    }
    let why = "what a ConnectX-5 sends in the mesh over what a ConnectX-4 does, less one";
    let bounds = (0.3, 0.6);
    findings.answer(
        "FR-003",
        "28 / 41 Gb/s (46.4%)",
        fast / slow - 1.0,
        bounds,
        why,
    );
    let [mellanox, broadcom] = of(Point::ToIntel(1));
    let why = "one queue pair each: what Mellanox gets over what Broadcom gets, less one";
    let (ours, bounds) = (mellanox / broadcom - 1.0, (1.0, f64::INFINITY));
    findings.answer("FR-004", "66 / 20 Gb/s (220%)", ours, bounds, why);
    let ratio = |count| {
        let [mellanox, broadcom] = of(Point::ToIntel(count));
        mellanox / broadcom
    };
    let why =
        "64 and 512 queue pairs: what Mellanox gets over what Broadcom gets, the more of both";
    let ours = ratio(64).max(ratio(512));
    findings.answer("FR-005", "Mellanox gets less", ours, (0.0, 1.0), why);
    let [broadcom, intel] = of(Point::ToMellanox(most));
    let why = "512 queue pairs: what Broadcom gets over what Intel gets";
    let paper = "43 / 15 Gb/s";
    findings.answer("FR-006", paper, broadcom / intel, (2.0, 4.0), why);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other settings than the figure's: one queue pair each, and two NICs of each generation.
    #[test]
    fn all_that_senders_get_is_what_a_port_has() {
        let effort = Effort::new(true, 1);
        let findings = run(effort);
        let rates = findings.series.iter().map(|series| series.points[0].1);
        let all: f64 = rates.sum();
        assert!((0.7..1.0).contains(&(all / VENDORS_GBIT_S)), "{all}");
        assert!(findings.answers.iter().all(|answer| answer.within));
        for rate in mesh(older(), 2, effort) {
            assert!((0.2..1.0).contains(&(rate / MESH_GBIT_S)), "{rate}");
        }
    }
}
