//! Experiments compared with recorded results of ns-3 and htsim. `docs/notes/simulators.md` has the figures, and why
//! some of them differ; here our results are compared with the recorded ones.

use std::path::{Path, PathBuf};

use dunlin_lab::csv;
use dunlin_lab::experiment::{Comparison, Experiment, Outcome, Recorded, Settings};

const RUNS: &str = include_str!("../data/peers/runs.csv");
const MIXED: &str = include_str!("../data/peers/mixed-flows.csv");

/// Times of flows: the median and what is above.
const TIMES: [&str; 4] = ["fct_p50", "fct_p95", "fct_p99", "fct_max"];

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    folder.join(format!("{name}.toml"))
}

fn run(name: &str, set: &[&str], repeats: u64) -> Outcome {
    let settings = Settings {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        repeats: Some(repeats),
        ..Settings::default()
    };
    let experiment = Experiment::load(&file(name), &settings).expect("an example");
    let outcome = experiment.run(2, || false).expect("it runs");
    for point in &outcome.points {
        let unfinished = point.columns.iter().find(|one| one.name == "unfinished");
        assert_eq!(unfinished.expect("a column").mean, 0.0, "{name}");
    }
    outcome
}

/// Compares an outcome with the records of a peer set up in this way.
fn beside(name: &str, outcome: &Outcome, model: &str) -> Vec<Comparison> {
    let recorded = Recorded::parse(RUNS).expect("a record");
    let mut all = recorded.beside(name, outcome);
    all.retain(|one| one.model == model);
    assert!(!all.is_empty(), "{name}: nothing was recorded of {model}");
    all
}

/// The difference of a column.
fn difference(all: &[Comparison], column: &str) -> f64 {
    let found = all.iter().find(|one| one.column == column);
    found.expect("a column that both have").difference()
}

/// Checks that none of these columns differs by more.
#[track_caller]
fn all_within(all: &[Comparison], columns: &[&str], most: f64) {
    let far: Vec<_> = columns
        .iter()
        .map(|&column| (column, difference(all, column)))
        .filter(|(_, difference)| difference.is_nan() || difference.abs() > most)
        .collect();
    assert!(far.is_empty(), "not within {most}: {far:?} of {all:#?}");
}

const PAUSES: &str = "sweep.nic.congestion_control=[0]";
const LONG: &str = "sweep.nic.mtu_bytes=[4096]";
const SHORT: &str = "sweep.nic.mtu_bytes=[1024]";
const DCQCN: &str = "sweep.nic.congestion_control=[1]";
/// A rate that falls again before it has risen keeps its target.
const KEPT: &str = "nic.clamp_target=0";

#[test]
fn two_flows_are_as_in_ns3() {
    let outcome = run("hpcc-flows", &[PAUSES], 1);
    let pauses = beside("hpcc-flows", &outcome, "pauses");
    all_within(&pauses, &TIMES, 0.01);
    all_within(&pauses, &["queue_max", "switch_pauses"], 0.15);
    let outcome = run("hpcc-flows", &[DCQCN, KEPT], 4);
    let kept = beside("hpcc-flows", &outcome, "dcqcn with target kept");
    all_within(&kept, &TIMES, 0.05);
    // Without it, the runs differ by more than a factor of two.
    let outcome = run("hpcc-flows", &[DCQCN], 6);
    for one in beside("hpcc-flows", &outcome, "dcqcn") {
        let range = one.least * 0.9..=one.most * 1.1;
        assert!(range.contains(&one.ours), "{one:#?}");
    }
}

#[test]
fn mixed_flows_are_as_in_ns3() {
    let outcome = run("mixed-flows", &[PAUSES], 1);
    let pauses = beside("mixed-flows", &outcome, "pauses");
    all_within(&pauses, &TIMES, 0.05);
    all_within(&pauses, &["queue_max"], 0.05);
    let differences = each_flow(&outcome);
    assert_eq!(differences.len(), 351);
    let place = |share: f64| differences[(differences.len() as f64 * share) as usize];
    assert!(place(0.5) < 0.02, "median {}", place(0.5));
    assert!(place(0.95) < 0.15, "95th percentile {}", place(0.95));
    let outcome = run("mixed-flows", &[DCQCN, KEPT], 6);
    let kept = beside("mixed-flows", &outcome, "dcqcn with target kept");
    all_within(&kept, &["fct_p50", "fct_p99", "fct_max", "queue_max"], 0.15);
    all_within(&kept, &["fct_p95"], 0.2);
}

/// The difference of each flow from that of ns-3, sorted.
fn each_flow(outcome: &Outcome) -> Vec<f64> {
    let flows = &outcome.points[0].flows;
    let lines = MIXED.lines().skip(1);
    let mut differences: Vec<f64> = lines
        .zip(flows)
        .map(|(line, flow)| {
            let fields = csv::split(line);
            let here = [flow.from as u64, flow.to as u64, flow.bytes];
            assert_eq!(here.map(|one| one.to_string()), fields[..3], "another flow");
            let theirs: f64 = fields[3].parse().expect("nanoseconds");
            (flow.took_ns.expect("it ended") as f64 / theirs - 1.0).abs()
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    differences
}

#[test]
fn a_fat_tree_is_as_in_ns3() {
    let outcome = run("hpcc-fat-tree", &[], 1);
    let pauses = beside("hpcc-fat-tree", &outcome, "pauses");
    all_within(&pauses, &TIMES, 0.05);
    all_within(&pauses, &["queue_max"], 0.15);
}

#[test]
fn incasts_are_as_in_htsim() {
    for (packets, most) in [(LONG, 0.15), (SHORT, 0.05)] {
        let outcome = run("htsim-rack", &[packets], 1);
        let pauses = beside("htsim-rack", &outcome, "pauses");
        all_within(&pauses, &TIMES, 0.02);
        all_within(&pauses, &["queue_max"], most);
        let outcome = run("htsim-incast", &[packets], 10);
        let pauses = beside("htsim-incast", &outcome, "pauses");
        // Paths are random: theirs have medians of 1.80 to 2.30 ms.
        all_within(&pauses, &["fct_p50"], 0.08);
        all_within(&pauses, &["fct_p95", "fct_p99", "fct_max"], 0.05);
        all_within(&pauses, &["queue_max", "switch_pauses"], 0.15);
    }
    let outcome = run("htsim-rack", &[SHORT], 1);
    all_within(
        &beside("htsim-rack", &outcome, "pauses"),
        &["switch_pauses"],
        0.05,
    );
}

/// The differences that the page explains: if one disappears, the page has to change.
#[test]
fn what_differs_differs_as_the_page_says() {
    let outcome = run("htsim-rack", &[LONG], 1);
    let of = |model| beside("htsim-rack", &outcome, model);
    assert!(difference(&of("pauses"), "switch_pauses") < -0.4);
    assert!(difference(&of("pauses at once"), "queue_max") > 0.2);
    let outcome = run("mixed-flows", &[DCQCN], 4);
    let of = |model| beside("mixed-flows", &outcome, model);
    let clamped = of("dcqcn");
    all_within(&clamped, &["fct_p50", "fct_p95", "queue_max"], 0.2);
    assert!(difference(&clamped, "fct_p99") < -0.3);
    assert!(difference(&of("hpcc"), "fct_p50") > 0.5);
}

/// They take longer, so they run only on request.
#[test]
fn sixty_three_flows_are_as_in_ns3_when_asked_for() {
    if std::env::var_os("DUNLIN_PEERS").is_none() {
        println!("skipped: set DUNLIN_PEERS to run it");
        return;
    }
    let outcome = run("hpcc-incast", &[PAUSES], 1);
    let pauses = beside("hpcc-incast", &outcome, "pauses");
    all_within(&pauses, &TIMES, 0.01);
    all_within(&pauses, &["queue_max"], 0.05);
    let outcome = run("hpcc-incast", &[DCQCN], 2);
    let clamped = beside("hpcc-incast", &outcome, "dcqcn");
    all_within(&clamped, &TIMES, 0.15);
    all_within(&clamped, &["queue_max"], 0.2);
    all_within(&clamped, &["switch_pauses"], 0.0);
    let outcome = run("hpcc-incast", &[DCQCN, KEPT], 2);
    let kept = beside("hpcc-incast", &outcome, "dcqcn with target kept");
    assert!(difference(&kept, "fct_p95") > 0.15);
}
