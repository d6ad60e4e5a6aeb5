//! The keys of a table of verbs.

use crate::experiment::keys::key;
use crate::experiment::schema::{Kind, Need, Section};
use crate::experiment::unit::BYTES;

/// Maximum message size.
const LONGEST: f64 = 1_048_576.0;
const PLACES_MOST: f64 = 1_073_741_824.0;

/// The keys, in the order of the page.
pub(in super::super) const SECTION: Section = Section {
    name: "verbs",
    many: true,
    needed: false,
    keys: &[
        key(
            "name",
            Kind::Text,
            Need::Or("its number, from 0"),
            "What columns call this group.",
        ),
        key(
            "requesters",
            Kind::Texts,
            Need::Must,
            "Hosts whose threads post: groups of hosts, or single hosts.",
        ),
        key(
            "targets",
            Kind::Texts,
            Need::Must,
            "To which hosts: a requester posts to all of them but itself.",
        ),
        key(
            "operation",
            Kind::Word(|| vec!["read", "write", "send", "fetch-add"]),
            Need::Must,
            "What is posted: RDMA READ, RDMA WRITE, SEND, or FETCH_AND_ADD, whose `size` is 8 B.",
        ),
        key(
            "transport",
            Kind::Word(|| vec!["rc", "uc", "ud"]),
            Need::Default("rc"),
            "Queue pairs of which kind: READs and atomics need `rc`, and `ud` has SENDs alone.",
        ),
        key(
            "size",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Default("64B"),
            "Bytes of each.",
        ),
        key(
            "threads",
            Kind::Count(1, 256),
            Need::Default("1"),
            "Threads of each requester at most: it has no more than queue pairs.",
        ),
        key(
            "queue_pairs",
            Kind::Count(1, 65536),
            Need::Or("one for each thread"),
            "Queue pairs of all requesters together. They are dealt out to requesters, then to the threads of each, \
             and to targets.",
        ),
        key(
            "destinations",
            Kind::Count(1, 4096),
            Need::Default("1"),
            "`ud`: queue pairs of targets that each of the requesters' sends to, at random.",
        ),
        key(
            "outstanding",
            Kind::Count(1, 1024),
            Need::Default("16"),
            "Requests that a thread has out at most, over all its queue pairs.",
        ),
        key(
            "signal_every",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "One request in so many is signaled; its completion says that those before it are done. A queue pair keeps \
             its turn for so many.",
        ),
        key(
            "batch",
            Kind::Count(1, 1024),
            Need::Default("1"),
            "Requests of a doorbell.",
        ),
        key(
            "inline",
            Kind::Flag,
            Need::Default("false"),
            "Whether WRITEs and SENDs carry their bytes in the request.",
        ),
        key(
            "answer",
            Kind::Quantity(BYTES, 1.0, LONGEST),
            Need::Or("nothing"),
            "SENDs: the target's thread answers each by a SEND of so many bytes, inline where its NIC takes that. A \
             request is done when its answer is here. Over `uc` and `ud` one that is lost is never done, and its place \
             of `outstanding` is gone.",
        ),
        key(
            "order",
            Kind::Word(|| vec!["random", "in-turn"]),
            Need::Default("random"),
            "Which of its queue pairs a thread posts on next.",
        ),
        key(
            "places",
            Kind::Count(1, 65536),
            Need::Default("64"),
            "Places of the target's memory that are read or written at random; RECEIVEs take them in turn.",
        ),
        key(
            "place",
            Kind::Quantity(BYTES, 1.0, PLACES_MOST),
            Need::Or("`size`, and 40 B with `ud`, rounded up to 64 B"),
            "Distance of two places.",
        ),
        key(
            "own_places",
            Kind::Flag,
            Need::Default("false"),
            "Whether each queue pair has places of its own at its target. If not, all have the same.",
        ),
        key(
            "zone",
            Kind::Quantity(BYTES, 1.0, PLACES_MOST),
            Need::Or("`places` times `place`"),
            "`own_places`: bytes from those of one queue pair to those of the next.",
        ),
        key(
            "own_completions",
            Kind::Flag,
            Need::Default("false"),
            "`rc` and `uc`: whether each queue pair has a completion queue of its own, where a thread waits for its \
             oldest request. If not, a thread has one for all of its queue pairs.",
        ),
        key(
            "receivers",
            Kind::Count(1, 256),
            Need::Or("as many as a requester has threads"),
            "Threads of each target that hold its queue pairs and take SENDs. With `ud` each has one queue pair.",
        ),
        key(
            "receives",
            Kind::Count(1, 32768),
            Need::Or("`outstanding`, and 512 with `ud`"),
            "SENDs: RECEIVEs that a target keeps posted on each of its queue pairs.",
        ),
    ],
};
