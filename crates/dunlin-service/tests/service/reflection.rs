//! The reflection service: what it answers to each kind of question, and calls by name alone.

use std::path::Path;

use dunlin_service::reflection::server_reflection_client::ServerReflectionClient;
use dunlin_service::reflection::{
    service, Answer, ExtensionRequest, Question, ReflectionClient, ReflectionError,
    ServerReflectionRequest, ServerReflectionResponse,
};
use dunlin_service::{health, reflection, Channel, Code, Kind, Request, Response, Server, Status};
use futures_util::stream;
use prost::Message;
use prost_types::field_descriptor_proto::Label;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};

use crate::common::probe_server::{Probe, ProbeServer};
use crate::common::Note;

fn named<T: Default>(set: impl FnOnce(&mut T)) -> T {
    let mut made = T::default();
    set(&mut made);
    made
}

fn message(name: &str) -> DescriptorProto {
    let field = FieldDescriptorProto {
        name: Some("words".into()),
        number: Some(1),
        label: Some(Label::Optional.into()),
        ..FieldDescriptorProto::default()
    };
    named(|message: &mut DescriptorProto| {
        message.name = Some(name.into());
        message.field = vec![field];
    })
}

/// A file with a service, which imports one with its message, an enumeration and an extension, which imports another.
fn set() -> FileDescriptorSet {
    let file = |name: &str, package: &str, dependency: &[&str]| FileDescriptorProto {
        name: Some(name.into()),
        package: Some(package.into()),
        dependency: dependency.iter().map(|&name| name.into()).collect(),
        ..FileDescriptorProto::default()
    };
    let mut service = file("probe.proto", "test", &["note.proto"]);
    service.service = vec![ServiceDescriptorProto {
        name: Some("Probe".into()),
        method: vec![MethodDescriptorProto {
            name: Some("Echo".into()),
            ..MethodDescriptorProto::default()
        }],
        ..ServiceDescriptorProto::default()
    }];
    let mut note = file("note.proto", "test", &["base.proto"]);
    let mut outer = message("Note");
    outer.nested_type = vec![message("Inner")];
    note.message_type = vec![outer];
    note.enum_type = vec![EnumDescriptorProto {
        name: Some("Tone".into()),
        value: vec![EnumValueDescriptorProto {
            name: Some("LOUD".into()),
            ..EnumValueDescriptorProto::default()
        }],
        ..EnumDescriptorProto::default()
    }];
    note.extension = vec![FieldDescriptorProto {
        name: Some("loudness".into()),
        number: Some(100),
        extendee: Some(".base.Base".into()),
        ..FieldDescriptorProto::default()
    }];
    let mut base = file("base.proto", "base", &[]);
    base.message_type = vec![message("Base")];
    FileDescriptorSet {
        file: vec![base, note, service],
    }
}

struct Echo;

#[dunlin_service::async_trait]
impl Probe for Echo {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let trace = request.metadata().get("x-trace").map(str::to_owned);
        let mut response = Response::new(request.into_inner());
        if let Some(trace) = trace {
            response.metadata_mut().insert("x-trace", trace).unwrap();
        }
        Ok(response)
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::data_loss(request.into_inner().words))
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        std::future::pending().await
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

#[tokio::test]
async fn questions_have_answers() {
    let bytes = set().encode_to_vec();
    let server = Server::builder()
        .add_service(ProbeServer::new(Echo))
        // The same files twice are no contradiction.
        .add_service(service(&[&bytes, &bytes]).unwrap())
        .start("dunlin://127.0.0.1:0")
        .unwrap();
    let address = server.address().to_string();
    let client = ServerReflectionClient::connect(&address).await.unwrap();
    let extension = |number| {
        Question::FileContainingExtension(ExtensionRequest {
            containing_type: "base.Base".into(),
            extension_number: number,
        })
    };
    let files: &[&str] = &["note.proto", "base.proto"];
    let symbol = |name: &str| Question::FileContainingSymbol(name.into());
    let with_files = [
        (Question::FileByFilename("base.proto".into()), &files[1..]),
        (Question::FileByFilename("note.proto".into()), files),
        (symbol("test.Note"), files),
        (symbol(".test.Note.Inner"), files),
        (symbol("test.Note.words"), files),
        (symbol("test.Tone"), files),
        (symbol("test.LOUD"), files),
        (symbol("test.loudness"), files),
        (extension(100), files),
        (
            symbol("test.Probe"),
            &["probe.proto", "note.proto", "base.proto"],
        ),
        (
            symbol("test.Probe.Echo"),
            &["probe.proto", "note.proto", "base.proto"],
        ),
    ];
    let without = [
        Question::FileByFilename("other.proto".into()),
        symbol("test"),
        symbol("test.Other"),
        extension(101),
        Question::AllExtensionNumbersOfType("test.Other".into()),
    ];
    let mut questions: Vec<_> = with_files
        .iter()
        .map(|(asked, _)| Some(asked.clone()))
        .collect();
    questions.extend(without.iter().cloned().map(Some));
    questions.extend([
        Some(Question::ListServices(String::new())),
        Some(Question::AllExtensionNumbersOfType("base.Base".into())),
        None,
    ]);
    let asked = questions
        .clone()
        .into_iter()
        .map(|message_request| ServerReflectionRequest {
            host: "here".into(),
            message_request,
        });
    let heard = client.server_reflection_info(stream::iter(asked)).await;
    let mut heard = heard.unwrap().into_inner();
    let mut answers = Vec::new();
    for question in questions {
        let answer = heard.message().await.unwrap().unwrap();
        assert_eq!(answer.valid_host, "here");
        assert_eq!(answer.original_request.unwrap().message_request, question);
        answers.push((question, answer.message_response.unwrap()));
    }
    assert_eq!(heard.message().await.unwrap(), None);

    let mut answers = answers.into_iter();
    for (_, names) in &with_files {
        let Some((question, Answer::FileDescriptorResponse(files))) = answers.next() else {
            panic!("no files");
        };
        let files = files.file_descriptor_proto.iter();
        let files: Vec<_> = files
            .map(|file| FileDescriptorProto::decode(&file[..]).unwrap())
            .collect();
        let found: Vec<&str> = files.iter().map(FileDescriptorProto::name).collect();
        assert_eq!(&found[..], *names, "{question:?}");
        let original = set().file.into_iter().find(|file| file.name() == names[0]);
        assert_eq!(files[0], original.unwrap());
    }
    for _ in &without {
        let Some((question, Answer::ErrorResponse(error))) = answers.next() else {
            panic!("no error");
        };
        assert_eq!(error.error_code, Code::NotFound as i32, "{question:?}");
    }
    let Some((_, Answer::ListServicesResponse(services))) = answers.next() else {
        panic!("no services");
    };
    let names: Vec<&str> = services
        .service
        .iter()
        .map(|service| &service.name[..])
        .collect();
    assert_eq!(names, ["grpc.reflection.v1.ServerReflection", "test.Probe"]);
    let Some((_, Answer::AllExtensionNumbersResponse(numbers))) = answers.next() else {
        panic!("no numbers");
    };
    assert_eq!(numbers.extension_number, [100]);
    let Some((_, Answer::ErrorResponse(error))) = answers.next() else {
        panic!("no error");
    };
    assert_eq!(error.error_code, Code::InvalidArgument as i32);
}

/// The committed descriptors of the services that this crate brings are those of its `.proto` files. With
/// `DUNLIN_BLESS=1` they are written anew.
#[test]
fn own_services_are_what_their_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    for (name, proto, known) in [
        (
            "health",
            "grpc/health/v1/health.proto",
            health::FILE_DESCRIPTOR_SET,
        ),
        (
            "reflection",
            "grpc/reflection/v1/reflection.proto",
            reflection::FILE_DESCRIPTOR_SET,
        ),
    ] {
        let mut compiler = protox::Compiler::new([&folder]).unwrap();
        compiler.open_file(proto).unwrap();
        let bytes = compiler.file_descriptor_set().encode_to_vec();
        if std::env::var_os("DUNLIN_BLESS").is_some() {
            std::fs::write(folder.join(name).with_extension("binpb"), bytes).unwrap();
        } else {
            assert!(
                bytes == known,
                "{proto} was changed: run this test with DUNLIN_BLESS=1"
            );
        }
    }
}

/// A tool calls the health service by what reflection says of it, and fields and numbers are those of the messages.
#[tokio::test]
async fn health_and_reflection_describe_themselves() {
    let (_, health) = health::health_reporter();
    let server = Server::builder()
        .add_service(health)
        .add_service(service(&[health::FILE_DESCRIPTOR_SET]).unwrap())
        .start("dunlin://127.0.0.1:0")
        .unwrap();
    let channel = Channel::connect(&server.address().to_string())
        .await
        .unwrap();
    let client = ReflectionClient::new(channel);
    for (symbol, fields) in [
        ("grpc.health.v1.Health", "service 1; status 1"),
        (
            "grpc.reflection.v1.ServerReflection",
            "host 1, file_by_filename 3, file_containing_symbol 4, file_containing_extension 5, \
             all_extension_numbers_of_type 6, list_services 7; containing_type 1, extension_number 2; valid_host 1, \
             original_request 2, file_descriptor_response 4, all_extension_numbers_response 5, \
             list_services_response 6, error_response 7; file_descriptor_proto 1; base_type_name 1, \
             extension_number 2; service 1; name 1; error_code 1, error_message 2",
        ),
    ] {
        let set = client.files_of(symbol).await.unwrap();
        let file = &FileDescriptorSet::decode(&set[..]).unwrap().file[0];
        let of = |message: &DescriptorProto| {
            let field = |field: &FieldDescriptorProto| format!("{} {}", field.name(), field.number());
            message.field.iter().map(field).collect::<Vec<_>>().join(", ")
        };
        let found: Vec<String> = file.message_type.iter().map(of).collect();
        assert_eq!(found.join("; "), fields, "{symbol}");
    }
}

#[test]
fn descriptors_that_are_none_or_contradict_each_other_are_refused() {
    let malformed = service(&[b"no descriptors"]).unwrap_err();
    assert!(
        matches!(malformed, ReflectionError::Malformed(_)),
        "{malformed}"
    );
    let mut other = set();
    other.file[0].package = Some("another".into());
    let sets = [set().encode_to_vec(), other.encode_to_vec()];
    let twice = service(&[&sets[0], &sets[1]]).unwrap_err();
    assert_eq!(twice, ReflectionError::TwoFiles("base.proto".into()));
}

#[tokio::test]
async fn methods_are_called_by_name_with_bytes() {
    let server = Server::builder()
        .add_service(ProbeServer::new(Echo))
        .add_service(service(&[]).unwrap())
        .start("dunlin://127.0.0.1:0")
        .unwrap();
    let channel = Channel::connect(&server.address().to_string())
        .await
        .unwrap();
    let methods = channel.methods();
    assert_eq!(methods.len(), 5);
    assert!(methods.contains(&("/test.Probe/Echo".into(), Kind::Unary)));

    let bytes = Note::new("hello").encode_to_vec();
    let mut request = Request::new(bytes.clone());
    request.metadata_mut().insert("x-trace", "seven").unwrap();
    let answer = channel
        .unary_bytes("/test.Probe/Echo", request)
        .await
        .unwrap();
    assert_eq!(answer.metadata().get("x-trace"), Some("seven"));
    assert_eq!(answer.into_inner(), bytes);
    let failed = channel
        .unary_bytes("/test.Probe/Fail", Request::new(bytes.clone()))
        .await;
    assert_eq!(failed.unwrap_err().code(), Code::DataLoss);
    let mut hurried = Request::new(bytes);
    hurried.set_timeout(std::time::Duration::from_millis(5));
    let late = channel.unary_bytes("/test.Probe/Sleep", hurried).await;
    assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
    for (path, words) in [
        ("/test.Probe/Other", "no method"),
        ("/other.Probe/Echo", "no service"),
        (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "is Bidirectional at the server",
        ),
    ] {
        let refused = channel
            .unary_bytes(path, Request::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
    }
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let question = ServerReflectionRequest {
        host: "here".into(),
        message_request: Some(Question::ListServices(String::new())),
    };
    let questions = vec![question.encode_to_vec(); 3];
    let both = Kind::Bidirectional;
    let request = Request::new(stream::iter(questions));
    let heard = channel.streaming_bytes(path, both, request).await;
    let mut heard = heard.unwrap().into_inner();
    for _ in 0..3 {
        let answer = heard.message().await.unwrap().expect("an answer");
        let answer = ServerReflectionResponse::decode(&answer[..]).unwrap();
        assert_eq!(answer.original_request, Some(question.clone()));
    }
    assert_eq!(heard.message().await.unwrap(), None);
    let nothing = || Request::new(stream::empty());
    for (path, kind, words) in [
        (path, Kind::ServerStreaming, "but ServerStreaming here"),
        ("/test.Probe/Echo", both, "is Unary at the server"),
        ("/other.Probe/Chat", both, "no service"),
    ] {
        let refused = channel.streaming_bytes(path, kind, nothing()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
    }
    let blocking = tokio::task::spawn_blocking(move || {
        let bytes = Note::new("again").encode_to_vec();
        let answer = channel.unary_bytes_blocking("/test.Probe/Echo", Request::new(bytes.clone()));
        assert_eq!(answer.unwrap().into_inner(), bytes);
    });
    blocking.await.unwrap();
}
