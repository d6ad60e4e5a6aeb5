//! memcached, through its meta commands, which are its shortest.

use std::path::Path;

use super::socket::{line, number, push_number, Parsed, Socket};
use super::{Answer, Engine, FirstError, Request};
use crate::commands::Failure;

/// A connection to memcached.
#[derive(Debug)]
pub struct Memcached(Socket);

impl Memcached {
    /// Over its unix socket.
    ///
    /// # Errors
    /// When it is not there.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Socket::connect(path)?))
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    let (first, next) = line(bytes)?;
    match first {
        [b'H', b'D', ..] => Some((Answer::Stored, next)),
        [b'E', b'N', ..] => Some((Answer::Missing, next)),
        [b'V', b'A', b' ', length @ ..] => {
            let Some(length) = number(length).and_then(|length| usize::try_from(length).ok())
            else {
                return Some((Answer::Failed, next));
            };
            let whole = next + length + 2;
            (bytes.len() >= whole).then_some((Answer::Value(length), whole))
        }
        _ => Some((Answer::Failed, next)),
    }
}

impl Engine for Memcached {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<bool, Failure> {
        let bytes = &mut self.0.requests;
        match request {
            Request::Get(key) => {
                bytes.extend_from_slice(b"mg ");
                bytes.extend_from_slice(key);
                bytes.extend_from_slice(b" v\r\n");
            }
            Request::Put(key, value) => {
                bytes.extend_from_slice(b"ms ");
                bytes.extend_from_slice(key);
                bytes.push(b' ');
                push_number(bytes, value.len());
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(value);
                bytes.extend_from_slice(b"\r\n");
            }
            Request::Insert(..) | Request::Scan(..) => {
                return Err(Failure::new("memcached does not support scans"));
            }
        }
        self.0.add(tag);
        Ok(true)
    }

    fn outstanding(&self) -> usize {
        self.0.outstanding()
    }

    fn take_first_error(&mut self) -> Option<FirstError> {
        self.0.first_error.take()
    }

    fn wait(&mut self, take: &mut impl FnMut(u64, Answer)) -> Result<(), Failure> {
        self.0.wait(parse, take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_when_they_are_whole() {
        let answer = b"VA 3\r\nabc\r\n";
        assert_eq!(parse(answer), Some((Answer::Value(3), answer.len())));
        for end in 0..answer.len() {
            assert_eq!(parse(&answer[..end]), None);
        }
        assert_eq!(parse(b"HD\r\nEN\r\n"), Some((Answer::Stored, 4)));
        assert_eq!(parse(b"EN\r\n"), Some((Answer::Missing, 4)));
        assert_eq!(parse(b"CLIENT_ERROR bad\r\n"), Some((Answer::Failed, 18)));
    }
}
