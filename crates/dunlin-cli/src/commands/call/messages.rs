//! Messages as JSON: requests from the command line or standard input, responses to standard output.

use std::ffi::OsStr;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use futures_channel::{mpsc, oneshot};
use futures_util::sink::SinkExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use pollster::block_on;
use prost::Message;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor};
use serde_json::de::IoRead;
use serde_json::{StreamDeserializer, Value};
use serde_path_to_error::{Path, Segment, Track};

use crate::commands::Failure;

/// Maximum ratio of the length of JSON to that of its message: text whose characters are all escaped.
const JSON_FACTOR: usize = 6;
/// Number of messages read ahead from standard input.
const READ_AHEAD: usize = 16;

/// JSON values one after the other, each no longer than a message may be.
struct Limited {
    inner: Box<dyn Read + Send>,
    left: Arc<AtomicUsize>,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::other(
                "longer than the server's limit for messages",
            ));
        }
        let most = buffer.len().min(left);
        let read = self.inner.read(&mut buffer[..most])?;
        self.left.store(left - read, Ordering::Relaxed);
        Ok(read)
    }
}

/// The requests of a call.
pub(super) struct Input {
    values: StreamDeserializer<'static, IoRead<BufReader<Limited>>, Value>,
    left: Arc<AtomicUsize>,
    longest: usize,
    message: MessageDescriptor,
    is_live: bool,
}

/// Reports invalid standard input, together with the sending end of the request stream: as long as that is held, the
/// server does not take the requests sent so far for all of them.
pub(super) type Broken = oneshot::Receiver<(Failure, Requests)>;

/// The sending end of the request stream.
pub(super) type Requests = mpsc::Sender<Vec<u8>>;

/// A stream of requests.
pub(super) struct Outgoing {
    pub(super) messages: BoxStream<'static, Vec<u8>>,
    pub(super) broken: Option<Broken>,
}

impl Input {
    /// The requests in an argument; `-` is standard input. A message has at most `longest` bytes.
    pub(super) fn new(argument: &OsStr, message: MessageDescriptor, longest: usize) -> Self {
        let is_live = argument == "-";
        let inner: Box<dyn Read + Send> = match is_live {
            true => Box::new(io::stdin()),
            false => Box::new(Cursor::new(argument.as_bytes().to_vec())),
        };
        let longest = longest.saturating_mul(JSON_FACTOR);
        let left = Arc::new(AtomicUsize::new(longest));
        let limited = Limited {
            inner,
            left: Arc::clone(&left),
        };
        Self {
            values: serde_json::Deserializer::from_reader(BufReader::new(limited)).into_iter(),
            left,
            longest,
            message,
            is_live,
        }
    }

    /// The next message, encoded.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.left.store(self.longest, Ordering::Relaxed);
        match self.values.next() {
            None => Ok(None),
            Some(Ok(value)) => from_json(&self.message, value).map(Some),
            Some(Err(error)) if error.is_io() => {
                Err(Failure::new(format!("cannot read the request: {error}")))
            }
            Some(Err(error)) => Err(Failure::usage(format!(
                "the request is not valid JSON: {error}"
            ))),
        }
    }

    /// The only message; if there is none, an empty one.
    pub(super) fn only(mut self) -> Result<Vec<u8>, Failure> {
        let message = self.next()?.unwrap_or_default();
        match self.next()? {
            None => Ok(message),
            Some(_) => Err(Failure::usage(
                "the method takes one request, but there are more",
            )),
        }
    }

    /// The only message, as a stream.
    pub(super) fn one(self) -> Result<Outgoing, Failure> {
        let message = self.only()?;
        Ok(Outgoing {
            messages: stream::iter([message]).boxed(),
            broken: None,
        })
    }

    /// All messages; those of standard input as they arrive.
    pub(super) fn many(mut self) -> Result<Outgoing, Failure> {
        if !self.is_live {
            let mut all = Vec::new();
            while let Some(message) = self.next()? {
                all.push(message);
            }
            return Ok(Outgoing {
                messages: stream::iter(all).boxed(),
                broken: None,
            });
        }
        let (mut sender, messages) = mpsc::channel(READ_AHEAD);
        let (break_off, broken) = oneshot::channel();
        let read = move || loop {
            match self.next() {
                Ok(None) => return,
                Ok(Some(message)) => {
                    // The call is over.
                    if block_on(sender.send(message)).is_err() {
                        return;
                    }
                }
                Err(failure) => {
                    let _ = break_off.send((failure, sender));
                    return;
                }
            }
        };
        let named = std::thread::Builder::new().name("requests".into());
        named.spawn(read)?;
        Ok(Outgoing {
            messages: messages.boxed(),
            broken: Some(broken),
        })
    }
}

/// Encodes a message from JSON.
fn from_json(message: &MessageDescriptor, value: Value) -> Result<Vec<u8>, Failure> {
    let mut track = Track::new();
    let read = serde_path_to_error::Deserializer::new(value, &mut track);
    match DynamicMessage::deserialize(message.clone(), read) {
        Ok(message) => Ok(message.encode_to_vec()),
        Err(error) => Err(wrong_field(message, &track.path(), &error)),
    }
}

#[cold]
fn wrong_field(message: &MessageDescriptor, path: &Path, error: &serde_json::Error) -> Failure {
    let words = match path.iter().next() {
        None => format!("{error} in {}", message.full_name()),
        Some(_) => format!("field '{path}' of {}: {error}", message.full_name()),
    };
    // The message in which the field is, or is not.
    let mut inner = message.clone();
    for segment in path.iter() {
        let Segment::Map { key } = segment else {
            continue;
        };
        let field = inner.get_field_by_json_name(key);
        match field
            .or_else(|| inner.get_field_by_name(key))
            .map(|field| field.kind())
        {
            Some(Kind::Message(next)) => inner = next,
            _ => break,
        }
    }
    let names: Vec<String> = inner
        .fields()
        .map(|field| field.json_name().to_owned())
        .collect();
    let failure = Failure::usage(words);
    match names.is_empty() {
        true => failure.help(format!("{} has no fields", inner.full_name())),
        false => failure.help(format!("{} has {}", inner.full_name(), names.join(", "))),
    }
}

/// Formats a message as JSON, pretty-printed or on one line.
pub(super) fn to_json(
    message: MessageDescriptor,
    bytes: &[u8],
    pretty: bool,
) -> Result<String, Failure> {
    let message = DynamicMessage::decode(message, bytes).map_err(|error| {
        Failure::new(format!(
            "the response does not match its description: {error}"
        ))
    })?;
    match pretty {
        true => serde_json::to_string_pretty(&message),
        false => serde_json::to_string(&message),
    }
    .map_err(Failure::new)
}
