//! A byte stream over two rings, one in each direction, as a replacement for sockets (RB² §VI).
//!
//! It behaves like a TCP stream: bytes arrive in order or the stream fails, a writer that is faster than its reader
//! waits, one direction can be closed while the other remains open, and a peer that dies is an error. [`Stream`] has
//! `poll_` functions in terms of `std` alone; with the feature `tokio` it implements tokio's `AsyncRead` and
//! `AsyncWrite`, with `futures` those of futures.
//!
//! A task that waits is at first polled again immediately, for a short time; then it sleeps, and the peer wakes it
//! ([`waiting`], `sleeping.rs`).

mod connect;
#[cfg(feature = "futures")]
mod futures;
mod half;
mod reactor;
#[cfg(feature = "tokio")]
mod tokio;
mod waiting;

pub use connect::{stream_config, StreamOffer, UnconnectedStream, STREAM_OFFER_BYTES};

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use dunlin_verbs::Device;

use half::{ReadHalf, WriteHalf, LINGER};

use crate::{Consumer, Producer};

/// A byte stream between two processes.
///
/// A stream that is dropped sends its peer the end and how much it has read, and blocks until both have arrived, for
/// 100 ms at most. To avoid blocking, first drive [`Stream::poll_shutdown`] to completion and read to the peer's end,
/// as libraries do.
#[derive(Debug)]
pub struct Stream<D: Device> {
    read: ReadHalf<D>,
    write: WriteHalf<D>,
}

// A stream holds no pointers into itself.
impl<D: Device> Unpin for Stream<D> {}

impl<D: Device> Stream<D> {
    fn new(producer: Producer<D>, consumer: Consumer<D>) -> Self {
        Self {
            read: ReadHalf::new(consumer),
            write: WriteHalf::new(producer),
        }
    }

    /// Reads available bytes into `target` and returns their number; zero means the end of what the peer has written.
    ///
    /// # Errors
    /// `ConnectionReset` when the peer is gone without closing the stream, `InvalidData` when it violated the protocol.
    /// The waker of `context` is called when there is more to read, and sometimes spuriously. `NotConnected` in a
    /// process that was forked since; this also applies to the functions below.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.read.poll(context, target)
    }

    /// Writes some of `source` and returns the number of bytes, which are already being sent. Pending while the peer
    /// has not read enough.
    ///
    /// # Errors
    /// `BrokenPipe` when the peer is gone or this side has shut down.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write.poll(context, source)
    }

    /// Waits until everything that was written has been passed to the device.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`].
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_flush(context)
    }

    /// Tells the peer that nothing more will be written, and waits until that has arrived. Reading remains possible. If
    /// the peer is gone by then, that is not an error as long as everything that was written has arrived.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`]; also when what was written before is not known to have arrived.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_shutdown(context)
    }
}

impl<D: Device> Drop for Stream<D> {
    fn drop(&mut self) {
        // Requests end with their queue pair, so wait for them: usually a round trip.
        let start = Instant::now();
        self.read.leave();
        self.write.leave();
        while !(self.read.has_left() && self.write.has_left()) && start.elapsed() < LINGER {
            std::thread::yield_now();
        }
    }
}
