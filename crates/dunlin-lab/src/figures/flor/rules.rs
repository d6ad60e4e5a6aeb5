//! Flor's assumptions: UC's rules for packets that are lost or late (§2.1, §5), and that backups cost nothing (§6).

use std::time::Duration;

use dunlin_flor::connection::Deployment;
use dunlin_sim::NicParameters;

use super::{flor, two, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{drops_late_write, loses_whole_verb, Flor};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-rules",
    title:
        "Flor §2.1, §5, §6: verbs of UC that lose a packet or come late; backups that do nothing",
    says:
        "UC drops the whole verb and goes on, and drops what is late; inactive backups cost nothing",
    run,
};

/// Bytes of a verb.
const SIZES: [usize; 4] = [256, 1 << 10, 8 << 10, 64 << 10];
/// The packet that is lost is the first one that arrives at least this long after its verb was posted.
const AFTER_NS: u64 = 500;
/// Queue pairs of a connection.
const PATHS: [usize; 2] = [1, 3];

/// Shares of the verbs of this size that were handled as the paper says: those that lost a packet, and late ones.
fn kept(bytes: usize, effort: Effort) -> (f64, f64) {
    let cluster = || two(NicParameters::connectx_5(), effort);
    let (mut lost, mut as_said) = (0, 0);
    for step in 0.. {
        let after = Duration::from_nanos(AFTER_NS * step);
        let Some(whole) = loses_whole_verb(&cluster(), bytes, after) else {
            break;
        };
        lost += 1;
        as_said += u32::from(whole);
    }
    let late = drops_late_write(&cluster(), bytes);
    let of_lost = f64::from(as_said) / f64::from(lost);
    (of_lost, f64::from(u8::from(late)))
}

fn run(effort: Effort) -> Findings {
    let sizes: &[usize] = if effort.quick { &SIZES[2..3] } else { &SIZES };
    let found = parallel::map(effort.threads, sizes, |&bytes| kept(bytes, effort));
    let rates = parallel::map(effort.threads, &PATHS, |&paths| {
        let plan = Flor {
            threads: 8,
            connections: if effort.quick { 2 } else { 8 },
            paths,
            fragment_bytes: 4 << 10,
            ..flor(Deployment::IntraPodReliable, 128)
        };
        plan.run(
            &two(NicParameters::connectx_4_lx(), effort),
            window(4, effort),
        )
        .mops
    });
    let mut findings = Findings::new("bytes of a verb", "share as the paper says; M/s", true);
    let line = |of: fn(&(f64, f64)) -> f64| -> Vec<(f64, f64)> {
        let both = sizes.iter().zip(&found);
        both.map(|(&bytes, found)| (bytes as f64, of(found)))
            .collect()
    };
    findings.line(
        "one packet lost: dropped whole, the next arrives",
        line(|found| found.0),
    );
    findings.line("late WRITE behind a SEND: dropped", line(|found| found.1));
    for (&paths, &rate) in PATHS.iter().zip(&rates) {
        findings.line(&format!("{} backups, M/s", paths - 1), vec![(128.0, rate)]);
    }
    if effort.quick {
        return findings;
    }
    let least = |of: fn(&(f64, f64)) -> f64| found.iter().map(of).fold(1.0, f64::min);
    let (lost, late) = (least(|found| found.0), least(|found| found.1));
    for (id, paper, share, which) in [
        (
            "FR-054",
            "drop whole verb, continue",
            lost,
            "verbs with one lost packet that UC drops whole and goes on behind",
        ),
        (
            "FR-055",
            "dropped by RNIC",
            late,
            "WRITEs that come behind a SEND of the same queue pair that UC drops",
        ),
    ] {
        let why = format!("share of the {which}, the least of four sizes");
        findings.answer(id, paper, share, (1.0, 1.0), &why);
    }
    let why =
        "requests a second of 64 connections over RC with two backups each over those without";
    findings.answer("FR-051", "none", rates[1] / rates[0], (0.99, 1.01), why);
    findings
}
