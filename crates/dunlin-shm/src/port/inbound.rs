//! The receiving end of a port.

use std::sync::Arc;

use crate::sync::Ordering;

use super::{Nonsense, PortMap, Record, RECORD_HEADER_BYTES};

/// The receiver's view of its own port.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) port: Arc<PortMap>,
    /// The sender's queue pair.
    pub(crate) source: u32,
    head: u64,
    /// The tail as last read: its line belongs to the sender, and each read takes it away from there.
    tail: u64,
    /// Whether the tail is no longer read.
    closed: bool,
}

impl Inbound {
    pub(crate) fn new(port: Arc<PortMap>, source: u32) -> Self {
        Self {
            port,
            source,
            head: 0,
            tail: 0,
            closed: false,
        }
    }

    /// Bytes of records taken so far.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Bytes of records available, by the tail as last read.
    #[inline(always)]
    fn there(&self) -> Result<u64, Nonsense> {
        let there = self.tail.wrapping_sub(self.head);
        if there > self.port.data_bytes() || there % RECORD_HEADER_BYTES != 0 {
            return Err(Nonsense);
        }
        Ok(there)
    }

    /// The next record, if there is one. It stays until [`Inbound::take`].
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Record>, Nonsense> {
        if self.tail == self.head && !self.closed {
            self.tail = self.port.tail().load(Ordering::Acquire);
        }
        let there = self.there()?;
        if there == 0 {
            return Ok(None);
        }
        let record = Record::decode(self.port.read_header(self.head)).ok_or(Nonsense)?;
        if record.ring_bytes() > there {
            return Err(Nonsense);
        }
        Ok(Some(record))
    }

    /// Ignores what arrives from now on: only what is already there is received, however long that takes.
    #[cold]
    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            self.tail = self.port.tail().load(Ordering::Acquire);
        }
    }

    /// Whether the sender has left, and everything that it sent has been taken.
    pub(crate) fn is_over(&mut self) -> bool {
        self.port.left().load(Ordering::Acquire) != 0 && !matches!(self.peek(), Ok(Some(_)))
    }

    /// Lets `f` read the bytes of a record that [`Inbound::peek`] returned. They may change meanwhile.
    #[inline]
    pub(crate) fn read(&self, record: &Record, f: impl FnOnce([(*const u8, usize); 2])) {
        let at = self.head + RECORD_HEADER_BYTES;
        self.port.drain(at, record.bytes as usize, f);
    }

    /// Discards everything available without reading it, in a single step.
    #[cold]
    pub(crate) fn skip(&mut self) -> Result<(), Nonsense> {
        self.tail = self.port.tail().load(Ordering::Acquire);
        self.there()?;
        self.head = self.tail;
        self.port.head().store(self.head, Ordering::Release);
        Ok(())
    }

    /// Frees the space of that record for the sender.
    #[inline]
    pub(crate) fn take(&mut self, record: &Record) {
        self.head = self.head.wrapping_add(record.ring_bytes());
        self.port.head().store(self.head, Ordering::Release);
    }
}
