//! Cases, expectations, quick points and networks of other simulators in experiment files.

use std::path::{Path, PathBuf};

use super::{Experiment, Outcome, OutcomePoint, Settings};
use crate::figures;

const FILE: &str = r#"
title = "two ways"
says = "that both work"
[topology]
switch = "z9264f"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 2
[server]
host = "server"
[[clients]]
hosts = "clients"
together = false
[[cases]]
name = "flock"
label = "rings"
clients.preset = "flock"
clients.dispatcher = true
run.paced = "20us"
[[cases]]
name = "erpc"
clients.preset = "erpc"
[sweep]
"clients.threads" = [1, 2]
"clients.outstanding" = [1, 2]
[run]
warm_up = "500us"
duration = "50us"
settle = "50%"
windows = 3
[print]
columns = ["rate", "coalescing", "processes"]
[plot]
x = "clients.threads"
line = "{case}, {clients.outstanding} out"
[[plot.lines]]
name = "messages"
value = "coalescing[flock, *, 2]"
[[expect]]
name = "more threads"
value = "min(rate[*, 2] / rate[*, 1])"
least = 1
[[expect]]
name = "slow"
value = "max(rate)"
most = 0.001
says = "less"
why = "the best of all"
[[expect]]
name = "processes"
value = "reaches(processes[erpc, *, 1], 1) + mean(processes) - 1"
least = 2
most = 2
quick = true
[quick]
sweep.clients.threads = [2]
run.windows = 1
cases.erpc.clients.preset = "plain"
"#;

fn load(text: &str, settings: &Settings) -> Result<Experiment, String> {
    Experiment::parse("my.toml", text, Path::new(""), settings).map_err(|wrong| wrong.to_string())
}

fn run(settings: &Settings) -> Outcome {
    let experiment = load(FILE, settings).expect("right");
    experiment.run(2, || false).expect("it runs")
}

#[test]
fn cases_are_swept_and_expectations_are_judged() {
    let mut outcome = run(&Settings::default());
    assert_eq!(outcome.points.len(), 8);
    assert_eq!(outcome.points[7].at["case"], "erpc");
    let expected: Vec<(&str, bool)> = outcome
        .expected
        .iter()
        .map(|one| (one.name.as_str(), one.holds == Some(true)))
        .collect();
    let wanted = [("more threads", true), ("slow", false), ("processes", true)];
    assert_eq!(expected, wanted, "{:?}", outcome.expected);
    let best = outcome.points.iter().map(|point| point.columns[0].mean);
    let best = best.fold(0.0, f64::max);
    assert_eq!(outcome.expected[1].value, best);
    let of_best = |point: &&OutcomePoint| point.columns[0].mean == best;
    let at = outcome.points.iter().find(of_best).map(|point| &point.at);
    let at = at.expect("it is one of them");
    let (case, threads, out) = (
        &at["case"],
        &at["clients.threads"],
        &at["clients.outstanding"],
    );
    let why = format!("the best of all: at {case}, {threads}, {out}");
    assert_eq!(outcome.expected[1].why, why);
    let lines = outcome.lines.take().expect("a chart").series;
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "rings, 1 out",
            "rings, 2 out",
            "erpc, 1 out",
            "erpc, 2 out",
            "messages"
        ]
    );
    let messages = &lines[4].points;
    let of = |point: usize| outcome.points[point].columns[1].mean;
    assert_eq!(messages, &[(1.0, of(1)), (2.0, of(3))]);
    assert!(messages.iter().all(|(_, requests)| *requests >= 1.0));
}

#[test]
fn what_is_not_complete_is_not_judged() {
    let experiment = load(FILE, &Settings::default()).expect("right");
    for most in [0, 1, 7] {
        let runs = std::sync::atomic::AtomicUsize::new(0);
        let stop = || runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= most;
        let outcome = experiment.run(1, stop).expect("it runs");
        assert_eq!((outcome.points.len(), outcome.complete), (most, false));
        assert!(!outcome.expected.is_empty());
        assert!(outcome.expected.iter().all(|one| one.holds.is_none()));
    }
    let settings = Settings {
        repeats: Some(2),
        ..Settings::default()
    };
    let experiment = load(FILE, &settings).expect("right");
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let stop = || runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 15;
    let outcome = experiment.run(1, stop).expect("it runs");
    assert_eq!(
        (outcome.points.len(), outcome.complete),
        (8, false),
        "a repeat is missing"
    );
    assert!(outcome.expected.iter().all(|one| one.holds.is_none()));
    assert!(run(&Settings::default()).complete);
}

#[test]
fn quick_points_are_those_of_their_table() {
    let settings = Settings {
        quick: true,
        ..Settings::default()
    };
    let outcome = run(&settings);
    assert_eq!(outcome.points.len(), 4);
    let names: Vec<&str> = outcome
        .expected
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["processes"]);
    let plain = FILE.replace("[quick]", "[sweep2]");
    let said = load(
        plain.split("[sweep2]").next().unwrap_or_default(),
        &settings,
    );
    assert!(said
        .expect_err("no such table")
        .contains("no table [quick]"));
}

#[test]
fn settings_go_before_cases() {
    let with = |set: &[&str]| Settings {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        ..Settings::default()
    };
    // Axes keep their order.
    let anew = with(&["sweep.clients.threads=[1]"]);
    let keys = load(FILE, &anew).expect("right").axes;
    let keys: Vec<String> = keys.into_iter().map(|axis| axis.key).collect();
    assert_eq!(keys, ["case", "clients.threads", "clients.outstanding"]);
    let size = |set: &[&str]| load(FILE, &with(set)).expect("right").size().0;
    assert_eq!(size(&["clients.preset=plain"]), 8);
    // Expectations about points that no longer exist.
    let fixed = load(FILE, &with(&["clients.threads=2"])).expect("right");
    assert_eq!((fixed.size().0, fixed.expected.len()), (4, 0));
    let other = load(FILE, &with(&["sweep.clients.threads=[2, 3]"])).expect("right");
    assert_eq!((other.size().0, other.expected.len()), (8, 2));
    let same = |set: &[&str]| {
        let experiment = load(FILE, &with(set)).expect("right");
        experiment.run(2, || false).expect("it runs").points
    };
    let short = ["sweep.clients.threads=[1]", "sweep.clients.outstanding=[1]"];
    let both = |more: &[&str]| {
        let points = same(&[&short[..], &["clients.preset=plain"], more].concat());
        assert_eq!(points.len(), 2);
        [points[0].digests.clone(), points[1].digests.clone()]
    };
    let [one, other] = both(&[]);
    assert_ne!(one, other, "one is paced");
    let [one, other] = both(&["cases.erpc.run.paced=20us"]);
    assert_eq!(one, other, "nothing is left that differs");
}

#[test]
fn what_is_wrong_with_cases_and_expectations_is_told() {
    for (from, to, message) in [
        (
            "name = \"erpc\"",
            "name = \"flock\"",
            "`cases.name` is \"flock\": another case has this name",
        ),
        (
            "name = \"erpc\"",
            "name = \"a, b\"",
            "a name has none of , | [ ] *",
        ),
        (
            "clients.preset = \"erpc\"",
            "clients.presets = \"erpc\"",
            "did you mean `preset`?",
        ),
        (
            "clients.preset = \"erpc\"",
            "clients.preset = \"epc\"",
            "did you mean `erpc`?",
        ),
        (
            "max(rate)",
            "rate",
            "it has a value for each of `case`: choose one, or take `max` or `min`",
        ),
        (
            "max(rate)",
            "max(rates)",
            "`rates` is not in `print.columns`; did you mean `rate`?",
        ),
        ("max(rate)", "most(rate)", "no function `most`"),
        ("max(rate)", "max(rate", "`)` must stand before"),
        (
            "max(rate)",
            &"(".repeat(200_000),
            "it has more than 256 parts",
        ),
        (
            "max(rate)",
            &"-".repeat(200_000),
            "it has more than 256 parts",
        ),
        (
            "max(rate)",
            &("max(rate)".to_owned() + &"+1".repeat(200_000)),
            "it has more than 256 parts",
        ),
        (
            "clients.preset = \"erpc\"",
            "print.columns = [\"p50\", \"rate\"]",
            "`print.columns` is the same for all points",
        ),
        (
            "\"clients.threads\" = [1, 2]",
            "print.columns = [[\"rate\"], [\"p50\"]]",
            "`print.columns` is the same for all points",
        ),
        (
            "max(rate)",
            "max(rate[folck])",
            "`case` has no value `folck`; did you mean `flock`?",
        ),
        (
            "max(rate)",
            "max(rate[flock, 8])",
            "`clients.threads` has no value `8` (there are: 1, 2)",
        ),
        (
            "max(rate)",
            "max(rate[flock, 8..])",
            "`clients.threads` has no value in 8..",
        ),
        (
            "max(rate)",
            "max(rate[1, 2, 3, 4])",
            "has 4 choices, but what is swept is: case, clients.threads",
        ),
        ("max(rate)", "max(rate) max", "`max` is not understood"),
        (
            "max(rate)",
            "reaches(rate, 0.9)",
            "takes a curve over numbers and a share",
        ),
        (
            "max(rate)",
            "1 +",
            "a column, a function or a number must stand before",
        ),
        ("most = 0.001\n", "", "it needs `least`, `most` or both"),
        (
            "{case}, ",
            "{cases}, ",
            "`plot.line` is \"{cases}, {clients.outstanding} out\": `cases` is not swept",
        ),
        (
            "coalescing[flock, *, 2]",
            "coalescing[flock]",
            "it must have a value for each of `clients.threads`, and of",
        ),
    ] {
        assert!(FILE.contains(from), "{from}");
        let said = load(&FILE.replacen(from, to, 1), &Settings::default());
        let said = said.expect_err(to);
        assert!(
            said.contains(message) && said.starts_with("my.toml:"),
            "{to}: {said}"
        );
    }
}

#[test]
fn figures_that_are_files_can_be_read_with_all_points_and_with_the_quick_ones() {
    for name in figures::file_names() {
        let file = figures::file(name).expect("a file");
        let read = |quick| {
            let settings = Settings {
                quick,
                ..Settings::default()
            };
            load(file.text, &settings).unwrap_or_else(|wrong| panic!("{name}: {wrong}"))
        };
        let (all, quick) = (read(false), read(true));
        // A comparison of two points needs both, for a shorter time.
        let is_less = match all.size().0 {
            few @ ..=2 => few == quick.size().0,
            many => many > quick.size().0,
        };
        assert!(is_less && !all.expected.is_empty(), "{name}");
        assert!(all.says().is_some() && all.plot.is_some(), "{name}");
    }
}

/// Three hosts in two racks, with the switches first.
const NETWORK: &str =
    "5 2 4\n0 1\n2 0 50Gbps 0.002ms 0\n3 0 50Gbps 2us 0\n4 1 50Gbps 2us 0\n0 1 25Gbps 2us 0\n";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn topology_and_flows_of_hpccs_ns_3_are_read_as_they_are() {
    let folder = std::env::temp_dir().join(format!("dunlin-ns3-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let folder = Folder(folder);
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).expect("a file");
    write("topology.txt", NETWORK);
    write(
        "flow.txt",
        "2\n2 4 3 100 200000 2\n3 4 3 100 100000 2.00001\n",
    );
    let rest = "[run]\nwarm_up = \"0ns\"\nduration = \"1s\"\n[print]\ncolumns = [\"flows\", \"fct_max\"]\n";
    let theirs = format!(
        "[topology]\nns3 = \"topology.txt\"\nswitch = \"z9264f\"\n[[topology.hosts]]\nname = \"hosts\"\n\
         [[flows]]\nfile = \"flow.txt\"\nzero = \"2s\"\n{rest}"
    );
    let ours = format!(
        "[topology]\nswitch = \"z9264f\"\nswitches = 2\nlink_rate = \"25Gbps\"\n[[topology.hosts]]\nname = \"near\"\n\
         count = 2\n[[topology.hosts]]\nname = \"far\"\nswitch = 1\n[nic]\nlink_gbit_s = 50\n[switch]\n\
         propagation_ns = 2000\n[[flows]]\nsenders = \"near.0\"\nreceivers = \"far\"\nsize = 200000\n[[flows]]\n\
         senders = \"near.1\"\nreceivers = \"far\"\nsize = 100000\nstart = \"10us\"\n{rest}"
    );
    let outcome = |text: &str| {
        let parsed = Experiment::parse("my.toml", text, &folder.0, &Settings::default());
        parsed.expect("right").run(1, || false).expect("it runs")
    };
    let (theirs_ran, ours_ran) = (outcome(&theirs), outcome(&ours));
    assert_eq!(theirs_ran.points[0].columns, ours_ran.points[0].columns);
    assert_eq!(theirs_ran.points[0].columns[0].mean, 2.0);
    let took = |outcome: &Outcome| {
        let flows = outcome.points[0].flows.iter();
        flows
            .map(|flow| flow.took_ns.expect("it ended"))
            .collect::<Vec<_>>()
    };
    assert_eq!(took(&theirs_ran), took(&ours_ran));
    // 200 and 100 kB by 25 Gb/s.
    assert!(took(&ours_ran)[0] > 64_000, "{:?}", took(&ours_ran));
    let said = |text: &str| {
        let parsed = Experiment::parse("my.toml", text, &folder.0, &Settings::default());
        parsed.expect_err("wrong").to_string()
    };
    for (from, to, message) in [
        (
            "switch = \"z9264f\"",
            "switches = 2",
            "`topology.switches` is there: it is for a network without",
        ),
        (
            "name = \"hosts\"",
            "name = \"hosts\"\ncount = 3",
            "`topology.hosts.count` is there",
        ),
        (
            "\"topology.txt\"",
            "\"no.txt\"",
            "`topology.ns3` is \"no.txt\": ",
        ),
        (
            "[[flows]]",
            "[[topology.hosts]]\nname = \"more\"\n[[flows]]",
            "one table says what all hosts are",
        ),
        (
            "[[flows]]",
            "[[topology.cables]]\nswitches = [0, 1]\n[[flows]]",
            "it is for a network without a file",
        ),
    ] {
        let found = said(&theirs.replacen(from, to, 1));
        assert!(
            found.contains(message) && found.starts_with("my.toml:"),
            "{to}: {found}"
        );
    }
    write("topology.txt", &NETWORK.replace("3 0 50Gbps", "3 0 50Gps"));
    let found = said(&theirs);
    let wanted =
        "my.toml:2:7: `topology.ns3` is \"topology.txt\": line 4: the rate of a cable is \"50Gps\"";
    assert!(found.starts_with(wanted), "{found}");
    write("topology.txt", NETWORK);
    write("flow.txt", "1\n2 1 3 100 200000 2\n");
    let found = said(&theirs);
    assert!(
        found.contains("line 2: node 1 is not a host of the topology's file"),
        "{found}"
    );
}
