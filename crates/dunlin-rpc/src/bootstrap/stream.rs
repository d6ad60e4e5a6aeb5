//! Frames on a TCP stream, with one deadline for all that is sent and received until it passes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::wire::{MAGIC, PREFIX_BYTES};

/// Why a frame did not come or go.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The deadline passed.
    Timeout,
    /// The other side is gone.
    Closed,
    /// The first bytes are not those of Dunlin.
    NotDunlin,
    /// The frame would be longer than the limit.
    TooLong,
    /// The system refused something.
    Io {
        call: &'static str,
        source: io::Error,
    },
}

impl StreamError {
    fn from_io(call: &'static str, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                Self::Closed
            }
            _ => Self::Io { call, source },
        }
    }
}

/// The end of a time that begins now; of one that is too long for the clock, a year from now.
pub(super) fn after(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + YEAR)
}

/// One side of the handshake's stream.
#[derive(Debug)]
pub(super) struct FrameStream<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
    max_frame: usize,
}

/// Whether a failed call is to be made again, if there is time.
fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

impl<'a> FrameStream<'a> {
    pub(super) fn new(stream: &'a TcpStream, deadline: Instant, max_frame: usize) -> Self {
        Self {
            stream,
            deadline,
            max_frame,
        }
    }

    fn left(&self) -> Result<Option<Duration>, StreamError> {
        // The system takes no timeout below a microsecond.
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_micros(1) {
            return Err(StreamError::Timeout);
        }
        Ok(Some(left))
    }

    fn read(&self, mut into: &mut [u8]) -> Result<(), StreamError> {
        while !into.is_empty() {
            let left = self.left()?;
            let wrong = |source| StreamError::from_io("setting the read timeout", source);
            self.stream.set_read_timeout(left).map_err(wrong)?;
            match (&mut &*self.stream).read(into) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(bytes) => into = &mut into[bytes..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(StreamError::from_io("reading", error)),
            }
        }
        Ok(())
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), StreamError> {
        let length = u32::try_from(frame.len()).map_err(|_| StreamError::TooLong)?;
        let bytes = [&length.to_le_bytes(), frame].concat();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let left = self.left()?;
            let wrong = |source| StreamError::from_io("setting the write timeout", source);
            self.stream.set_write_timeout(left).map_err(wrong)?;
            match (&mut &*self.stream).write(rest) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(StreamError::from_io("writing", error)),
            }
        }
        Ok(())
    }

    fn length(&self) -> Result<usize, StreamError> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        match usize::try_from(u32::from_le_bytes(length)) {
            Ok(length) if length <= self.max_frame => Ok(length),
            _ => Err(StreamError::TooLong),
        }
    }

    /// Receives a frame.
    pub(super) fn receive(&self) -> Result<Vec<u8>, StreamError> {
        let mut frame = vec![0; self.length()?];
        self.read(&mut frame)?;
        Ok(frame)
    }

    /// Receives a hello; a stream that does not begin with one is given up at its first bytes.
    pub(super) fn receive_hello(&self) -> Result<Vec<u8>, StreamError> {
        let length = match self.length() {
            Ok(length) if length >= PREFIX_BYTES => length,
            Ok(_) | Err(StreamError::TooLong) => return Err(StreamError::NotDunlin),
            Err(error) => return Err(error),
        };
        let mut frame = vec![0; length];
        let (prefix, rest) = frame.split_at_mut(PREFIX_BYTES);
        self.read(prefix)?;
        if !prefix.starts_with(&MAGIC) {
            return Err(StreamError::NotDunlin);
        }
        self.read(rest)?;
        Ok(frame)
    }
}
