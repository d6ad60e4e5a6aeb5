//! A byte stream on two rings, one each way: what sockets are made of (RB² §VI).
//!
//! It behaves as a TCP stream does: bytes arrive in order or the stream fails, a writer that is faster than its reader
//! waits, one direction can be closed while the other goes on, and a peer that dies is an error. [`Stream`] has `poll_`
//! functions in terms of `std` alone; with the feature `tokio` it is tokio's `AsyncRead` and `AsyncWrite`, with
//! `futures` those of futures.
//!
//! Whoever waits is first polled again at once, for a short time; then it sleeps, and the peer wakes it ([`waiting`],
//! `sleeping.rs`).

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
/// A stream that is dropped tells its peer that this is the end, and what it has read, and blocks until that has
/// arrived, for 100 ms at most. Call [`Stream::poll_shutdown`] to its end first and read to the peer's, as libraries
/// do, and it does not block.
#[derive(Debug)]
pub struct Stream<D: Device> {
    read: ReadHalf<D>,
    write: WriteHalf<D>,
}

// Nothing in it points into it.
impl<D: Device> Unpin for Stream<D> {}

impl<D: Device> Stream<D> {
    fn new(producer: Producer<D>, consumer: Consumer<D>) -> Self {
        Self {
            read: ReadHalf::new(consumer),
            write: WriteHalf::new(producer),
        }
    }

    /// Reads what is there into `target` and says how many bytes; zero is the end of what the peer has written.
    ///
    /// # Errors
    /// `ConnectionReset` when the peer is gone without an end, `InvalidData` when it broke the rules of the ring. The
    /// waker of `context` is called when there is more to read, or at times without a reason. `NotConnected` in a
    /// process that was forked since, here and below.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.read.poll(context, target)
    }

    /// Writes some of `source` and says how many bytes; they are on their way when it returns. Pending while the peer
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

    /// Waits until everything that was written has been handed to the device.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`].
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_flush(context)
    }

    /// Tells the peer that nothing more will be written, and waits until that has arrived. Reading goes on. A peer that
    /// is gone by then is no error if everything that was written has arrived there.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`]; also when what was written before is not known to have arrived.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.poll_shutdown(context)
    }
}

impl<D: Device> Drop for Stream<D> {
    fn drop(&mut self) {
        // Requests end with their queue pair, so they are waited for: a round trip as a rule.
        let start = Instant::now();
        self.read.leave();
        self.write.leave();
        while !(self.read.has_left() && self.write.has_left()) && start.elapsed() < LINGER {
            std::thread::yield_now();
        }
    }
}
