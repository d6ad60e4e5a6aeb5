//! The typed service that runs with the echo service, for `dunlin perf typed` and `dunlin call`.

use dunlin::{ServeError, ServerBuilder};
use dunlin_service::codec::Protobuf;
use dunlin_service::protobuf::{self, Message};
use dunlin_service::{reflection, Reply, Request, RequestView, Response, Sent, Server, Status};
use prost::Message as _;
use protox::file::{File, FileResolver};

use measure_owned_server::{SyncMeasureOwned, SyncMeasureOwnedServer};
use measure_server::{ViewMeasure, ViewMeasureServer};

/// A message of one field of bytes.
#[derive(Clone, PartialEq, prost::Message, protobuf::Message)]
#[protobuf(view)]
pub struct Payload {
    /// Any.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
}

/// A message of one field of text.
#[derive(Clone, PartialEq, prost::Message, protobuf::Message)]
#[protobuf(view)]
pub struct Text {
    /// Any words.
    #[prost(string, tag = "1")]
    pub words: String,
}

/// A message that can be made with any length.
pub trait OfLength: Message {
    /// A message whose only field has this many bytes.
    fn of_field_len(length: usize) -> Self;

    /// A message whose protobuf encoding has this many bytes. The field is preceded by its length, in one to four
    /// bytes.
    fn of_encoded_len(length: usize) -> Self {
        let mut field = length.saturating_sub(2);
        loop {
            let message = Self::of_field_len(field);
            match message.encoded_len().saturating_sub(length) {
                0 => return message,
                over => field -= over,
            }
        }
    }
}

impl OfLength for Payload {
    fn of_field_len(length: usize) -> Self {
        Self {
            body: vec![b'b'; length],
        }
    }
}

impl OfLength for Text {
    fn of_field_len(length: usize) -> Self {
        Self {
            words: "w".repeat(length),
        }
    }
}

dunlin_service::service! {
    /// For measuring.
    pub service Measure = "dunlin.Measure" with Protobuf {
        /// The same message.
        rpc echo as Echo(Text) -> Text;
        /// The same message.
        rpc echo_bytes as EchoBytes(Payload) -> Payload;
    }
}

dunlin_service::service! {
    /// For measuring messages that have memory of their own.
    pub service MeasureOwned = "dunlin.MeasureOwned" with Protobuf {
        /// The same message.
        rpc echo as Echo(Text) -> Text;
        /// The same message.
        rpc echo_bytes as EchoBytes(Payload) -> Payload;
    }
}

struct Echo;

impl ViewMeasure for Echo {
    #[inline]
    fn echo(
        &self,
        request: RequestView<'_, MeasureEcho>,
        reply: Reply<'_, MeasureEcho>,
    ) -> Result<Sent, Status> {
        Ok(reply.send(&request.view()?))
    }

    #[inline]
    fn echo_bytes(
        &self,
        request: RequestView<'_, MeasureEchoBytes>,
        reply: Reply<'_, MeasureEchoBytes>,
    ) -> Result<Sent, Status> {
        Ok(reply.send(&request.view()?))
    }
}

impl SyncMeasureOwned for Echo {
    fn echo(&self, request: &mut Request<Text>, reply: &mut Response<Text>) -> Result<(), Status> {
        std::mem::swap(reply.get_mut(), request.get_mut());
        Ok(())
    }

    fn echo_bytes(
        &self,
        request: &mut Request<Payload>,
        reply: &mut Response<Payload>,
    ) -> Result<(), Status> {
        std::mem::swap(reply.get_mut(), request.get_mut());
        Ok(())
    }
}

/// Adds the service.
///
/// # Errors
/// When the server has it already.
pub fn on(server: ServerBuilder) -> Result<ServerBuilder, ServeError> {
    let wrong = |error: &dyn std::fmt::Display| ServeError::Setting(error.to_string());
    let descriptors = descriptors().map_err(|error| wrong(&error))?;
    let reflection = reflection::service(&[&descriptors]).map_err(|error| wrong(&error))?;
    Server::builder()
        .add_service(ViewMeasureServer::inline(Echo))
        .add_service(SyncMeasureOwnedServer::inline(Echo))
        .add_service(reflection)
        .on(server)
}

/// The service's `.proto` file, embedded in the program.
struct Own;

const FILE: &str = "measure.proto";

impl FileResolver for Own {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            FILE => File::from_source(name, include_str!("measure.proto")),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn descriptors() -> Result<Vec<u8>, protox::Error> {
    let mut compiler = protox::Compiler::with_file_resolver(Own);
    compiler.include_imports(true).open_file(FILE)?;
    Ok(compiler.file_descriptor_set().encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_length_that_was_asked_for() {
        for length in [4, 64, 129, 131, 4096, 1 << 20] {
            assert_eq!(Message::encoded_len(&Text::of_encoded_len(length)), length);
            assert_eq!(
                Message::encoded_len(&Payload::of_encoded_len(length)),
                length
            );
        }
    }
}
