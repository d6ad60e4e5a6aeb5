//! The receiving end of a port.

use std::sync::Arc;

use crate::sync::Ordering;

use super::{Nonsense, PortMap, Record, RECORD_HEADER_BYTES};

/// What the receiver knows of its own port.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) port: Arc<PortMap>,
    /// The sender's queue pair.
    pub(crate) source: u32,
    head: u64,
    /// The tail as it was seen last: its line belongs to the sender, and each look takes it away from there.
    tail: u64,
    /// Nobody looks at the tail any more.
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

    /// Bytes of records that are there, by the tail as it was seen last.
    #[inline(always)]
    fn there(&self) -> Result<u64, Nonsense> {
        let there = self.tail.wrapping_sub(self.head);
        if there > self.port.data_bytes() || there % RECORD_HEADER_BYTES != 0 {
            return Err(Nonsense);
        }
        Ok(there)
    }

    /// The next record, if one is there. It stays until [`Inbound::take`].
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

    /// What comes from now on does not count: what is there is all, however long it takes to take it.
    #[cold]
    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            self.tail = self.port.tail().load(Ordering::Acquire);
        }
    }

    /// Whether the sender has left, and everything that it sent is taken.
    pub(crate) fn is_over(&mut self) -> bool {
        self.port.left().load(Ordering::Acquire) != 0 && !matches!(self.peek(), Ok(Some(_)))
    }

    /// Has `f` read the bytes of a record that [`Inbound::peek`] returned. They may change meanwhile.
    #[inline]
    pub(crate) fn read(&self, record: &Record, f: impl FnOnce([(*const u8, usize); 2])) {
        let at = self.head + RECORD_HEADER_BYTES;
        self.port.drain(at, record.bytes as usize, f);
    }

    /// Throws away what is there now, without a look at it: however much that is, it takes one step.
    #[cold]
    pub(crate) fn skip(&mut self) -> Result<(), Nonsense> {
        self.tail = self.port.tail().load(Ordering::Acquire);
        self.there()?;
        self.head = self.tail;
        self.port.head().store(self.head, Ordering::Release);
        Ok(())
    }

    /// Gives the room of that record back to the sender.
    #[inline]
    pub(crate) fn take(&mut self, record: &Record) {
        self.head = self.head.wrapping_add(record.ring_bytes());
        self.port.head().store(self.head, Ordering::Release);
    }
}
