//! The targets of a responder: memory with keys, and RECEIVEs.

use dunlin_verbs::Access;

use crate::packet::{AtomicTarget, RemoteRange};

/// The key is unknown or revoked, or does not grant the range or the access; or a local buffer is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key does not grant this access")]
pub struct AccessError;

/// A message that arrived in full and consumed a RECEIVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Length in bytes.
    pub bytes: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Whether it was a WRITE.
    pub write: bool,
    /// Whether its sender solicited an event.
    pub solicited: bool,
}

/// The targets of a responder. Keys and bounds are checked for each packet before a byte is written.
pub trait Target {
    /// Whether the key grants `access` to the range.
    ///
    /// # Errors
    /// When it does not.
    fn check(&mut self, range: &RemoteRange, access: Access) -> Result<(), AccessError>;
    /// Checks and writes.
    ///
    /// # Errors
    /// When the key does not grant it; nothing is then written.
    fn write(&mut self, address: u64, key: u32, bytes: &[u8]) -> Result<(), AccessError>;
    /// Checks, and atomically replaces the value by the result of `change`. Returns the old one.
    ///
    /// # Errors
    /// When the key does not grant it.
    fn atomic(
        &mut self,
        target: &AtomicTarget,
        change: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, AccessError>;
    /// Takes the next RECEIVE and returns its length in bytes; it is the current one until it is delivered or has
    /// failed. `None`: none is posted.
    fn take_receive(&mut self) -> Option<u64>;
    /// Writes into the current RECEIVE.
    ///
    /// # Errors
    /// When its memory is no longer registered.
    fn fill_receive(&mut self, offset: u32, bytes: &[u8]) -> Result<(), AccessError>;
    /// Completes the current RECEIVE.
    fn deliver(&mut self, delivered: Delivered);
    /// Fails the current RECEIVE: the message is too long for it (`too_long`), or its memory is unusable.
    fn fail_receive(&mut self, too_long: bool);
}
