//! `dunlin call` by the names of methods: lists, descriptions, JSON both ways, streams, and what it says when something
//! is wrong. The server is this process, the command another.
#![allow(missing_docs, unreachable_pub)]

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{dunlin, dunlin_with_input, failure, object, Folder, Serving, DUNLIN};
use dunlin::RunningServer;
use dunlin_service::codec::Prost;
use dunlin_service::{reflection, Code, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};
use notes_server::{Notes, NotesServer};
use prost::Message;
use serde_json::{json, Value};

const PROTO: &str = include_str!("notes.proto");

#[derive(Clone, PartialEq, prost::Message)]
pub struct Author {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Note {
    #[prost(string, tag = "1")]
    words: String,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(message, optional, tag = "3")]
    author: Option<Author>,
    #[prost(string, repeated, tag = "4")]
    tags: Vec<String>,
    #[prost(int32, tag = "5")]
    tone: i32,
    #[prost(map = "string, int32", tag = "6")]
    counts: HashMap<String, i32>,
    #[prost(oneof = "Seen", tags = "7, 8")]
    seen: Option<Seen>,
    #[prost(double, optional, tag = "9")]
    weight: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Seen {
    #[prost(string, tag = "7")]
    By(String),
    #[prost(bool, tag = "8")]
    Never(bool),
}

dunlin_service::service! {
    /// All kinds of methods.
    pub service Notes = "test.Notes" with Prost {
        /// The same.
        rpc echo as Echo(Note) -> Note;
        /// Metadata and deadline of the request.
        rpc look as Look(Note) -> Note;
        /// Fails with this number and these words.
        rpc fail as Fail(Note) -> Note;
        /// So many notes.
        rpc count as Count(Note) -> stream Note;
        /// The sum of the numbers.
        rpc sum as Sum(stream Note) -> Note;
        /// All of them, when they come.
        rpc chat as Chat(stream Note) -> stream Note;
    }
}

#[derive(Clone, Default)]
struct Board {
    /// Sums that came to their end.
    sums: Arc<AtomicUsize>,
}

fn note(words: impl Into<String>, number: u64) -> Note {
    Note {
        words: words.into(),
        number,
        ..Note::default()
    }
}

#[dunlin_service::async_trait]
impl Notes for Board {
    type CountStream = BoxStream<'static, Result<Note, Status>>;
    type ChatStream = BoxStream<'static, Result<Note, Status>>;

    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let mut response = Response::new(request.into_inner());
        response.metadata_mut().insert("x-board", "wood").unwrap();
        Ok(response)
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let user = request.metadata().get("x-user").unwrap_or("nobody");
        Ok(Response::new(note(
            user,
            request.deadline().is_some().into(),
        )))
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let note = request.into_inner();
        Err(Status::new(
            Code::from_number(note.number as u32),
            note.words,
        ))
    }

    async fn count(&self, request: Request<Note>) -> Result<Response<Self::CountStream>, Status> {
        let asked = request.into_inner();
        let notes = (1..=asked.number).map(|number| Ok(note("", number)));
        let end = (!asked.words.is_empty()).then(|| Err(Status::aborted(asked.words)));
        Ok(Response::new(stream::iter(notes.chain(end)).boxed()))
    }

    async fn sum(&self, request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        let mut notes = request.into_inner();
        let mut sum = 0;
        while let Some(note) = notes.message().await? {
            sum += note.number;
        }
        self.sums.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(note("", sum)))
    }

    async fn chat(
        &self,
        request: Request<Streaming<Note>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Ok(Response::new(request.into_inner().boxed()))
    }
}

fn descriptors() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let set = protox::compile(["notes.proto"], [folder]).expect("a file without mistakes");
    set.encode_to_vec()
}

/// The service, which says what it is.
fn serve(board: &Board) -> (RunningServer, String) {
    let reflection = reflection::service(&[&descriptors()]).unwrap();
    let server = Server::builder()
        .add_service(NotesServer::new(board.clone()))
        .add_service(reflection);
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = server.address().to_string();
    (server, address)
}

/// The service alone.
fn serve_silently() -> (RunningServer, String) {
    let server = Server::builder().add_service(NotesServer::new(Board::default()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = server.address().to_string();
    (server, address)
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Each line as JSON.
fn lines(output: &Output) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).expect("JSON on each line");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(parse)
        .collect()
}

#[test]
fn services_and_methods_are_listed() {
    let (_server, address) = serve(&Board::default());
    let all = dunlin(&["call", &address, "--list"]);
    assert_eq!(
        text(&all),
        "grpc.reflection.v1.ServerReflection\ntest.Notes\n"
    );
    let json = object(&dunlin(&["call", &address, "--list", "--json"]));
    assert_eq!(
        json,
        json!({"services": ["grpc.reflection.v1.ServerReflection", "test.Notes"]})
    );
    let methods = text(&dunlin(&["call", &address, "test.Notes", "--list"]));
    assert_eq!(methods.lines().count(), 6, "{methods}");
    for line in [
        "test.Notes/Echo  (unary)",
        "test.Notes/Count  (stream of responses)",
    ] {
        assert!(methods.lines().any(|other| other == line), "{methods}");
    }
    let json = object(&dunlin(&[
        "call",
        &address,
        "test.Notes",
        "--list",
        "--json",
    ]));
    assert_eq!(
        json["methods"][0],
        json!({"name": "Chat", "kind": "stream both ways"})
    );
    let words = failure(&dunlin(&["call", &address, "test.Other", "--list"]), 2);
    assert!(words.contains("no service 'test.Other'"), "{words}");
    assert!(
        words.contains("it has grpc.reflection.v1.ServerReflection, test.Notes"),
        "{words}"
    );
}

#[test]
fn what_services_and_messages_are_is_described() {
    let (_server, address) = serve(&Board::default());
    let described = text(&dunlin(&["call", &address, "test.Notes", "--describe"]));
    let expected = "\
service test.Notes {
  rpc Echo(test.Note) returns (test.Note);
  rpc Look(test.Note) returns (test.Note);
  rpc Fail(test.Note) returns (test.Note);
  rpc Count(test.Note) returns (stream test.Note);
  rpc Sum(stream test.Note) returns (test.Note);
  rpc Chat(stream test.Note) returns (stream test.Note);
}

message test.Note {
  string words = 1;
  uint64 number = 2;
  test.Author author = 3;
  repeated string tags = 4;
  test.Tone tone = 5;
  map<string, int32> counts = 6;
  optional double weight = 9;
  oneof seen {
    string by = 7;
    bool never = 8;
  }
}

message test.Author {
  string name = 1;
}

enum test.Tone {
  QUIET = 0;
  LOUD = 1;
}
";
    assert_eq!(described, expected);
    assert_eq!(text(&dunlin(&["call", &address, "--describe"])), expected);
    let one = text(&dunlin(&["call", &address, "test.Author", "--describe"]));
    assert_eq!(one, "message test.Author {\n  string name = 1;\n}\n");
    let method = text(&dunlin(&["call", &address, "test.Notes/Sum", "--describe"]));
    assert!(
        method.contains("rpc Sum(stream test.Note)") && !method.contains("rpc Echo"),
        "{method}"
    );
    let json = object(&dunlin(&[
        "call",
        &address,
        "test.Tone",
        "--describe",
        "--json",
    ]));
    assert_eq!(json["definitions"][0]["name"], "test.Tone");
    let words = failure(&dunlin(&["call", &address, "test.Other", "--describe"]), 2);
    assert!(words.contains("does not know 'test.Other'"), "{words}");
}

#[test]
fn unary_methods_take_and_give_json() {
    let (_server, address) = serve(&Board::default());
    let whole = json!({
        "words": "hello", "number": "18446744073709551615", "author": {"name": "Ada"}, "tags": ["a", "b"],
        "tone": "LOUD", "counts": {"seen": 3}, "by": "Bob", "weight": 0.5,
    });
    let echo = |request: &str| dunlin(&["call", &address, "test.Notes/Echo", request, "--json"]);
    assert_eq!(object(&echo(&whole.to_string())), whole);
    // What grpcurl has, too: a slash before the name, no request at all, another from standard input.
    let empty = dunlin(&["call", &address, "/test.Notes/Echo"]);
    assert_eq!(text(&empty), "{}\n");
    let call = ["call", &address, "test.Notes/Echo", "-"];
    let pretty = text(&dunlin_with_input(
        &call,
        b" {\"words\":\n\"hi\"}\n".to_vec(),
    ));
    assert_eq!(pretty, "{\n  \"words\": \"hi\"\n}\n");
    let look = |more: &[&str]| {
        let call = ["call", &address, "test.Notes/Look", "--json"];
        object(&dunlin(&[&call, more].concat()))
    };
    assert_eq!(look(&[]), json!({"words": "nobody"}));
    let with = [
        "-H",
        "x-user=ada=lovelace",
        "--header",
        "x-other=1",
        "--deadline",
        "20",
    ];
    assert_eq!(look(&with), json!({"words": "ada=lovelace", "number": "1"}));
    let verbose = dunlin(&["call", &address, "test.Notes/Echo", "--verbose"]);
    let words = String::from_utf8_lossy(&verbose.stderr);
    assert!(
        words.contains("preset") && words.contains("x-board=wood"),
        "{words}"
    );
}

#[test]
fn the_status_of_a_call_is_the_exit_code() {
    let (_server, address) = serve(&Board::default());
    let fail = |number: u8, more: &[&str]| {
        let request = json!({"words": "no such bird", "number": number}).to_string();
        let call = ["call", &address, "test.Notes/Fail", &request];
        dunlin(&[&call, more].concat())
    };
    let words = failure(&fail(5, &[]), 69);
    assert!(words.contains("NOT_FOUND: no such bird"), "{words}");
    assert_eq!(fail(16, &[]).status.code(), Some(80));
    let output = fail(5, &["--json"]);
    assert_eq!(output.status.code(), Some(69));
    let status = json!({"code": "NOT_FOUND", "number": 5, "message": "no such bird"});
    assert_eq!(object(&output), json!({ "status": status }));
}

#[test]
fn streams_of_all_kinds() {
    let board = Board::default();
    let (_server, address) = serve(&board);
    let call = |method: &str, requests: &str| {
        let method = format!("test.Notes/{method}");
        dunlin(&["call", &address, &method, requests, "--json"])
    };
    let number = |number: u64| json!({ "number": number.to_string() });
    let counted = call("Count", "{\"number\": 3}");
    assert_eq!(counted.status.code(), Some(0), "{counted:?}");
    assert_eq!(lines(&counted), [number(1), number(2), number(3)]);
    let broken = call("Count", "{\"number\": 1, \"words\": \"in the middle\"}");
    assert_eq!(broken.status.code(), Some(74), "{broken:?}");
    let status = json!({"status": {"code": "ABORTED", "number": 10, "message": "in the middle"}});
    assert_eq!(lines(&broken), [number(1), status]);
    let summed = call("Sum", "{\"number\": 3} {\"number\": \"4\"}\n{\"number\":5}");
    assert_eq!(lines(&summed), [number(12)], "{summed:?}");
    assert_eq!(lines(&call("Sum", "")), [json!({})]);
    let chatted = call("Chat", "{\"number\": 3}{\"number\": 4}");
    assert_eq!(lines(&chatted), [number(3), number(4)]);
}

/// Each answer is there before the next request is written.
#[test]
fn a_stream_of_standard_input_goes_when_it_comes() {
    let (_server, address) = serve(&Board::default());
    let mut child = Command::new(DUNLIN)
        .args(["call", &address, "test.Notes/Chat", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    for words in ["one", "two", "three"] {
        writeln!(to, "{{\"words\": \"{words}\"}}").unwrap();
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{{\"words\":\"{words}\"}}\n"));
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_wrong_is_said_before_anything_is_called() {
    let (_server, address) = serve(&Board::default());
    let call =
        |method: &str, request: &str| failure(&dunlin(&["call", &address, method, request]), 2);
    let words = call("test.Other/Echo", "{}");
    assert!(
        words.contains("no service 'test.Other'") && words.contains("test.Notes"),
        "{words}"
    );
    let words = call("test.Notes/Ecko", "{}");
    assert!(words.contains("no method 'Ecko'"), "{words}");
    assert!(
        words.contains("it has Chat, Count, Echo, Fail, Look, Sum"),
        "{words}"
    );
    let words = call("/test.Notes", "{}");
    assert!(words.contains("no method ''"), "{words}");
    let words = call("test.Notes/Echo", "{\"wrods\": 1}");
    assert!(
        words.contains("wrods") && words.contains("test.Note has words, number"),
        "{words}"
    );
    let words = call("test.Notes/Echo", "{\"author\": {\"nam\": \"Ada\"}}");
    assert!(
        words.contains("nam") && words.contains("test.Author has name"),
        "{words}"
    );
    let words = call("test.Notes/Echo", "{\"counts\": {\"seen\": \"often\"}}");
    assert!(
        words.contains("field 'counts.seen' of test.Note"),
        "{words}"
    );
    let words = call("test.Notes/Echo", "{\"tags\": [\"a\", 5]}");
    assert!(words.contains("field 'tags[1]' of test.Note"), "{words}");
    let words = call("test.Notes/Echo", "{\"words\": ");
    assert!(words.contains("the request is not valid JSON"), "{words}");
    let words = call("test.Notes/Echo", "{} {}");
    assert!(words.contains("one request"), "{words}");
    let words = call("Echo", "{}");
    assert!(
        words.contains("neither a handler number nor SERVICE/METHOD"),
        "{words}"
    );
    let header = ["call", &address, "test.Notes/Echo", "-H", "X-User=ada"];
    let output = dunlin(&header);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = failure(
        &dunlin(&["call", &address, "7", "hello", "-H", "x-user=ada"]),
        2,
    );
    assert!(words.contains("by name"), "{words}");
}

/// What stands behind the mistake is not taken for the end of the stream.
#[test]
fn a_mistake_in_standard_input_gives_the_call_up() {
    let board = Board::default();
    let (_server, address) = serve(&board);
    let call = ["call", &address, "test.Notes/Sum", "-"];
    let words = failure(
        &dunlin_with_input(&call, b"{\"number\": 1}\n{\"nubmer\": 2}".to_vec()),
        2,
    );
    assert!(words.contains("nubmer"), "{words}");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        board.sums.load(Ordering::SeqCst),
        0,
        "no sum came to its end"
    );
}

#[test]
fn messages_come_from_files_where_the_server_does_not_say_them() {
    let (_server, address) = serve_silently();
    let listed = text(&dunlin(&["call", &address, "--list"]));
    assert_eq!(listed, "test.Notes\n");
    let echo = [
        "call",
        &address,
        "test.Notes/Echo",
        "{\"words\": \"hi\"}",
        "--json",
    ];
    let words = failure(&dunlin(&echo), 1);
    assert!(
        words.contains("no reflection service") && words.contains("--proto"),
        "{words}"
    );

    let folder = Folder::new("protos");
    let proto = folder.path("notes.proto");
    std::fs::write(&proto, PROTO).unwrap();
    let set = folder.path("notes.bin");
    std::fs::write(&set, descriptors()).unwrap();
    for file in [&proto, &set] {
        let output = dunlin(&[&echo[..], &["--proto", file]].concat());
        assert_eq!(object(&output), json!({"words": "hi"}));
    }
    let described = text(&dunlin(&[
        "call",
        &address,
        "test.Author",
        "--describe",
        "--proto",
        &proto,
    ]));
    assert!(described.starts_with("message test.Author"), "{described}");

    std::fs::write(&proto, PROTO.replace("rpc Echo(Note)", "rpc Echo(Noet)")).unwrap();
    let words = failure(&dunlin(&[&echo[..], &["--proto", &proto]].concat()), 2);
    assert!(
        words.contains("Noet") && words.contains("notes.proto:"),
        "{words}"
    );
    let older = PROTO.replace("rpc Echo(Note)", "rpc Echo(stream Note)");
    std::fs::write(&proto, older).unwrap();
    let words = failure(&dunlin(&[&echo[..], &["--proto", &proto]].concat()), 2);
    assert!(words.contains("another version"), "{words}");
    let words = failure(
        &dunlin(&[&echo[..], &["--proto", &folder.path("none.proto")]].concat()),
        2,
    );
    assert!(words.contains("none.proto"), "{words}");
}

#[test]
fn the_echo_service_has_a_typed_method_to_try_it_with() {
    let server = Serving::start("echo", &[]);
    let address = server.address();
    let echo = [
        "call",
        address,
        "dunlin.Measure/Echo",
        "{\"words\": \"hello\"}",
        "--json",
    ];
    assert_eq!(object(&dunlin(&echo)), json!({"words": "hello"}));
    let described = text(&dunlin(&["call", address, "dunlin.Measure", "--describe"]));
    assert!(
        described.contains("rpc Echo(dunlin.Text) returns (dunlin.Text);"),
        "{described}"
    );
    server.stop();
    let server = Serving::start("kv", &[]);
    let words = failure(&dunlin(&["call", server.address(), "--list"]), 2);
    assert!(
        words.contains("no typed services") && words.contains("by number"),
        "{words}"
    );
    server.stop();
}
