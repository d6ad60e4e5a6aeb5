//! A connection over a Unix socket with many requests outstanding, answered in order.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, FirstError};
use crate::commands::Failure;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// The connection.
#[derive(Debug)]
pub(super) struct Socket {
    stream: UnixStream,
    /// Requests that are not sent yet.
    pub(super) requests: Vec<u8>,
    tags: VecDeque<u64>,
    /// The bytes read, of which `at .. end` are not taken yet.
    answers: Vec<u8>,
    at: usize,
    end: usize,
    pub(super) first_error: Option<FirstError>,
}

/// One answer at the beginning of these bytes, and its length; `None` where it is not whole.
pub(super) type Parsed = Option<(Answer, usize)>;

impl Socket {
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            requests: Vec::new(),
            tags: VecDeque::new(),
            answers: vec![0; READ_BYTES],
            at: 0,
            end: 0,
            first_error: None,
        })
    }

    /// Counts a request that was appended to [`Socket::requests`].
    pub(super) fn add(&mut self, tag: u64) {
        self.tags.push_back(tag);
    }

    pub(super) fn outstanding(&self) -> usize {
        self.tags.len()
    }

    /// Sends what is buffered, and waits for at least one answer.
    pub(super) fn wait(
        &mut self,
        parse: impl Fn(&[u8]) -> Parsed,
        take: &mut impl FnMut(u64, Answer),
    ) -> Result<(), Failure> {
        let lost = |error: io::Error| Failure::new(format!("lost the connection: {error}"));
        if !self.requests.is_empty() {
            self.stream.write_all(&self.requests).map_err(lost)?;
            self.requests.clear();
        }
        let mut taken = 0;
        while taken == 0 && !self.tags.is_empty() {
            self.make_room();
            let read = self
                .stream
                .read(&mut self.answers[self.end..])
                .map_err(lost)?;
            if read == 0 {
                return Err(lost(io::ErrorKind::UnexpectedEof.into()));
            }
            self.end += read;
            while let Some((answer, length)) = parse(&self.answers[self.at..self.end]) {
                if answer == Answer::Failed && self.first_error.is_none() {
                    let words = &self.answers[self.at..self.at + length];
                    self.first_error = Some(failed(words));
                }
                let tag = self.tags.pop_front();
                let tag = tag.ok_or_else(|| Failure::new("an answer without a request"))?;
                self.at += length;
                taken += 1;
                take(tag, answer);
            }
        }
        Ok(())
    }

    fn make_room(&mut self) {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        } else if self.answers.len() - self.end < READ_BYTES / 2 {
            self.answers.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
            if self.answers.len() - self.end < READ_BYTES / 2 {
                self.answers.resize(self.answers.len() + READ_BYTES, 0);
            }
        }
    }
}

/// The error of a store for a failed request.
fn failed(words: &[u8]) -> FirstError {
    let words = String::from_utf8_lossy(words).trim().to_owned();
    // "SERVER_ERROR out of memory storing object", "-OOM command not allowed when used memory > 'maxmemory'."
    let is_full = words.contains("out of memory") || words.contains("OOM");
    FirstError { words, is_full }
}

/// The first line, without its end, and where the next begins.
pub(super) fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    (bytes.len() >= end + 2).then(|| (&bytes[..end], end + 2))
}

/// A decimal number, perhaps negative.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends a decimal number.
pub(super) fn push_number(bytes: &mut Vec<u8>, number: usize) {
    // Into a vector nothing fails.
    let _ = write!(bytes, "{number}");
}
