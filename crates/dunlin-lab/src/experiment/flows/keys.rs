//! The keys of a table of flows.

use super::list::FORMS;
use crate::experiment::keys::{key, TIME_OR_ZERO};
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::BYTES;

/// Maximum size of a flow, and of one of its WRITEs.
pub(super) const LONGEST: f64 = 1_099_511_627_776.0;
const LONGEST_WRITE: f64 = 67_108_864.0;

/// The keys, in the order of the page.
pub(in super::super) const SECTION: Section = Section {
    name: "flows",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Or("its number, from 0"),
            "What columns call this group of flows.",
        ),
        key(
            "senders",
            Kind::Texts,
            Need::Or("those of `file`"),
            "From which hosts: groups of hosts, or single hosts.",
        ),
        key(
            "receivers",
            Kind::Texts,
            Need::Or("those of `file`"),
            "To which hosts: each sender has flows to each of them but itself.",
        ),
        key(
            "size",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Or("those of `file`"),
            "Bytes of each flow.",
        ),
        key(
            "start",
            TIME_OR_ZERO,
            Need::Default("0ns"),
            "When they begin.",
        ),
        key(
            "count",
            Kind::Count(1, 4096),
            Need::Default("1"),
            "Flows from each sender to each receiver.",
        ),
        key(
            "file",
            Kind::Text,
            Need::Or("`senders`, `receivers` and `size`"),
            "A list of flows of another simulator, beside the experiment.",
        ),
        key(
            "form",
            Kind::Word(|| FORMS.to_vec()),
            Need::Default("hpcc"),
            "`file`: the flow file of HPCC's ns-3, or the connection matrix of htsim.",
        ),
        key(
            "hosts",
            Kind::Texts,
            Need::Or("all hosts"),
            "`file`: the hosts that its numbers mean, in this order.",
        ),
        key(
            "first",
            Kind::Count(0, 65535),
            Need::Default("0"),
            "`file`: the number that the first of those hosts has there.",
        ),
        key(
            "zero",
            TIME_OR_ZERO,
            Need::Default("0ns"),
            "`file`: the time there that is time zero here.",
        ),
        key(
            "message",
            Kind::Quantity(BYTES, 1.0, LONGEST_WRITE),
            Need::Default("1MiB"),
            "A flow is WRITEs of this size, and a last one of what is left.",
        ),
        key(
            "outstanding",
            Kind::Count(1, 1024),
            Need::Default("64"),
            "WRITEs that a flow has out at most.",
        ),
    ],
};
