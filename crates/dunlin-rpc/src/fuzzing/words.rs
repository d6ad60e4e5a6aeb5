//! Numbers and words that a peer says beside its messages: grants, credits, turns, figures.

use crate::admission::credits::{CreditBalance, Ledger, Renewal};
use crate::admission::grouping::pace::PaceAnswer;
use crate::call::callbacks::{Ask, Told};
use crate::call::notify::Notice;
use crate::channel::one_sided::{Attached, GRANT_BYTES};
use crate::client::ClientReport;
use crate::server::ServerFigures;

/// Reads the grant of a region, and uses it as a client does: nothing outside of it is ever asked for.
///
/// # Panics
/// When what was read is written as another grant.
pub fn grant(bytes: &[u8]) {
    let Some(grant) = Attached::decode(bytes) else {
        return;
    };
    assert_eq!(bytes.len(), GRANT_BYTES);
    assert_eq!(Attached::decode(&grant.encode()), Some(grant));
}

/// Counts credits while a server grants anything, and grants them while a client sends and asks for anything.
///
/// # Panics
/// When more may be sent than a client believes of any server, or a client holds more than any may.
pub fn credits(bytes: &[u8]) {
    let mut balance = CreditBalance::new(32);
    let mut ledger = Ledger::new((32, 128));
    for step in bytes.chunks_exact(5) {
        let (kind, word) = step.split_first().expect("five bytes");
        let word = u32::from_le_bytes(word.try_into().expect("four bytes"));
        match kind % 7 {
            0 => balance.granted(word),
            1 => balance.reports_taken(word as u8),
            2 => {
                // A lie ends its connection.
                let renewal = Renewal::decode(word);
                let _ = ledger.asked(renewal);
                let _ = ledger.reported(word);
                assert_eq!(Renewal::decode(renewal.encode()).degree, renewal.degree);
            }
            3 => {
                let _ = ledger.grant();
            }
            4 => {
                let _ = ledger.take();
            }
            _ if balance.left() > 0 => balance.spend(1 + word % balance.left(), 1),
            _ => {}
        }
        assert!(balance.left() <= 1 << 16, "{balance:?}");
        assert!(ledger.left() <= 128 + 128 / 2, "{ledger:?}");
    }
}

/// Reads what a client says of itself, what a server says of itself, a server's answer about its turns, what the two
/// say of callbacks, and what a writer says to the owner of a region. The first byte chooses.
///
/// # Panics
/// When a report that was taken breaks its limits.
pub fn figures(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 6 {
        0 => {
            if let Ok(report) = ClientReport::decode(bytes) {
                let written = |report: &ClientReport| report.encode().expect("a report");
                let again = ClientReport::decode(&written(&report)).expect("our own report");
                // As bytes: a figure that is no number is not equal to itself.
                assert_eq!(written(&again), written(&report));
            }
        }
        1 => {
            if let Ok(figures) = ServerFigures::decode(bytes) {
                // As `dunlin top` adds them up.
                let _ = (figures.connections(), figures.active_queue_pairs());
            }
        }
        2 => {
            if let Some(answer) = PaceAnswer::decode(bytes) {
                assert_eq!(PaceAnswer::decode(&answer.encode()), Some(answer));
            }
        }
        3 => {
            if let Ok(ask) = Ask::decode(bytes) {
                assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
            }
        }
        4 => {
            if let Ok(told) = Told::decode(bytes) {
                assert_eq!(Told::decode(&told.encode()), Ok(told));
            }
        }
        _ => {
            if let Some(notice) = Notice::decode(bytes) {
                assert_eq!(Notice::decode(&notice.encode()), Some(notice));
            }
        }
    }
}
