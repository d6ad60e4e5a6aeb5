//! The typed service beside the echo service, for `dunlin perf typed`.

use dunlin::{ServeError, ServerBuilder};
use dunlin_service::codec::Prost;
use dunlin_service::{Request, Response, Server, Status};
use prost::Message;

use measure_server::{SyncMeasure, SyncMeasureServer};

/// A message of one field.
#[derive(Clone, PartialEq, Message)]
pub struct Bytes {
    /// Any bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub bytes: Vec<u8>,
}

impl Bytes {
    /// A message of so many bytes as protobuf. The length of the field stands before it, in one byte to four.
    pub fn of_encoded_len(length: usize) -> Self {
        let mut message = Self::default();
        let over = |message: &Self| message.encoded_len().saturating_sub(length);
        message.bytes.resize(length.saturating_sub(2), 7);
        while over(&message) > 0 {
            let shorter = message.bytes.len() - over(&message);
            message.bytes.truncate(shorter);
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
    pub service Measure = "dunlin.Measure" with Prost {
        /// The same message.
        rpc echo as Echo(Bytes) -> Bytes;
    }
}

struct Echo;

impl SyncMeasure for Echo {
    fn echo(&self, request: &Request<Bytes>, reply: &mut Response<Bytes>) -> Result<(), Status> {
        reply
            .get_mut()
            .bytes
            .extend_from_slice(&request.get_ref().bytes);
        Ok(())
    }
}

/// Adds the service.
///
/// # Errors
/// When the server has it already.
pub fn on(server: ServerBuilder) -> Result<ServerBuilder, ServeError> {
    let measure = SyncMeasureServer::inline(Echo);
    Server::builder().add_service(measure).on(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_length_that_was_asked_for() {
        for length in [4, 64, 129, 131, 4096, 1 << 20] {
            assert_eq!(Bytes::of_encoded_len(length).encoded_len(), length);
        }
    }
}
