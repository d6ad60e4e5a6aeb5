//! How the calls of a thread have ended, and whether they may end so.

use std::collections::BTreeMap;

use dunlin::CallError;

use super::super::caller::Log;

/// Causes for calls of a thread to end with an error.
pub(super) struct Cause {
    /// Its host did not crash.
    pub(super) live: bool,
    /// A connection between its host and the server's may have been lost.
    pub(super) breaks: bool,
    /// The connection to the other server, which handlers call, may have been lost.
    pub(super) second: bool,
    /// If `second`: calls of its client that need the other server may have kept all places of a lane for as long as
    /// calls wait.
    pub(super) full: bool,
    /// Its client was closed by one of its threads.
    pub(super) closes: bool,
    /// Packets between its host and the server's, or between the servers', were lost or late, so that calls that need
    /// two servers, one after the other, may take long.
    pub(super) disturbed: bool,
    /// A packet between its host and the server's may have been lost without a retransmission.
    pub(super) loses: bool,
}

/// Whether this error is permitted for a call to a server that is gone, or over a lost connection.
fn is_of_a_break(error: &CallError) -> bool {
    use CallError::{
        Closed, Connect, ConnectionLost, DeadlineExceeded, Expired, PacketLost, ShuttingDown,
    };
    matches!(
        error,
        Closed
            | Connect(_)
            | ConnectionLost { .. }
            | DeadlineExceeded { .. }
            | Expired { .. }
            | PacketLost { .. }
            | ShuttingDown
    )
}

/// Checks the record of one thread against the executions at the server.
pub(super) fn check(
    thread: u64,
    log: &Log,
    cause: Cause,
    executed: &BTreeMap<(u64, u64), usize>,
    mut wrong: impl FnMut(String),
) {
    log.wrong.iter().cloned().for_each(&mut wrong);
    if cause.live && !log.ended {
        wrong(format!("it hangs after {} calls", log.made));
    }
    let is_lost = |error: &CallError| matches!(error, CallError::PacketLost { .. });
    for (part, error) in &log.errors {
        let closed = |error: &CallError| {
            use CallError::{Closed, Connect, ConnectionLost};
            matches!(error, Closed | ConnectionLost { .. } | Connect(_))
        };
        let has_cause = (cause.breaks && is_of_a_break(error))
            || (cause.second && cause.full && matches!(error, CallError::DeadlineExceeded { .. }))
            || (cause.loses && is_lost(error))
            || (cause.closes && closed(error));
        if !has_cause {
            wrong(format!("{part} ended without a cause: {error}"));
        }
    }
    for error in &log.nested {
        if !(cause.breaks || cause.second || cause.closes || cause.disturbed) {
            wrong(format!(
                "an error of a nested call without a cause: {error}"
            ));
        }
    }
    let times = |call: u64| executed.get(&(thread, call)).copied().unwrap_or(0);
    for (&call, &said) in &log.lost {
        if times(call) != usize::from(said) {
            let times = times(call);
            wrong(format!(
                "call {call} is said to be executed {said}, and was {times} times"
            ));
        }
    }
    for call in 0..log.made {
        let (times, answered) = (times(call), log.answered.contains(&call));
        if times > 1 || answered && times == 0 {
            wrong(format!(
                "call {call} was executed {times} times, answered {answered}"
            ));
        }
    }
}
