//! Why a queue pair failed, in words that help whoever has to find out.

use dunlin_verbs::{CompletionStatus, QueuePair};

/// What `status` says of a queue pair, and what its device knows beyond that. Of a peer that does not answer it names
/// where datagrams went from and to: it may have ended, and a firewall may stand in between.
#[cold]
pub fn failure_of(queue_pair: &impl QueuePair, status: CompletionStatus) -> String {
    let words = match queue_pair.datagram_path() {
        Some((from, to)) if status == CompletionStatus::RetryExceeded => format!(
            "{status} (UDP from {from} to {to}): it has ended, or something in between \
             drops datagrams (`dunlin doctor ADDRESS` tells)"
        ),
        _ => status.to_string(),
    };
    match queue_pair.failure() {
        Some(why) => format!("{words} ({why})"),
        None => words,
    }
}
