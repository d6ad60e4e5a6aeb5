//! gRPC's reflection service (`grpc.reflection.v1.ServerReflection`): a server describes its services with their
//! methods and messages, so that tools can call them (`dunlin call`).
//!
//! The descriptions are descriptors of `.proto` files, which `dunlin-build` generates next to the code:
//!
//! ```ignore
//! pub mod helloworld {
//!     dunlin_service::include_proto!("helloworld");
//! }
//!
//! let reflection = dunlin_service::reflection::service(&[helloworld::FILE_DESCRIPTOR_SET])?;
//! Server::builder().add_service(GreeterServer::new(MyGreeter)).add_service(reflection)
//! ```

mod client;
mod index;
mod messages;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{BoxStream, StreamExt};

use crate::codec::Prost;
use crate::{Code, Request, Response, Status, Streaming};
use index::Index;

pub use client::ReflectionClient;

pub use messages::{
    Answer, ErrorResponse, ExtensionNumberResponse, ExtensionRequest, FileDescriptorResponse,
    ListServiceResponse, Question, ServerReflectionRequest, ServerReflectionResponse,
    ServiceResponse,
};

/// The descriptors of the service itself: the file `proto/grpc/reflection/v1/reflection.proto`, compiled.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../../proto/reflection.binpb");

/// The descriptors cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReflectionError {
    /// The bytes are not descriptors.
    #[error("not a google.protobuf.FileDescriptorSet: {0}")]
    Malformed(String),
    /// Two sets contain different files of the same name.
    #[error("two descriptor sets contain different files named {0}: compile both with the same includes")]
    TwoFiles(String),
}

crate::service! {
    /// Describes a server's services.
    pub service ServerReflection = "grpc.reflection.v1.ServerReflection" with Prost {
        /// Answers each question.
        rpc server_reflection_info as ServerReflectionInfo(stream ServerReflectionRequest)
            -> stream ServerReflectionResponse;
    }
}

/// The implementation of the service. Created by [`service()`].
#[derive(Clone)]
pub struct Reflection(Arc<Index>);

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reflection").field(&self.0.services).finish()
    }
}

/// Creates the service for these descriptor sets, each the `FILE_DESCRIPTOR_SET` of a package, or the output of
/// `protoc --descriptor_set_out --include_imports`. It also describes itself.
///
/// # Errors
/// If one is not a descriptor set, or two contradict each other.
pub fn service(
    sets: &[&[u8]],
) -> Result<server_reflection_server::ServerReflectionServer<Reflection>, ReflectionError> {
    let mut index = Index::default();
    for set in sets {
        index.add(set)?;
    }
    index.add_unless_known(FILE_DESCRIPTOR_SET)?;
    let reflection = Reflection(Arc::new(index));
    Ok(server_reflection_server::ServerReflectionServer::new(
        reflection,
    ))
}

impl Index {
    fn answer(&self, question: Option<&Question>) -> Result<Answer, Status> {
        let files = |file_descriptor_proto| {
            Answer::FileDescriptorResponse(FileDescriptorResponse {
                file_descriptor_proto,
            })
        };
        match question {
            Some(Question::ListServices(_)) => {
                let named = |name: &String| ServiceResponse { name: name.clone() };
                let service = self.services.iter().map(named).collect();
                Ok(Answer::ListServicesResponse(ListServiceResponse {
                    service,
                }))
            }
            Some(Question::FileByFilename(name)) => match self.file(name) {
                Some(found) => Ok(files(found)),
                None => Err(Status::not_found(format!("no file '{name}'"))),
            },
            Some(Question::FileContainingSymbol(symbol)) => match self.file_of(symbol) {
                Some(found) => Ok(files(found)),
                None => Err(Status::not_found(format!("no symbol '{symbol}'"))),
            },
            Some(Question::FileContainingExtension(asked)) => {
                let (of, number) = (&asked.containing_type, asked.extension_number);
                let found = self.file_of_extension(of, number);
                found.map(files).ok_or_else(|| {
                    Status::not_found(format!("no extension {number} of the message '{of}'"))
                })
            }
            Some(Question::AllExtensionNumbersOfType(of)) => match self.extensions(of) {
                Some(extension_number) => Ok(Answer::AllExtensionNumbersResponse(
                    ExtensionNumberResponse {
                        base_type_name: of.clone(),
                        extension_number,
                    },
                )),
                None => Err(Status::not_found(format!("no message '{of}'"))),
            },
            None => Err(Status::invalid_argument("empty reflection request")),
        }
    }
}

#[async_trait::async_trait]
impl server_reflection_server::ServerReflection for Reflection {
    type ServerReflectionInfoStream = BoxStream<'static, Result<ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let index = Arc::clone(&self.0);
        let answer = move |asked: Result<ServerReflectionRequest, Status>| {
            let asked = asked?;
            let answer = index.answer(asked.message_request.as_ref());
            let answer = answer.unwrap_or_else(|status| {
                let code: Code = status.code();
                Answer::ErrorResponse(ErrorResponse {
                    error_code: code as i32,
                    error_message: status.message().to_owned(),
                })
            });
            Ok(ServerReflectionResponse {
                valid_host: asked.host.clone(),
                original_request: Some(asked),
                message_response: Some(answer),
            })
        };
        Ok(Response::new(request.into_inner().map(answer).boxed()))
    }
}
