//! The typed service beside the echo service, for `dunlin perf typed` and `dunlin call`.

use dunlin::{ServeError, ServerBuilder};
use dunlin_service::codec::Protobuf;
use dunlin_service::protobuf::{self, Message};
use dunlin_service::{reflection, Request, Response, Server, Status};
use prost::Message as _;
use protox::file::{File, FileResolver};

use measure_server::{SyncMeasure, SyncMeasureServer};

/// A message of one field.
#[derive(Clone, PartialEq, prost::Message, protobuf::Message)]
pub struct Text {
    /// Any words.
    #[prost(string, tag = "1")]
    pub words: String,
}

impl Text {
    /// A message of so many bytes as protobuf. The length of the field stands before it, in one byte to four.
    pub fn of_encoded_len(length: usize) -> Self {
        let mut message = Self::default();
        let over = |message: &Self| message.encoded_len().saturating_sub(length);
        message.words = "w".repeat(length.saturating_sub(2));
        while over(&message) > 0 {
            let shorter = message.words.len() - over(&message);
            message.words.truncate(shorter);
        }
        message
    }

    /// Bytes of it as protobuf.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        Message::encoded_len(self)
    }
}

dunlin_service::service! {
    /// For measuring.
    pub service Measure = "dunlin.Measure" with Protobuf {
        /// The same message.
        rpc echo as Echo(Text) -> Text;
    }
}

struct Echo;

impl SyncMeasure for Echo {
    fn echo(&self, request: &mut Request<Text>, reply: &mut Response<Text>) -> Result<(), Status> {
        std::mem::swap(reply.get_mut(), request.get_mut());
        Ok(())
    }
}

/// Adds the service.
///
/// # Errors
/// When the server has it already.
pub fn on(server: ServerBuilder) -> Result<ServerBuilder, ServeError> {
    let measure = SyncMeasureServer::inline(Echo);
    let wrong = |error: &dyn std::fmt::Display| ServeError::Setting(error.to_string());
    let descriptors = descriptors().map_err(|error| wrong(&error))?;
    let reflection = reflection::service(&[&descriptors]).map_err(|error| wrong(&error))?;
    Server::builder()
        .add_service(measure)
        .add_service(reflection)
        .on(server)
}

/// The service's file, which comes with the program.
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
            assert_eq!(Text::of_encoded_len(length).encoded_len(), length);
        }
    }
}
