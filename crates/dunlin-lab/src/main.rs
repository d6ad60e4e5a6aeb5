//! The lab's command, until `dunlin lab` calls it.
use std::process::ExitCode;

use dunlin_lab::calibration::{fit, read_sweeps, root_mean_square, run, Knob, Point};
use dunlin_sim::NicParameters;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((&"sweeps", rest)) => sweeps(rest),
        Some((&"hunt", rest)) => hunts(rest),
        _ => {
            eprintln!("dunlin-lab sweeps DATA cx3|cib [parameter[=value] ...]");
            ExitCode::from(2)
        }
    }
}

fn sweeps(words: &[&str]) -> ExitCode {
    let text = std::fs::read_to_string(words[0]).expect("the calibration data");
    let (mut nic, name) = match words[1] {
        "cx3" => (NicParameters::connectx_3(), "ConnectX-3"),
        _ => (NicParameters::connect_ib(), "Connect-IB (2 ports)"),
    };
    let points: Vec<Point> = read_sweeps(&text)
        .into_iter()
        .filter(|point| point.nic == name)
        .collect();
    let mut knobs = Vec::new();
    for word in &words[2..] {
        match word.split_once('=') {
            Some((name, value)) => nic
                .set(name, value.parse().expect("a number"))
                .expect("a parameter"),
            None => {
                let origin = word.trim_end_matches('!');
                let value = words_value(&nic, origin);
                knobs.push(Knob {
                    name: origin.to_owned(),
                    value,
                    whole: word.ends_with('!'),
                });
            }
        }
    }
    if !knobs.is_empty() {
        let some: Vec<Point> = points
            .iter()
            .step_by(if name == "ConnectX-3" { 2 } else { 3 })
            .cloned()
            .collect();
        let error = |nic: &NicParameters| root_mean_square(&run(&some, nic, 1_000, 2));
        let (best, found) = fit(&nic, &knobs, 3, error, |name, value, error| {
            println!("{name} = {value}: {error:.4}")
        });
        println!("{found:?}");
        nic = best;
    }
    let rows = run(&points, &nic, 4_000, 2);
    for row in &rows {
        println!(
            "{:70} {:8.2} {:8.2} {:+.1} %",
            row.label,
            row.paper,
            row.ours,
            (row.ours / row.paper - 1.0) * 100.0
        );
    }
    println!(
        "root mean square {:.1} % over {} rows",
        root_mean_square(&rows) * 100.0,
        rows.len()
    );
    ExitCode::SUCCESS
}

fn words_value(nic: &NicParameters, name: &str) -> f64 {
    match name {
        "context_sets" => nic.context_sets,
        "context_ways" => nic.context_ways,
        "wqe_ways" => nic.wqe_ways,
        "context_miss_ns" => nic.context_miss as f64 / 1e3,
        "wqe_miss_ns" => nic.wqe_miss as f64 / 1e3,
        "context_parallel" => nic.context_parallel,
        "context_fetch_ns" => nic.context_fetch as f64 / 1e3,
        "rx_read_request_ns" => nic.rx_read_request as f64 / 1e3,
        "rx_read_response_ns" => nic.rx_read_response as f64 / 1e3,
        "tx_read_ns" => nic.tx_read as f64 / 1e3,
        "byte_ns" => nic.byte as f64 / 1e3,
        "chunk_ns" => nic.chunk as f64 / 1e3,
        "pcie_gbyte_s" => nic.pcie_gbyte_s,
        "tx_burst" => nic.tx_burst,
        other => panic!("no knob {other}"),
    }
}

fn hunts(words: &[&str]) -> ExitCode {
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let seeds: Vec<u64> = match words {
        ["--seed", seed] => vec![number(seed)],
        ["--seeds", count] => (0..number(count)).collect(),
        _ => (0..50).collect(),
    };
    let one = seeds.len() == 1;
    let outcomes = dunlin_lab::parallel::map(2, &seeds, |&seed| dunlin_lab::hunt::hunt(seed));
    let mut failed = 0;
    let (mut events, mut messages) = (0, 0);
    for outcome in &outcomes {
        events += outcome.events;
        messages += outcome.messages.0;
        if one || !outcome.violations.is_empty() {
            println!(
                "seed {}: {}\n  {} events, digest {:016x}, messages {:?}",
                outcome.seed, outcome.scene, outcome.events, outcome.digest, outcome.messages
            );
            for violation in &outcome.violations {
                println!("  VIOLATED {violation}");
            }
        }
        if !outcome.violations.is_empty() {
            failed += 1;
            println!("  replay: dunlin-lab hunt --seed {}", outcome.seed);
        }
    }
    println!(
        "{} seeds, {messages} messages, {events} events, {failed} failed",
        seeds.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
