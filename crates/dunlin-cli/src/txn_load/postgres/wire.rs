//! A connection: the messages of PostgreSQL's protocol 3.0 that are needed to call prepared statements.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::commands::Failure;

/// The user and the database.
pub(super) const USER: &str = "dunlin";
pub(super) const DATABASE: &str = "postgres";
/// Version 3.0.
const VERSION: u32 = 3 << 16;
/// Bytes read at once.
const READ_BYTES: usize = 8192;

/// How a statement has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was executed.
    Done {
        /// Whether its first value, if any, is false.
        refused: bool,
    },
    /// It failed.
    Failed {
        /// SQLSTATE.
        code: String,
        /// The message.
        words: String,
    },
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    request: Vec<u8>,
    /// Bytes read and not taken yet.
    answer: Vec<u8>,
    refused: bool,
    failed: Option<(String, String)>,
}

fn lost(error: io::Error) -> Failure {
    Failure::new(format!("lost the connection to PostgreSQL: {error}"))
}

impl Connection {
    /// Opens a connection that is ready. A private socket requires no password.
    pub(super) fn open(socket: &Path, patience: Duration) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket).map_err(lost)?;
        stream.set_read_timeout(Some(patience)).map_err(lost)?;
        stream.set_write_timeout(Some(patience)).map_err(lost)?;
        let mut connection = Self {
            stream,
            request: Vec::new(),
            answer: Vec::new(),
            refused: false,
            failed: None,
        };
        let mut words = VERSION.to_be_bytes().to_vec();
        for word in ["user", USER, "database", DATABASE, ""] {
            put_text(&mut words, word);
        }
        connection
            .request
            .extend((words.len() as u32 + 4).to_be_bytes());
        connection.request.extend(words);
        connection.finish()?;
        Ok(connection)
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Executes statements, and waits.
    pub(super) fn run(&mut self, statements: &str) -> Result<(), Failure> {
        self.put(b'Q', |body| put_text(body, statements));
        self.finish()
    }

    /// Prepares a statement under a number.
    pub(super) fn prepare(&mut self, number: usize, statement: &str) -> Result<(), Failure> {
        self.put(b'P', |body| {
            put_text(body, &number.to_string());
            put_text(body, statement);
            body.extend(0_u16.to_be_bytes());
        });
        self.put(b'S', |_| ());
        self.finish()
    }

    /// Begins to execute a prepared statement as its own transaction, with values as text.
    pub(super) fn execute(&mut self, number: usize, values: &[String]) -> Result<(), Failure> {
        self.put(b'B', |body| {
            put_text(body, "");
            put_text(body, &number.to_string());
            body.extend(0_u16.to_be_bytes());
            body.extend((values.len() as u16).to_be_bytes());
            for value in values {
                body.extend((value.len() as u32).to_be_bytes());
                body.extend(value.as_bytes());
            }
            body.extend(0_u16.to_be_bytes());
        });
        self.put(b'E', |body| {
            put_text(body, "");
            body.extend(0_u32.to_be_bytes());
        });
        self.put(b'S', |_| ());
        self.send()
    }

    fn put(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.request.push(kind);
        let start = self.request.len();
        self.request.extend([0; 4]);
        body(&mut self.request);
        let length = (self.request.len() - start) as u32;
        self.request[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&self.request).map_err(lost)?;
        self.request.clear();
        Ok(())
    }

    /// Sends what is buffered, and waits until all of it was executed.
    fn finish(&mut self) -> Result<(), Failure> {
        self.send()?;
        loop {
            match self.ended()? {
                Some(Ended::Done { .. }) => return Ok(()),
                Some(Ended::Failed { code, words }) => {
                    return Err(Failure::new(format!("PostgreSQL: {words} ({code})")));
                }
                None => {}
            }
        }
    }

    /// Reads once. What was sent has ended when PostgreSQL is ready for more.
    pub(super) fn ended(&mut self) -> Result<Option<Ended>, Failure> {
        let before = self.answer.len();
        self.answer.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.answer[before..]);
        self.answer.truncate(before + *read.as_ref().unwrap_or(&0));
        if read.map_err(lost)? == 0 {
            // A refusal before the connection is ready states its reason.
            let why = self
                .failed
                .take()
                .map(|(code, words)| Ended::Failed { code, words });
            return why
                .map(Some)
                .ok_or_else(|| lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let (mut at, mut is_ready) = (0, false);
        while let Some((kind, body, next)) = message(&self.answer, at) {
            match kind {
                b'D' => self.refused |= is_false(body),
                b'E' => self.failed = Some(error(body)),
                b'R' if body.get(..4) != Some(&[0; 4]) => {
                    return Err(Failure::new("PostgreSQL requires a password"));
                }
                b'Z' => is_ready = true,
                _ => {}
            }
            at = next;
        }
        self.answer.drain(..at);
        let refused = std::mem::take(&mut self.refused) && is_ready;
        Ok(is_ready.then(|| match self.failed.take() {
            Some((code, words)) => Ended::Failed { code, words },
            None => Ended::Done { refused },
        }))
    }
}

fn put_text(body: &mut Vec<u8>, text: &str) {
    body.extend(text.as_bytes());
    body.push(0);
}

/// A whole message: its kind, its body, and where the next begins.
fn message(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let head = bytes.get(at..at + 5)?;
    let length = u32::from_be_bytes(head[1..].try_into().ok()?) as usize;
    let end = at + 1 + length.max(4);
    Some((head[0], bytes.get(at + 5..end)?, end))
}

/// Whether a row begins with the text of false.
fn is_false(row: &[u8]) -> bool {
    row.get(2..7) == Some(&[0, 0, 0, 1, b'f'])
}

/// SQLSTATE and message of an error.
fn error(body: &[u8]) -> (String, String) {
    let (mut code, mut words) = (String::new(), String::new());
    for field in body.split(|byte| *byte == 0) {
        match field.split_first() {
            Some((b'C', text)) => code = String::from_utf8_lossy(text).into_owned(),
            Some((b'M', text)) => words = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    (code, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_when_they_are_whole() {
        let ready = [b'Z', 0, 0, 0, 5, b'I'];
        assert_eq!(message(&ready, 0), Some((b'Z', &b"I"[..], 6)));
        for end in 0..ready.len() {
            assert_eq!(message(&ready[..end], 0), None);
        }
    }

    #[test]
    fn errors_have_code_and_words() {
        let body = b"SERROR\0C40001\0Mcould not serialize\0\0";
        assert_eq!(
            error(body),
            ("40001".to_owned(), "could not serialize".to_owned())
        );
    }

    #[test]
    fn only_the_word_for_false_refuses() {
        assert!(is_false(&[0, 1, 0, 0, 0, 1, b'f']));
        assert!(!is_false(&[0, 1, 0, 0, 0, 1, b't']));
        assert!(!is_false(&[0, 1, 0, 0, 0, 2, b'f', b'f']));
        assert!(!is_false(&[0, 0]));
    }
}
