//! An experiment file as a figure of a paper: its lines, and its expectations as answers to claims.

use std::path::Path;

use super::keys::PARAMETERS;
use super::{Experiment, Settings};
use crate::figure::{Effort, Findings};

/// Runs the file of a figure.
///
/// # Panics
/// When it cannot be run: files of figures are compiled in, and tests run them.
pub(crate) fn figure(name: &str, text: &str, effort: Effort) -> Findings {
    let (all, named): (Vec<_>, Vec<_>) = effort
        .settings
        .iter()
        .cloned()
        .partition(|setting| PARAMETERS.contains(&setting.of.as_str()));
    let set = all.iter().map(|setting| {
        let (of, name, value) = (&setting.of, &setting.name, setting.value);
        // In debug format: a large value without a decimal point would be an integer that files do not support.
        format!("{of}.{name}={value:?}")
    });
    let settings = Settings {
        set: set.collect(),
        seed: Some(effort.seed),
        repeats: Some(1),
        cores: None,
        quick: effort.quick,
        nic: effort.nic.cloned(),
        parameters: named,
    };
    let experiment = Experiment::parse(name, text, Path::new(""), &settings);
    let experiment = experiment.unwrap_or_else(|wrong| panic!("{wrong}"));
    let outcome = experiment.run(effort.threads, || false);
    let mut outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut findings = outcome.lines.take().unwrap_or_default();
    for one in &outcome.expected {
        let bounds = (one.least.unwrap_or(f64::MIN), one.most.unwrap_or(f64::MAX));
        findings.answer(&one.name, &one.says, one.value, bounds, &one.why);
    }
    findings
}
