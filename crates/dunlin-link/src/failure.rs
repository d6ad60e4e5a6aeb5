//! Descriptions of queue pair failures, for diagnosis.

use dunlin_verbs::{CompletionStatus, QueuePair};

/// Describes `status` of a queue pair, with what its device knows beyond that. For a peer that does not answer it names
/// the addresses between which the datagrams went: the peer may have ended, or a firewall may drop them.
#[cold]
pub fn failure_of(queue_pair: &impl QueuePair, status: CompletionStatus) -> String {
    let words = match queue_pair.datagram_path() {
        Some((from, to)) if status == CompletionStatus::RetryExceeded => format!(
            "{status} (UDP from {from} to {to}): the peer has ended, or something on the path drops datagrams (run \
             `dunlin doctor ADDRESS`)"
        ),
        _ => status.to_string(),
    };
    match queue_pair.failure() {
        Some(why) => format!("{words} ({why})"),
        None => words,
    }
}
