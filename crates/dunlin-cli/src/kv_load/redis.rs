//! Redis, through its own protocol. Entries to be scanned are members of a sorted set, key and value together, in the
//! order of their bytes.

use std::path::Path;

use super::socket::{line, number, push_number, Parsed, Socket};
use super::{Answer, Engine, FirstError, Request};
use crate::commands::Failure;

/// The sorted set.
const SET: &[u8] = b"index";

/// A connection to Redis.
#[derive(Debug)]
pub struct Redis(Socket);

impl Redis {
    /// Over its unix socket.
    ///
    /// # Errors
    /// When it is not there.
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        Ok(Self(Socket::connect(path)?))
    }

    /// Appends any command, to be sent with the next wait.
    pub fn submit_words(&mut self, words: &[&[u8]], tag: u64) {
        command(&mut self.0.requests, words);
        self.0.add(tag);
    }
}

/// Appends a command.
fn command(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    bytes.push(b'*');
    push_number(bytes, words.len());
    bytes.extend_from_slice(b"\r\n");
    for word in words {
        bytes.push(b'$');
        push_number(bytes, word.len());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// The bytes of a bulk string and where it ends; `Some(None)` where there is none.
fn bulk(bytes: &[u8]) -> Option<(Option<usize>, usize)> {
    let (first, next) = line(bytes)?;
    let length = number(first.get(1..)?)?;
    let Ok(length) = usize::try_from(length) else {
        return Some((None, next));
    };
    let whole = next + length + 2;
    (bytes.len() >= whole).then_some((Some(length), whole))
}

fn parse(bytes: &[u8]) -> Parsed {
    match bytes.first()? {
        b'$' => {
            let (length, next) = bulk(bytes)?;
            Some((length.map_or(Answer::Missing, Answer::Value), next))
        }
        b'+' | b':' => Some((Answer::Stored, line(bytes)?.1)),
        b'*' => {
            let (first, mut at) = line(bytes)?;
            let count = number(&first[1..]).and_then(|count| usize::try_from(count).ok());
            let (count, mut sum) = (count.unwrap_or(0), 0);
            for _ in 0..count {
                let (length, next) = bulk(bytes.get(at..)?)?;
                sum += length.unwrap_or(0);
                at += next;
            }
            Some((Answer::Entries(count, sum), at))
        }
        _ => Some((Answer::Failed, line(bytes)?.1)),
    }
}

impl Engine for Redis {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<bool, Failure> {
        let bytes = &mut self.0.requests;
        match request {
            Request::Get(key) => command(bytes, &[b"GET", key]),
            Request::Put(key, value) => command(bytes, &[b"SET", key, value]),
            Request::Insert(key, value) => {
                command(bytes, &[b"ZADD", SET, b"0", &[key, value].concat()]);
            }
            Request::Scan(key, most) => {
                let first = [b"[", key].concat();
                let most = most.to_string();
                let words: [&[u8]; 8] = [
                    b"ZRANGE",
                    SET,
                    &first,
                    b"+",
                    b"BYLEX",
                    b"LIMIT",
                    b"0",
                    most.as_bytes(),
                ];
                command(bytes, &words);
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
        for (answer, parsed) in [
            (&b"$3\r\nabc\r\n"[..], Answer::Value(3)),
            (b"$-1\r\n", Answer::Missing),
            (b"+OK\r\n", Answer::Stored),
            (b":1\r\n", Answer::Stored),
            (b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n", Answer::Entries(2, 3)),
            (b"*0\r\n", Answer::Entries(0, 0)),
            (b"-ERR no\r\n", Answer::Failed),
        ] {
            assert_eq!(parse(answer), Some((parsed, answer.len())));
            for end in 0..answer.len() {
                assert_eq!(parse(&answer[..end]), None);
            }
        }
    }
}
