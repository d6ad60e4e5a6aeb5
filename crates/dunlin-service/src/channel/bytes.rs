//! Unary calls of methods that are known by name alone, for tools and proxies that learn of them when they run.

use std::time::Instant;

use dunlin::{thread, CallError, HandlerId, Reply};

use super::call::outgoing_header;
use super::{is_young, no_such_method, Channel};
use crate::method::{check, Kind};
use crate::wire::{self, Answered, Header};
use crate::{MetadataMap, Request, Response, Status};

/// A request on its way.
struct Outgoing {
    path: String,
    message: Vec<u8>,
    header: Option<Header>,
    until: Option<Instant>,
    is_again: bool,
}

impl Outgoing {
    fn new(path: &str, mut request: Request<Vec<u8>>) -> Result<Self, Status> {
        let (header, until) = outgoing_header(&mut request)?;
        Ok(Self {
            path: path.to_owned(),
            message: request.into_inner(),
            header,
            until,
            is_again: false,
        })
    }

    /// What crosses.
    fn bytes(&mut self) -> Vec<u8> {
        if let (Some(until), Some(header)) = (self.until, &mut self.header) {
            header.timeout = Some(until.saturating_duration_since(thread::now()));
        }
        let mut bytes = Vec::with_capacity(wire::WORD_BYTES + self.message.len());
        wire::begin_request(&mut bytes, check(&self.path), self.header.as_ref());
        bytes.extend_from_slice(&self.message);
        bytes
    }

    /// `None`: the number is another method's.
    fn take(
        &mut self,
        answer: Result<Reply, CallError>,
    ) -> Result<Option<Response<Vec<u8>>>, Status> {
        let answer = match answer {
            Err(CallError::UnknownHandler(_)) if !self.is_again => None,
            answer => Some(answer?),
        };
        let read = match &answer {
            None => Answered::OtherMethod,
            Some(answer) => wire::read_answer(answer)?,
        };
        let (metadata, message) = match read {
            Answered::Message(message) => (MetadataMap::new(), message),
            Answered::With(metadata, message) => (metadata, message),
            Answered::Status(status) => return Err(status),
            Answered::OtherMethod if !self.is_again => {
                self.is_again = true;
                return Ok(None);
            }
            Answered::OtherMethod => {
                return Err(Status::internal(
                    "the server's directory does not fit its methods",
                ))
            }
        };
        Ok(Some(Response::with_metadata(message.to_vec(), metadata)))
    }
}

impl Channel {
    /// Names and kinds of all methods that the server had when it was asked last, in their order.
    pub fn methods(&self) -> Vec<(String, Kind)> {
        let known = self.known();
        let methods = known.directory.methods.iter();
        let mut methods: Vec<_> = methods
            .map(|(path, entry)| (path.clone(), entry.kind))
            .collect();
        methods.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        methods
    }

    /// The number of a unary method; `Ok(None)`: the server may have it by now.
    fn number_of(&self, path: &str) -> Result<Option<HandlerId>, Status> {
        let known = self.known();
        match known.directory.methods.get(path) {
            Some(entry) if entry.kind == Kind::Unary => Ok(Some(entry.number)),
            Some(entry) => Err(Status::unimplemented(format!(
                "{path} is {:?} at the server: it has no unary calls",
                entry.kind
            ))),
            None if is_young(known.since) => Err(no_such_method(path, &known.directory)),
            None => Ok(None),
        }
    }

    /// A unary call of a method by its name (`/helloworld.Greeter/SayHello`), whose messages are bytes as the method's
    /// codec makes them.
    ///
    /// # Errors
    /// The status with which it ended.
    pub async fn unary_bytes(
        &self,
        path: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, Status> {
        let mut outgoing = Outgoing::new(path, request)?;
        loop {
            let Some(number) = self.number_of(path)? else {
                self.renew(self.ask().await)?;
                continue;
            };
            let bytes = outgoing.bytes();
            let timeout = outgoing.header.as_ref().and_then(|header| header.timeout);
            let client = match timeout {
                Some(timeout) => &self.client().within(timeout),
                None => self.client(),
            };
            let answer = client.ready().await?.call(number, &bytes).await;
            if let Some(response) = outgoing.take(answer)? {
                return Ok(response);
            }
            self.renew(self.ask().await)?;
        }
    }

    /// As [`Channel::unary_bytes`]; blocks.
    ///
    /// # Errors
    /// As for [`Channel::unary_bytes`].
    pub fn unary_bytes_blocking(
        &self,
        path: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, Status> {
        let mut outgoing = Outgoing::new(path, request)?;
        loop {
            let Some(number) = self.number_of(path)? else {
                self.renew(self.ask_blocking())?;
                continue;
            };
            let bytes = outgoing.bytes();
            let timeout = outgoing.header.as_ref().and_then(|header| header.timeout);
            let answer = match timeout {
                Some(timeout) => self.client().call_within(timeout, number, &bytes),
                None => self.client().call(number, &bytes),
            };
            if let Some(response) = outgoing.take(answer)? {
                return Ok(response);
            }
            self.renew(self.ask_blocking())?;
        }
    }
}
