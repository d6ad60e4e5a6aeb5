//! The client of the reflection service.

use std::collections::BTreeSet;
use std::future::ready;

use futures_util::stream;
use prost::Message;
use prost_types::FileDescriptorProto;

use super::index::Set;
use super::messages::{Answer, Question, ServerReflectionRequest};
use super::server_reflection_client::ServerReflectionClient;
use super::ServerReflectionServerReflectionInfo;
use crate::{Channel, Code, Method, Status};

/// A client of a server's reflection service, for tools: returns the services, and the files that describe them.
#[derive(Clone, Debug)]
pub struct ReflectionClient {
    channel: Channel,
    client: ServerReflectionClient,
}

impl ReflectionClient {
    /// Creates a client on a channel, which may be shared with other clients.
    pub fn new(channel: Channel) -> Self {
        Self {
            client: ServerReflectionClient::new(channel.clone()),
            channel,
        }
    }

    /// Whether the reflection service was in the last directory received from the server.
    pub fn is_there(&self) -> bool {
        self.channel
            .has_method(ServerReflectionServerReflectionInfo::PATH)
    }

    /// Names of the services that are described, sorted.
    ///
    /// # Errors
    /// `Unimplemented` if the server has no reflection service; or the status with which the call ended.
    pub async fn services(&self) -> Result<Vec<String>, Status> {
        match self.ask(Question::ListServices(String::new())).await? {
            Answer::ListServicesResponse(list) => Ok(list
                .service
                .into_iter()
                .map(|service| service.name)
                .collect()),
            _ => Err(other_answer()),
        }
    }

    /// Returns the file that contains the service, method, message, field, enumeration or extension of this full name,
    /// and all its imports, as an encoded `google.protobuf.FileDescriptorSet`.
    ///
    /// # Errors
    /// `NotFound` if the server does not know the name; otherwise as for [`ReflectionClient::services`].
    pub async fn files_of(&self, symbol: &str) -> Result<Vec<u8>, Status> {
        let mut set = Set::default();
        let (mut there, mut wanted) = (BTreeSet::new(), Vec::new());
        let question = Question::FileContainingSymbol(symbol.to_owned());
        self.add_files(question, &mut set, &mut there, &mut wanted)
            .await?;
        // Servers other than ours may omit imports.
        while let Some(import) = wanted.pop() {
            if there.contains(&import) {
                continue;
            }
            let question = Question::FileByFilename(import.clone());
            match self
                .add_files(question, &mut set, &mut there, &mut wanted)
                .await
            {
                Err(status) if status.code() != Code::NotFound => return Err(status),
                // A missing import, if it matters, is reported by the reader of the set.
                _ => there.insert(import),
            };
        }
        Ok(set.encode_to_vec())
    }

    async fn add_files(
        &self,
        question: Question,
        set: &mut Set,
        there: &mut BTreeSet<String>,
        wanted: &mut Vec<String>,
    ) -> Result<(), Status> {
        let Answer::FileDescriptorResponse(files) = self.ask(question).await? else {
            return Err(other_answer());
        };
        for bytes in files.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&bytes[..]).map_err(|error| {
                Status::internal(format!("invalid descriptors from the server: {error}"))
            })?;
            if there.insert(file.name().to_owned()) {
                wanted.extend(file.dependency);
                set.files.push(bytes);
            }
        }
        Ok(())
    }

    async fn ask(&self, question: Question) -> Result<Answer, Status> {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(question),
        };
        let asked = stream::once(ready(request));
        let mut answers = self
            .client
            .server_reflection_info(asked)
            .await?
            .into_inner();
        let answer = answers
            .message()
            .await?
            .and_then(|answer| answer.message_response);
        match answer.ok_or_else(other_answer)? {
            Answer::ErrorResponse(error) => Err(Status::new(
                Code::from(error.error_code),
                error.error_message,
            )),
            answer => Ok(answer),
        }
    }
}

#[cold]
fn other_answer() -> Status {
    Status::internal("the reflection service returned a response of the wrong kind")
}
