//! The keys of faults.

use super::{key, LONGEST_NS, TIME_OR_ZERO};
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::{SHARE, TIME};

/// Kinds of faults.
const FAULTS: [&str; 8] = [
    "loss",
    "delay",
    "duplicate",
    "slow",
    "crash",
    "partition",
    "no-dma",
    "slow-dma",
];

const TIME_ABOVE: Kind = Kind::Quantity(TIME, 1.0, LONGEST_NS);

/// A fault.
pub(super) const SECTION: Section = Section {
    name: "faults",
    many: true,
    needed: false,
    keys: &[
        key(
            "kind",
            Kind::Word(|| FAULTS.to_vec()),
            Need::Must,
            "What happens.",
        ),
        key(
            "from",
            TIME_OR_ZERO,
            Need::Default("0ns"),
            "When it begins.",
        ),
        key(
            "to",
            TIME_ABOVE,
            Need::Or("the end of the run"),
            "When it ends. A crash does not, `no-dma` must.",
        ),
        key(
            "share",
            Kind::Quantity(SHARE, 0.0, 1.0),
            Need::Default("100%"),
            "`loss`, `delay`, `duplicate`: which share of the packets. `slow-dma`: which \
             share of its bandwidth to memory the NIC has; of several at once the least counts.",
        ),
        key(
            "sender",
            Kind::Text,
            Need::Or("any host"),
            "`loss`, `delay`, `duplicate`: only packets of this host.",
        ),
        key(
            "receiver",
            Kind::Text,
            Need::Or("any host"),
            "`loss`, `delay`, `duplicate`: only packets to this host.",
        ),
        key(
            "traffic",
            Kind::Word(|| vec!["all", "requests", "answers"]),
            Need::Default("all"),
            "`loss`, `delay`, `duplicate`: all packets, those that carry verbs' \
             requests, or acknowledgements and what READs bring.",
        ),
        key(
            "least",
            TIME_OR_ZERO,
            Need::Default("0ns"),
            "`delay`: least delay.",
        ),
        key(
            "most",
            TIME_ABOVE,
            Need::Default("10us"),
            "`delay`: greatest delay. Packets overtake each other where it differs \
             from `least`.",
        ),
        key(
            "after",
            TIME_ABOVE,
            Need::Default("1us"),
            "`duplicate`: how long after the first the second one comes.",
        ),
        key(
            "hosts",
            Kind::Texts,
            Need::Or("an error for those kinds"),
            "`slow`, `crash`, `partition`, `no-dma`, `slow-dma`: which hosts; a partition \
             cuts them off from all others, with `no-dma` their NICs do not reach memory.",
        ),
        key(
            "factor",
            Kind::Number(1.0),
            Need::Default("10"),
            "`slow`: how many times as long the host's cores and the receiving side \
             of its NIC take; of several at once the greatest counts.",
        ),
    ],
};
