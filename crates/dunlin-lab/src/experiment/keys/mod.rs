//! The list of all keys that an experiment can have: one file for each group of tables.

mod calls;
mod faults;
mod run;
mod topology;

use super::schema::{Key, Kind, Need, Section};
use super::unit::TIME;

/// The section with this name.
pub(super) fn section(name: &str) -> &'static Section {
    let found = SECTIONS.iter().find(|section| section.name == name);
    found.expect("a name of the list")
}

pub(super) const fn key(name: &'static str, kind: Kind, need: Need, meaning: &'static str) -> Key {
    Key {
        name,
        kind,
        need,
        meaning,
    }
}

const MOST: f64 = f64::INFINITY;
/// Maximum time, an hour: sums of some of them are still times.
const LONGEST_NS: f64 = 3.6e12;
pub(super) const TIME_OR_ZERO: Kind = Kind::Quantity(TIME, 0.0, LONGEST_NS);
/// Maximum message size of the channels of a default configuration.
const LONGEST: f64 = 1_048_576.0;

/// All sections, in the order of the page.
pub(super) const SECTIONS: &[Section] = &[
    run::NAME,
    topology::TOPOLOGY,
    topology::CABLES,
    topology::HOSTS,
    calls::SERVER,
    calls::CLIENTS,
    super::flows::SECTION,
    super::verbs::SECTION,
    faults::SECTION,
    run::RUN,
    run::PRINT,
    run::PLOT,
    run::LINES,
    run::CASES,
    run::EXPECT,
];

/// Tables whose keys are those of the parameter files: they change parameters of all NICs, processors and switches.
pub(super) const PARAMETERS: [&str; 3] = ["nic", "cpu", "switch"];
