//! The keys of hosts, switches and cables.

use super::key;
use crate::experiment::parameters::{CPU_NAMES, NIC_NAMES, SWITCH_NAMES};
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::BANDWIDTH;

/// Switches.
pub(super) const TOPOLOGY: Section = Section {
    name: "topology",
    many: false,
    needed: true,
    keys: &[
        key(
            "switch",
            Kind::Word(|| SWITCH_NAMES.to_vec()),
            Need::Default("sx1012"),
            "Which switch.",
        ),
        key(
            "switch_file",
            Kind::Text,
            Need::Or("`switch`"),
            "A parameter file of a switch, beside the experiment; goes before \
             `switch`.",
        ),
        key(
            "switches",
            Kind::Count(1, 64),
            Need::Default("1"),
            "How many of them, in a row: each has cables to the next.",
        ),
        key(
            "links",
            Kind::Count(1, 16),
            Need::Default("1"),
            "Cables between two switches that are neighbours.",
        ),
        key(
            "link_rate",
            Kind::Quantity(BANDWIDTH, 0.1, 1e4),
            Need::Default("100Gbps"),
            "Rate of each of those cables. A host's cable has its NIC's.",
        ),
        key(
            "ns3",
            Kind::Text,
            Need::Or("the keys above"),
            "The topology file of HPCC's ns-3, beside the experiment: switches, cables, rates, delay. One \
             `[[topology.hosts]]` says what its hosts are, by the order of their nodes.",
        ),
    ],
};

/// Cables between switches that are not in a row.
pub(super) const CABLES: Section = Section {
    name: "topology.cables",
    many: true,
    needed: false,
    keys: &[
        key(
            "switches",
            Kind::Counts(0, 63),
            Need::Must,
            "Numbers of two switches, or of more: the first has cables to each of the \
             others. With such tables no row is made.",
        ),
        key(
            "count",
            Kind::Count(1, 64),
            Need::Default("1"),
            "Cables between each two of them.",
        ),
        key(
            "rate",
            Kind::Quantity(BANDWIDTH, 0.1, 1e4),
            Need::Default("100Gbps"),
            "Rate of each of those cables.",
        ),
    ],
};

/// Groups of hosts.
pub(super) const HOSTS: Section = Section {
    name: "topology.hosts",
    many: true,
    needed: true,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Must,
            "What other tables call this group of hosts; one of its hosts is \
             `name.0`, `name.1` and so on.",
        ),
        key(
            "count",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "How many hosts.",
        ),
        key(
            "nic",
            Kind::Word(|| NIC_NAMES.to_vec()),
            Need::Default("connectx-5"),
            "Their NIC.",
        ),
        key(
            "nic_file",
            Kind::Text,
            Need::Or("`nic`"),
            "A parameter file of a NIC, beside the experiment; goes before `nic`.",
        ),
        key(
            "cpu",
            Kind::Word(|| CPU_NAMES.to_vec()),
            Need::Default("epyc-7452"),
            "Their processor.",
        ),
        key(
            "cores",
            Kind::Count(1, 256),
            Need::Or("the processor's"),
            "Cores of each.",
        ),
        key(
            "switch",
            Kind::Count(0, 63),
            Need::Default("0"),
            "Which switch they are on, from 0.",
        ),
    ],
};
