//! The messages of `grpc.reflection.v1`.

/// A question.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerReflectionRequest {
    /// The server's name; it is returned in the answer.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The question.
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    pub message_request: Option<Question>,
}

/// A question.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Question {
    /// The file of this name, and its imports.
    #[prost(string, tag = "3")]
    FileByFilename(String),
    /// The file that contains the service, method, message, field, enumeration or extension of this full name, and its
    /// imports.
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    /// The file that contains an extension, and its imports.
    #[prost(message, tag = "5")]
    FileContainingExtension(ExtensionRequest),
    /// The numbers of all extensions of a message.
    #[prost(string, tag = "6")]
    AllExtensionNumbersOfType(String),
    /// All services; the text is ignored.
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// An extension.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExtensionRequest {
    /// The full name of the extended message.
    #[prost(string, tag = "1")]
    pub containing_type: String,
    /// Its number.
    #[prost(int32, tag = "2")]
    pub extension_number: i32,
}

/// An answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerReflectionResponse {
    /// The host of the question.
    #[prost(string, tag = "1")]
    pub valid_host: String,
    /// The question.
    #[prost(message, optional, tag = "2")]
    pub original_request: Option<ServerReflectionRequest>,
    /// The answer.
    #[prost(oneof = "Answer", tags = "4, 5, 6, 7")]
    pub message_response: Option<Answer>,
}

/// An answer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Answer {
    /// Files.
    #[prost(message, tag = "4")]
    FileDescriptorResponse(FileDescriptorResponse),
    /// Numbers of extensions.
    #[prost(message, tag = "5")]
    AllExtensionNumbersResponse(ExtensionNumberResponse),
    /// Services.
    #[prost(message, tag = "6")]
    ListServicesResponse(ListServiceResponse),
    /// An error.
    #[prost(message, tag = "7")]
    ErrorResponse(ErrorResponse),
}

/// Files, each a `google.protobuf.FileDescriptorProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileDescriptorResponse {
    /// The requested file, followed by its imports.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub file_descriptor_proto: Vec<Vec<u8>>,
}

/// Numbers of all extensions of a message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExtensionNumberResponse {
    /// The full name of the message.
    #[prost(string, tag = "1")]
    pub base_type_name: String,
    /// The numbers of its extensions.
    #[prost(int32, repeated, tag = "2")]
    pub extension_number: Vec<i32>,
}

/// All services.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListServiceResponse {
    /// The services.
    #[prost(message, repeated, tag = "1")]
    pub service: Vec<ServiceResponse>,
}

/// A service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServiceResponse {
    /// Its full name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The reason why there is no answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorResponse {
    /// A code of [`crate::Code`].
    #[prost(int32, tag = "1")]
    pub error_code: i32,
    /// A description of the error.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
