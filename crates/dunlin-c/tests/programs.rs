//! The examples, compiled by the system's compilers and run as processes, and a server that is killed under a client.

mod common;

use std::process::Stdio;

use common::{compile, finish, program, run, said, skipped, Link, Server};

/// Runs a client of the example server.
fn client_of(server: &Server, source: &str, link: Link) -> Option<String> {
    let path = compile(source, link, &[])?;
    Some(said(&run(program(&path).arg(&server.address))))
}

fn server(link: Link) -> Option<Server> {
    Some(Server::start(&compile("examples/server.c", link, &[])?))
}

const CALL: &str = "echo: hello\n8 / 2: 4\n8 / 0: handler error 1: division by zero (1)\n\
    bulk: 8388608 bytes came back, the same\n";

#[test]
fn the_examples_do_what_they_say() {
    let Some(server) = server(Link::Shared) else {
        return;
    };
    let calls = client_of(&server, "examples/call.c", Link::Shared);
    let calls = calls.expect("there is a compiler");
    assert!(calls.ends_with(CALL), "{calls}");
    let asynchronous = client_of(&server, "examples/async.c", Link::Shared);
    let asynchronous = asynchronous.expect("there is a compiler");
    assert!(asynchronous.contains("call 1000: later"), "{asynchronous}");
    assert!(
        asynchronous.ends_with("200 of 200 are right, 1 refused, 0 out\n"),
        "{asynchronous}"
    );
    let pipeline = client_of(&server, "examples/pipeline.c", Link::Shared);
    assert_eq!(pipeline.as_deref(), Some("20000 right, 0 wrong\n"));
    let regions = client_of(&server, "examples/regions.c", Link::Shared);
    assert_eq!(
        regions.as_deref(),
        Some(
            "table has 4096 bytes\nat 64: a row\ncounter was 2\nlock: ours\nlock: taken\n\
             beyond: 1 bytes at offset 4096 exceed the region 'table' of 4096 bytes\n"
        )
    );
    assert_eq!(server.stop(), "stopped: all answered, 1 divisions, 3 hits");
}

/// Why a connection was made as it was, on standard error, as the command says it.
#[test]
fn the_environment_has_a_program_log() {
    let Some(server) = server(Link::Shared) else {
        return;
    };
    let Some(path) = compile("examples/call.c", Link::Shared, &[]) else {
        return;
    };
    let told = |filter: &str| {
        let mut command = program(&path);
        let output = run(command.env("DUNLIN_LOG", filter).arg(&server.address));
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(told("off"), "");
    let debug = told("debug");
    assert!(debug.contains("connected device=\"shm\""), "{debug}");
    let wrong = told("dunlin_rpc=loud");
    assert!(wrong.starts_with("DUNLIN_LOG=dunlin_rpc=loud: "), "{wrong}");
    assert!(wrong.contains("such as debug"), "{wrong}");
}

#[test]
fn programs_can_be_linked_with_the_archive() {
    let Some(server) = server(Link::Static) else {
        return;
    };
    let calls = client_of(&server, "examples/call.c", Link::Static);
    let calls = calls.expect("there is a compiler");
    assert!(calls.ends_with(CALL), "{calls}");
    assert_eq!(server.stop(), "stopped: all answered, 1 divisions, 0 hits");
}

#[test]
fn cpp_serves_and_calls() {
    let Some(path) = compile("examples/both.cpp", Link::Shared, &[]) else {
        return;
    };
    assert_eq!(
        said(&run(&mut program(&path))),
        "echo: hello\nrefused: handler error 7: not today (7)\nasynchronous: 1 of 2 refused\n\
         pipeline: 100 of 100\nregion: a row, 0, 1\nmoved: still here\nstopped: all answered\n"
    );
}

#[test]
fn cpp_objects_behave_when_things_go_wrong() {
    let Some(path) = compile("tests/c/wrong.cpp", Link::Shared, &[]) else {
        return;
    };
    assert_eq!(said(&run(&mut program(&path))), "all as it should be\n");
}

#[test]
fn a_server_that_is_killed_ends_the_calls_that_are_out() {
    let (Some(mut server), Some(path)) = (
        server(Link::Shared),
        compile("tests/c/killed.c", Link::Shared, &[]),
    ) else {
        return;
    };
    let client = program(&path)
        .arg(&server.address)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client starts");
    // One call of each kind is out.
    for _ in 0..3 {
        assert_eq!(server.line(), "later: 600000 ms");
    }
    server.kill();
    let told = said(&finish(client));
    assert_eq!(told, "all calls have ended with an error of their kind\n");
}

#[test]
fn misuse_is_said() {
    let Some(path) = compile("tests/c/misuse.c", Link::Shared, &[]) else {
        return;
    };
    assert_eq!(said(&run(&mut program(&path))), "all as it should be\n");
}

/// The programs in docs/c.md do what it says.
#[test]
fn the_page_has_programs_that_work() {
    let Some(server) = server(Link::Shared) else {
        return;
    };
    let page = common::here().join("../../docs/c.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let folder = common::folder("page");
    for (fence, file) in [("```c\n", "page.c"), ("```cpp\n", "page.cpp")] {
        let (_, rest) = page.split_once(fence).expect("the page has a program");
        let (code, _) = rest.split_once("```").expect("and its end");
        let source = folder.join(file);
        std::fs::write(&source, code).expect("a file can be written");
        let Some(said) = client_of(&server, &source.display().to_string(), Link::Shared) else {
            return;
        };
        assert_eq!(said, "hello\n", "{file}");
    }
    server.stop();
}

#[test]
fn many_threads_use_one_client() {
    let (Some(server), Some(path)) = (
        server(Link::Shared),
        compile("tests/c/threads.c", Link::Shared, &[]),
    ) else {
        return;
    };
    let told = said(&run(program(&path).arg(&server.address)));
    assert_eq!(told, "4000 answers, each its own\n");
    server.stop();
}

/// What the example server does, in Rust.
fn rust_server() -> dunlin::RunningServer {
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0").expect("an address");
    let server = server.handle(1, |request, reply| reply.write(request.payload()));
    let server = server.handle(2, |request, reply| match request.payload() {
        [_, 0] => Err(dunlin::HandlerError::new(1, "division by zero")),
        [a, b] => reply.write(&[a / b]),
        _ => Err(dunlin::HandlerError::new(2, "a request has two bytes")),
    });
    server.serve().expect("the server starts")
}

#[test]
fn c_and_rust_call_each_other() {
    let Some(c_server) = server(Link::Shared) else {
        return;
    };
    let rust_server = rust_server();
    let path = compile("examples/call.c", Link::Shared, &[]).expect("there is a compiler");
    let address = rust_server.address().to_string();
    let calls = said(&run(program(&path).arg(address)));
    assert!(calls.ends_with(CALL), "{calls}");

    let client = dunlin::Client::connect(&c_server.address).expect("the C server listens");
    let long = vec![7; 1 << 20];
    assert_eq!(&*client.call(1, &long).expect("an answer"), long);
    let refused = client.call(2, &[8, 0]);
    assert!(
        matches!(&refused, Err(dunlin::CallError::Handler { code: 1, message }) if message == "division by zero"),
        "{refused:?}"
    );
    let table = client.attach("table").expect("the C server grants it");
    table.fetch_add(0, 5).expect("and atomics on it");
    drop((client, table));
    let last = c_server.stop();
    assert_eq!(last, "stopped: all answered, 0 divisions, 5 hits");
}

#[test]
fn memory_is_used_rightly() {
    let Some(server) = server(Link::Shared) else {
        return;
    };
    let address = server.address.as_str();
    check_memory("examples/call.c", address);
    check_memory("examples/async.c", address);
    // Servers, too.
    check_memory("tests/c/misuse.c", "without children");
    check_memory("examples/both.cpp", "");
    server.stop();
}

/// Runs a program under valgrind, or with its own code checked by AddressSanitizer where there is none.
fn check_memory(source: &str, argument: &str) {
    let ended = if common::is_there("valgrind") {
        let Some(path) = compile(source, Link::Shared, &[]) else {
            return;
        };
        run(program("valgrind".as_ref())
            .args(["-q", "--error-exitcode=9", "--leak-check=full"])
            .args([
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
            ])
            .arg(path)
            .arg(argument))
    } else if sanitizes() {
        let sanitizer = &["-fsanitize=address,undefined"];
        let Some(path) = compile(source, Link::Shared, sanitizer) else {
            return;
        };
        run(program(&path).arg(argument))
    } else {
        let why = "neither valgrind nor AddressSanitizer is here";
        skipped(&format!("{source} under a memory checker"), why);
        return;
    };
    said(&ended);
}

/// Whether the compiler has its sanitizers' libraries.
fn sanitizes() -> bool {
    let folder = common::folder("sanitizer");
    let source = folder.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file can be written");
    let compiled = std::process::Command::new("cc")
        .arg("-fsanitize=address,undefined")
        .arg(&source)
        .arg("-o")
        .arg(folder.join("empty"))
        .output();
    compiled.is_ok_and(|output| output.status.success())
}
