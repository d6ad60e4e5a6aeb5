//! The subcommands.

use std::process::ExitCode;

use dunlin_lab::calibration::{self, root_mean_square, Knob, Point};
use dunlin_lab::figure::{Effort, Figure, Findings};
use dunlin_lab::load::{swarm, Plan, Swarm};
use dunlin_lab::{figures, parallel, report};
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

pub(crate) const USAGE: &str = "\
dunlin-lab list                          the figures
dunlin-lab run [--quick] [--out DIR] [FIGURE ...]
                                         runs figures; CSV, SVG and an HTML report go to DIR
dunlin-lab score [--quick] [--json] [FIGURE ...]
                                         the claims that the figures answer, with verdicts
dunlin-lab fit cx3|cib [NAME=VALUE ...] [NAME[!] ...]
                                         the READ sweeps row by row; fits the named parameters (! counts)
dunlin-lab speed                         events a second of this machine on one core
dunlin-lab hunt [--seeds N | --seed S]   random loads under random faults, invariants checked
";

/// Real threads for independent points.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

struct Selection<'a> {
    figures: Vec<&'static Figure>,
    effort: Effort,
    json: bool,
    out: Option<&'a str>,
}

fn select<'a>(words: &[&'a str]) -> Option<Selection<'a>> {
    let mut selection = Selection {
        figures: Vec::new(),
        effort: Effort {
            quick: false,
            threads: threads(),
        },
        json: false,
        out: None,
    };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--quick" => selection.effort.quick = true,
            "--json" => selection.json = true,
            "--out" => selection.out = Some(words.next()?),
            name => match figures::ALL.iter().find(|figure| figure.name == name) {
                Some(figure) => selection.figures.push(figure),
                None => {
                    eprintln!("no figure {name}; `dunlin-lab list` names them");
                    return None;
                }
            },
        }
    }
    if selection.figures.is_empty() {
        selection.figures = figures::ALL.iter().collect();
    }
    Some(selection)
}

pub(crate) fn list() -> ExitCode {
    for figure in figures::ALL {
        println!("{:18} {}", figure.name, figure.title);
    }
    ExitCode::SUCCESS
}

fn run_all(selection: &Selection<'_>) -> Vec<(&'static Figure, Findings)> {
    let count = selection.figures.len();
    let numbered = selection.figures.iter().enumerate();
    let run = |(number, figure): (usize, &&'static Figure)| {
        let began = std::time::Instant::now();
        eprint!("[{}/{count}] {} ... ", number + 1, figure.name);
        let findings = (figure.run)(selection.effort);
        eprintln!("{:.1} s", began.elapsed().as_secs_f64());
        (*figure, findings)
    };
    numbered.map(run).collect()
}

pub(crate) fn run(words: &[&str]) -> ExitCode {
    let Some(selection) = select(words) else {
        return ExitCode::from(2);
    };
    let results = run_all(&selection);
    print!("{}", report::text(&results));
    let Some(out) = selection.out else {
        return ExitCode::SUCCESS;
    };
    match report::write(std::path::Path::new(out), &results) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{out}: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn score(words: &[&str]) -> ExitCode {
    let Some(selection) = select(words) else {
        return ExitCode::from(2);
    };
    let results = run_all(&selection);
    print!(
        "{}",
        if selection.json {
            report::json(&results)
        } else {
            report::scorecard(&results)
        }
    );
    ExitCode::SUCCESS
}

pub(crate) fn fit(words: &[&str]) -> ExitCode {
    let (mut nic, name) = match words.first() {
        Some(&"cx3") => (NicParameters::connectx_3(), "ConnectX-3"),
        Some(&"cib") => (NicParameters::connect_ib(), "Connect-IB"),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let points: Vec<Point> = calibration::points()
        .into_iter()
        .filter(|point| point.nic == name)
        .collect();
    let mut knobs = Vec::new();
    for word in &words[1..] {
        let result = match word.split_once('=') {
            Some((name, value)) => value
                .parse()
                .map_err(|_| format!("{value} is no number"))
                .and_then(|value| nic.set(name, value).map_err(|error| error.to_string())),
            None => {
                let name = word.trim_end_matches('!').to_owned();
                nic.get(&name)
                    .ok_or(format!("no parameter {name}"))
                    .map(|value| {
                        knobs.push(Knob {
                            name,
                            value,
                            whole: word.ends_with('!'),
                        });
                    })
            }
        };
        if let Err(why) = result {
            eprintln!("{word}: {why}");
            return ExitCode::from(2);
        }
    }
    if !knobs.is_empty() {
        let some: Vec<Point> = points.iter().step_by(3).cloned().collect();
        let error =
            |nic: &NicParameters| root_mean_square(&calibration::run(&some, nic, 1_000, threads()));
        let tell = |name: &str, value: f64, error: f64| println!("{name} = {value}: {error:.4}");
        let (best, found) = calibration::fit(&nic, &knobs, 3, error, tell);
        for knob in found {
            println!("found {} = {}", knob.name, knob.value);
        }
        nic = best;
    }
    let rows = calibration::run(&points, &nic, 4_000, threads());
    for row in &rows {
        let error = (row.ours / row.paper - 1.0) * 100.0;
        println!(
            "{:70} {:8.2} {:8.2} {error:+6.1} %",
            row.label, row.paper, row.ours
        );
    }
    let (pairs, sizes): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|row| row.label.ends_with(" 32 B"));
    for (what, rows) in [("queue pairs", pairs), ("sizes", sizes)] {
        let error = root_mean_square(&rows) * 100.0;
        println!(
            "sweep of {what}: root mean square {error:.1} % over {} rows",
            rows.len()
        );
    }
    ExitCode::SUCCESS
}

/// Symmetric READs of six machines: the load with the most kinds of events.
pub(crate) fn speed() -> ExitCode {
    let load = Swarm {
        machines: 6,
        threads: 14,
        virtual_machines: 1,
        transport: dunlin_verbs::Transport::ReliableConnection,
        plan: Plan::reads(32, 24),
    };
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connect_ib());
    let cluster = swarm(1, load, &host, &nic, &SwitchParameters::sx6036());
    let began = std::time::Instant::now();
    cluster.run_for(1_000_000);
    let seconds = began.elapsed().as_secs_f64();
    let events = cluster.events() as f64;
    println!(
        "{events} events in {seconds:.2} s: {:.2} M events/s",
        events / seconds / 1e6
    );
    ExitCode::SUCCESS
}

pub(crate) fn hunt(words: &[&str]) -> ExitCode {
    let number = |word: &str| word.parse::<u64>().ok();
    let seeds: Option<Vec<u64>> = match words {
        ["--seed", seed] => number(seed).map(|seed| vec![seed]),
        ["--seeds", count] => number(count).map(|count| (0..count).collect()),
        [] => Some((0..50).collect()),
        _ => None,
    };
    let Some(seeds) = seeds else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcomes = parallel::map(threads(), &seeds, |&seed| dunlin_lab::hunt::hunt(seed));
    let (mut failed, mut events, mut messages, mut succeeded) = (0, 0, 0, 0);
    for outcome in &outcomes {
        events += outcome.events;
        messages += outcome.messages.0;
        succeeded += outcome.messages.1;
        if seeds.len() == 1 || !outcome.violations.is_empty() {
            println!("seed {}: {}", outcome.seed, outcome.scene);
            println!(
                "  {} events, digest {:016x}, messages {:?}",
                outcome.events, outcome.digest, outcome.messages
            );
        }
        for violation in &outcome.violations {
            println!("  VIOLATED: {violation}");
        }
        if !outcome.violations.is_empty() {
            failed += 1;
            println!("  replay: dunlin-lab hunt --seed {}", outcome.seed);
        }
    }
    println!("{} seeds, {messages} messages posted, {succeeded} succeeded, {events} events, {failed} seeds failed", seeds.len());
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
