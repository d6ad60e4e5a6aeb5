//! The two directions of a stream, each of which waits separately.

use std::io::{self, ErrorKind};
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use dunlin_verbs::Device;

use super::waiting::Waiting;
use crate::{Consumer, LengthLimit, Producer, Received, RingError, SendError, Violation};

/// How long a dropped stream waits for the data that it has written to arrive, and how long a stream that is shut down
/// waits for its device to report what has arrived at a peer that is gone. Much longer than a device takes to end the
/// posted requests.
pub(super) const LINGER: Duration = Duration::from_millis(100);

/// The reading direction.
#[derive(Debug)]
pub(super) struct ReadHalf<D: Device> {
    consumer: Consumer<D>,
    /// Number of bytes of the next message that have been read, and its length if that is not zero: the peer may change
    /// the length in place.
    taken: usize,
    length: usize,
    waiting: Waiting,
}

impl<D: Device> ReadHalf<D> {
    pub(super) fn new(consumer: Consumer<D>) -> Self {
        Self {
            consumer,
            taken: 0,
            length: 0,
            waiting: Waiting::new(),
        }
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if target.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match self.read(target) {
            Ok(Some(count)) => {
                self.waiting.progress();
                Poll::Ready(Ok(count))
            }
            Ok(None) => {
                self.waiting.wait(context, &mut self.consumer);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(reading(error))),
        }
    }

    /// Sends the head, so that the peer knows which of its bytes were read.
    pub(super) fn leave(&mut self) {
        self.consumer.leave();
    }

    /// Whether the peer knows, or is gone.
    pub(super) fn has_left(&mut self) -> bool {
        self.consumer.has_left()
    }

    /// Reads as many messages as fit into `target`, whole or in part; `None` if nothing has arrived.
    fn read(&mut self, target: &mut [u8]) -> Result<Option<usize>, RingError> {
        let mut filled = 0;
        while filled < target.len() {
            let arrived = match self.consumer.peek() {
                Ok(Received::Message(arrived)) => arrived,
                Ok(Received::Empty) if filled == 0 => return Ok(None),
                Ok(Received::End) if filled == 0 => return Ok(Some(0)),
                Err(error) if filled == 0 => return Err(error),
                // Reported by the next call.
                _ => break,
            };
            let message = arrived.message();
            let length = message.len();
            if length == 0 || self.taken > 0 && length != self.length {
                // The writer of a stream does not send these.
                arrived.leave();
                if filled > 0 {
                    break;
                }
                let limit = self.length.max(1) as u64;
                let length = length as u64;
                return Err(Violation::Length { length, limit }.into());
            }
            self.length = length;
            let left = length - self.taken;
            let count = left.min(target.len() - filled);
            message.read(self.taken, &mut target[filled..filled + count]);
            filled += count;
            if count == left {
                self.taken = 0;
                arrived.give_back()?;
            } else {
                self.taken += count;
                arrived.leave();
            }
        }
        Ok(Some(filled))
    }
}

/// The writing direction.
#[derive(Debug)]
pub(super) struct WriteHalf<D: Device> {
    producer: Producer<D>,
    /// Maximum message length; longer writes are split.
    longest: usize,
    /// Since when the peer is known to be gone while it is not known what has arrived.
    lost: Option<Instant>,
    waiting: Waiting,
}

impl<D: Device> WriteHalf<D> {
    pub(super) fn new(producer: Producer<D>) -> Self {
        let (LengthLimit::AtMost(longest) | LengthLimit::Exactly(longest)) = producer.limit();
        Self {
            producer,
            // Several messages fit in the ring: while one is read another is written.
            longest: (longest / 4).max(1),
            lost: None,
            waiting: Waiting::new(),
        }
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = source.len().min(self.longest);
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        match self.producer.try_send(&source[..count]) {
            Ok(()) => {
                self.waiting.progress();
                // A design that batches would keep the message until there is more; bytes of a stream are sent
                // immediately.
                self.producer.flush().map_err(writing)?;
                Poll::Ready(Ok(count))
            }
            Err(SendError::Full) => {
                self.producer.poll().map_err(writing)?;
                self.wait(context)
            }
            Err(SendError::Ring(error)) => Poll::Ready(Err(writing(error))),
            Err(SendError::Closed) => Poll::Ready(Err(io::Error::new(
                ErrorKind::BrokenPipe,
                "this side of the stream has been shut down",
            ))),
            Err(error) => Poll::Ready(Err(io::Error::other(error))),
        }
    }

    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.producer.check_process().map_err(writing)?;
        if self.producer.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        self.producer.flush().map_err(writing)?;
        self.producer.poll().map_err(writing)?;
        if self.producer.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        self.wait(context)
    }

    pub(super) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.poll_end(context)) {
            Err(RingError::PeerLost) => self.poll_loss(context),
            ended => Poll::Ready(ended.map_err(writing)),
        }
    }

    /// A peer that is gone needs no end, as with TCP. If bytes did not arrive before that, they are lost, and an error
    /// is reported.
    fn poll_loss(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.producer.has_all_arrived() {
            Some(true) => Poll::Ready(Ok(())),
            None if self.lost.get_or_insert_with(Instant::now).elapsed() < LINGER => {
                self.wait(context)
            }
            // Nothing sent before has failed, and the device did not accept the end any more.
            None if !self.producer.has_told_end() => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(writing(RingError::PeerLost))),
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RingError>> {
        if !self.producer.is_flushed() {
            self.producer.flush()?;
        }
        self.producer.close()?;
        if !self.producer.is_closed() {
            self.producer.poll()?;
        }
        if self.producer.is_closed() {
            return Poll::Ready(Ok(()));
        }
        self.wait(context)
    }

    /// Closes the ring, so that the peer sees an end and not a reset.
    pub(super) fn leave(&mut self) {
        // There is no caller left to report a failure to.
        let _ = self.producer.close();
    }

    /// Whether the end is known to have arrived, or can no longer arrive.
    pub(super) fn has_left(&mut self) -> bool {
        self.producer.is_closed() || self.producer.poll().is_err() || self.producer.is_closed()
    }

    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<T> {
        self.waiting.wait(context, &mut self.producer);
        Poll::Pending
    }
}

fn reading(error: RingError) -> io::Error {
    let kind = match error {
        RingError::Violation(_) => ErrorKind::InvalidData,
        RingError::Forked => ErrorKind::NotConnected,
        _ => ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, error)
}

fn writing(error: RingError) -> io::Error {
    let kind = match error {
        RingError::Violation(_) => ErrorKind::InvalidData,
        RingError::Forked => ErrorKind::NotConnected,
        _ => ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    /// A message that becomes shorter than what was already read of it, and an empty one.
    #[cfg(not(loom))]
    #[test]
    fn a_message_that_changes_while_it_is_read_is_an_error() {
        use std::sync::atomic::Ordering;

        use dunlin_shm::{ShmConfig, ShmDevice};
        use dunlin_verbs::Region;

        use super::*;
        use crate::{framing, RingConfig, UnconnectedConsumer, UnconnectedProducer};

        let config = RingConfig {
            slots: 16,
            ..RingConfig::default()
        };
        let device = || ShmDevice::open(ShmConfig::default()).unwrap();
        let producer = UnconnectedProducer::new(&device(), &config).unwrap();
        let consumer = UnconnectedConsumer::new(&device(), &config).unwrap();
        let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
        let _producer = producer.connect(&to_producer).unwrap();
        let consumer = consumer.connect(&to_consumer).unwrap();
        let inlet = consumer.inlet_for_tests();
        let lie = |length| {
            let header = u64::from_le_bytes(framing::encode(length));
            let place = inlet.memory().atomic_u64(4096);
            place.store(header, Ordering::Release);
        };
        let mut half = ReadHalf::new(consumer);
        lie(200);
        inlet.memory().atomic_u64(0).store(4, Ordering::Release);
        let mut target = [0; 100];
        assert_eq!(half.read(&mut target), Ok(Some(100)));
        for length in [8, 0, 150] {
            lie(length);
            let error = half.read(&mut target).unwrap_err();
            assert!(matches!(error, RingError::Violation(_)), "{error}");
        }
        lie(200);
        assert_eq!(half.read(&mut target), Ok(Some(100)));
    }
}
