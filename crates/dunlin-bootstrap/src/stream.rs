//! Frames on a TCP stream, with one deadline for everything that is sent and received.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::certificate::TlsFailure;
use crate::prefix::{MAGIC, PREFIX_BYTES};
use crate::transport::Transport;

/// Why a frame could not be sent or received.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The deadline passed.
    Timeout,
    /// The other side has closed the connection.
    Closed,
    /// The first bytes are not those of Dunlin.
    NotDunlin,
    /// The first bytes are those of TLS.
    BeginsTls,
    /// TLS could not be established.
    Tls(TlsFailure),
    /// The frame would be longer than the limit.
    TooLong,
    /// A system call failed.
    Io {
        call: &'static str,
        source: io::Error,
    },
}

impl StreamError {
    fn from_io(call: &'static str, source: io::Error) -> Self {
        let failure = source.get_ref().and_then(|inner| inner.downcast_ref());
        if let Some(failure) = failure {
            return Self::Tls(TlsFailure::clone(failure));
        }
        match source.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                Self::Closed
            }
            _ => Self::Io { call, source },
        }
    }
}

/// The end of a period that begins now; a year from now if it is too long for the clock.
pub(crate) fn after(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + YEAR)
}

/// One side of the handshake's stream.
#[derive(Debug)]
pub(crate) struct FrameStream<'a> {
    stream: &'a mut Transport,
    deadline: Instant,
    max_frame: usize,
}

/// Whether a failed call should be repeated if there is time.
fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

impl<'a> FrameStream<'a> {
    pub(crate) fn new(stream: &'a mut Transport, deadline: Instant, max_frame: usize) -> Self {
        Self {
            stream,
            deadline,
            max_frame,
        }
    }

    fn left(&self) -> Result<Option<Duration>, StreamError> {
        // The system does not accept timeouts below a microsecond.
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_micros(1) {
            return Err(StreamError::Timeout);
        }
        Ok(Some(left))
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<(), StreamError> {
        let bytes = framed(frame)?;
        let mut rest = bytes.as_slice();
        loop {
            let left = self.left()?;
            let wrong = |source| StreamError::from_io("setting the write timeout", source);
            self.stream.tcp().set_write_timeout(left).map_err(wrong)?;
            let outcome = match rest.is_empty() {
                true => self.stream.flush().map(|()| 0),
                false => self.stream.write(rest),
            };
            match outcome {
                Ok(0) if rest.is_empty() => return Ok(()),
                Ok(0) => return Err(StreamError::Closed),
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(StreamError::from_io("writing", error)),
            }
        }
    }

    /// Receives a frame; if the stream should begin with a hello and does not, fails at its first bytes.
    pub(crate) fn receive(&mut self, first: First) -> Result<Vec<u8>, StreamError> {
        let mut incoming = Incoming::default();
        loop {
            let left = self.left()?;
            let wrong = |source| StreamError::from_io("setting the read timeout", source);
            self.stream.tcp().set_read_timeout(left).map_err(wrong)?;
            if let Progress::Frame(frame) = incoming.read(self.stream, first, self.max_frame)? {
                return Ok(frame);
            }
        }
    }
}

/// Whether a frame has to begin like a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Hello,
    Anything,
}

/// The result of one read from a stream.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The complete frame.
    Frame(Vec<u8>),
    /// A part of it.
    Some,
    /// Nothing within the stream's timeout, which is zero for a nonblocking stream.
    Nothing,
}

/// A frame that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    filled: usize,
}

const LENGTH_BYTES: usize = size_of::<u32>();

impl Incoming {
    /// The part of the frame received so far.
    pub(crate) fn begun(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Reads once. The buffer never exceeds the bytes of one frame.
    pub(crate) fn read(
        &mut self,
        stream: &mut Transport,
        first: First,
        max_frame: usize,
    ) -> Result<Progress, StreamError> {
        let wanted = self.wanted(first, max_frame)?.0;
        self.bytes.resize(wanted, 0);
        match stream.read(&mut self.bytes[self.filled..]) {
            Ok(0) => return Err(StreamError::Closed),
            Ok(bytes) => self.filled += bytes,
            Err(error) if again(&error) => return Ok(Progress::Nothing),
            Err(error) => return Err(StreamError::from_io("reading", error)),
        }
        let (wanted, whole) = self.wanted(first, max_frame)?;
        if !whole || self.filled < wanted {
            return Ok(Progress::Some);
        }
        let mut frame = std::mem::take(self).bytes;
        frame.drain(..LENGTH_BYTES);
        Ok(Progress::Frame(frame))
    }

    /// Number of bytes needed next, counted from the beginning, and whether that is the whole frame.
    fn wanted(&self, first: First, max_frame: usize) -> Result<(usize, bool), StreamError> {
        let here = &self.bytes[..self.filled];
        let Some((length, begun)) = here.split_first_chunk() else {
            return Ok((LENGTH_BYTES, false));
        };
        if first == First::Hello && is_tls(*length) {
            return Err(StreamError::BeginsTls);
        }
        let length = usize::try_from(u32::from_le_bytes(*length));
        let length = length.ok().filter(|&length| length <= max_frame);
        if first == First::Hello {
            let length = length.filter(|&length| length >= PREFIX_BYTES);
            if length.is_none() || begun.len() >= PREFIX_BYTES && !begun.starts_with(&MAGIC) {
                return Err(StreamError::NotDunlin);
            }
            if begun.len() < PREFIX_BYTES {
                return Ok((LENGTH_BYTES + PREFIX_BYTES, false));
            }
        }
        let length = length.ok_or(StreamError::TooLong)?;
        Ok((LENGTH_BYTES + length, true))
    }
}

/// Whether these are the first bytes of TLS: a handshake record, in a version of SSL 3 or later. As the length of a
/// frame they would exceed the maximum.
fn is_tls(bytes: [u8; LENGTH_BYTES]) -> bool {
    matches!(bytes, [0x16, 0x03, 1..=4, _])
}

/// The bytes of a frame as sent on the stream.
fn framed(frame: &[u8]) -> Result<Vec<u8>, StreamError> {
    let length = u32::try_from(frame.len()).map_err(|_| StreamError::TooLong)?;
    Ok([&length.to_le_bytes(), frame].concat())
}

/// Sends a frame on a nonblocking stream. The socket buffer has space for the few frames of a handshake; if a client
/// has reduced it, its handshake fails.
pub(crate) fn send_at_once(stream: &mut Transport, frame: &[u8]) -> Result<(), StreamError> {
    let bytes = framed(frame)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(StreamError::Closed),
            Ok(bytes) => rest = &rest[bytes..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if again(&error) => return Err(StreamError::Closed),
            Err(error) => return Err(StreamError::from_io("writing", error)),
        }
    }
    match stream.flush() {
        Ok(()) => Ok(()),
        Err(error) if again(&error) => Err(StreamError::Closed),
        Err(error) => Err(StreamError::from_io("writing", error)),
    }
}
