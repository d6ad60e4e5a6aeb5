//! Translates the failure of a transaction into an error for the program that ran it.

use std::time::Instant;

use dunlin_verbs::thread;

use super::{DatabaseError, Inner};
use crate::driver::Driver;
use crate::error::TransactionError;
use crate::types::TransactionId;
use crate::wire::Refusal;

/// Explains the failure of a transaction that began at this time, with what the database and the driver know about the
/// machine.
pub(super) fn explain(
    error: TransactionError,
    (transaction, began): (TransactionId, Instant),
    database: Option<&Inner>,
    driver: Option<&Driver>,
) -> DatabaseError {
    let address = |machine| database.map_or_else(String::new, |inner| inner.address(machine));
    let elapsed = || thread::now().duration_since(began);
    match error {
        by @ (TransactionError::Locked { .. }
        | TransactionError::Changed { .. }
        | TransactionError::Refused {
            // Its locks are released by their coordinator, or end with the epoch.
            refusal: Refusal::Unfinished,
            ..
        }
        | TransactionError::Superseded) => DatabaseError::Aborted {
            by,
            attempts: 1,
            within: elapsed(),
        },
        TransactionError::Unknown { machine, refusal } => DatabaseError::UnknownOutcome {
            transaction,
            machine,
            address: address(machine),
            refusal,
        },
        TransactionError::Unavailable { machine } => {
            let trouble = driver.and_then(|driver| driver.trouble(machine));
            let (since, why) = match trouble {
                Some((since, why)) => (thread::now().duration_since(since), why),
                None => (elapsed(), "no response".to_owned()),
            };
            DatabaseError::Unavailable {
                machine,
                address: address(machine),
                since,
                why,
            }
        }
        other => DatabaseError::Refused(other),
    }
}
