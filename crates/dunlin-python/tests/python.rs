//! The package from Python: the library that Cargo has built is put into it, and unittest of the standard library runs
//! `tests/suite` in a process of its own, against servers in Rust and in Python. Then a client in Rust calls a server
//! in Python.
//!
//! Without Python 3.11 or later it says that it is skipped.
#![allow(missing_docs, unreachable_pub)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, OnceLock};
use std::time::{Duration, Instant};

use dunlin::{CallError, Client, HandlerError, Region, RunningServer};
use dunlin_service::codec::Raw;
use dunlin_service::{Code, Request, Response, Status};

/// Far beyond what the suite takes, also on a machine that is busy with others.
const BOUND: Duration = Duration::from_secs(300);

dunlin_service::service! {
    /// Says it again.
    pub service Echo = "test.Echo" with Raw {
        rpc say as Say(Vec<u8>) -> Vec<u8>;
        rpc flow as Flow(stream Vec<u8>) -> stream Vec<u8>;
    }
}

struct Echoes;

#[dunlin_service::async_trait]
impl echo_server::Echo for Echoes {
    async fn say(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        match request.get_ref().as_slice() {
            b"refuse" => Err(Status::with_details(
                Code::NotFound,
                "no such bird",
                *b"details",
            )),
            words => Ok(Response::new(words.to_vec())),
        }
    }

    type FlowStream = dunlin_service::Streaming<Vec<u8>>;

    async fn flow(
        &self,
        request: Request<dunlin_service::Streaming<Vec<u8>>>,
    ) -> Result<Response<Self::FlowStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// A call that is held, as long as it lives.
struct Held(Arc<AtomicU64>);

impl Held {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What `tests/suite/support.py` calls.
fn rust_server() -> RunningServer {
    let held = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&held);
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0").expect("an address");
    let server = server
        .handle(1, |request, reply| reply.write(request.payload()))
        .handle(2, |request, reply| match request.payload() {
            [_, 0] => Err(HandlerError::new(1, "division by zero")),
            [a, b] => reply.write(&[a / b]),
            _ => Err(HandlerError::new(2, "a request has two bytes")),
        })
        .handle_async(3, move |_| {
            let held = Held::new(&held);
            async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok(Vec::new())
            }
        })
        .handle(4, move |_, reply| {
            reply.write(&counted.load(Ordering::SeqCst).to_le_bytes())
        })
        .handle(5, |request, reply| {
            let length = request.payload().try_into().map(u64::from_le_bytes);
            let length = length.map_err(|_| HandlerError::new(2, "a length has eight bytes"))?;
            reply.in_place(length as usize)?.fill(7);
            Ok(())
        })
        .region(&Region::new("table", 4096).writable().atomic());
    let server = dunlin_service::Server::builder()
        .add_service(echo_server::EchoServer::new(Echoes))
        .on(server)
        .expect("its numbers are free");
    server.serve().expect("the server starts")
}

/// Says past the capture of the test runner what was not tested, and why.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: dunlin in Python: {why}");
}

/// The package with the library that Cargo has built, in a folder of this process's own; `None`: there is no Python for
/// it, which has been said.
fn package() -> Option<&'static Path> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    PACKAGE.get_or_init(make_package).as_deref()
}

fn make_package() -> Option<PathBuf> {
    let version = "import sys; print(sys.version_info >= (3, 11), sys.version.split()[0])";
    let found = Command::new("python3").args(["-c", version]).output();
    match &found {
        Err(error) => {
            skipped(&format!("no python3 here ({error})"));
            return None;
        }
        Ok(output) if !output.stdout.starts_with(b"True") => {
            let version = String::from_utf8_lossy(&output.stdout);
            let version = version.trim_start_matches("False").trim();
            skipped(&format!("python3 here is {version}, and it needs 3.11"));
            return None;
        }
        Ok(_) => {}
    }
    let all = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for other in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        let name = other.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("python-"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(other.path());
        }
    }
    let folder = all.join(format!("python-{}", std::process::id()));
    let package = folder.join("dunlin");
    std::fs::create_dir_all(&package).expect("a folder for the package");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/dunlin");
    for file in std::fs::read_dir(source).expect("the package is there") {
        let file = file.expect("a folder can be read");
        if file.path().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).expect("a copy");
        }
    }
    let test = std::env::current_exe().expect("a test knows its file");
    let built = test.parent().expect("it stands in a folder");
    std::fs::copy(
        built.join("libdunlin_python.so"),
        package.join("_dunlin.abi3.so"),
    )
    .expect("Cargo builds the library before its tests");
    Some(folder)
}

/// A program of Python's that finds the package.
fn python(package: &Path) -> Command {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let mut command = Command::new("python3");
    command
        .current_dir(suite)
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

/// Ends a process with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_suite_passes() {
    let Some(package) = package() else { return };
    let server = rust_server();
    let mut suite = python(package);
    suite
        .args(["-m", "unittest", "discover", "-v"])
        .env("DUNLIN_RUST_SERVER", server.address().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut suite = Running(suite.spawn().expect("python3 starts"));
    let mut errors = suite.0.stderr.take().expect("its output");
    let (sender, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let mut part = [0; 4096];
        while let Ok(1..) = errors.read(&mut part).inspect(|&length| {
            said.push_str(&String::from_utf8_lossy(&part[..length]));
        }) {}
        let _ = sender.send(said);
    });
    let end = Instant::now() + BOUND;
    let status = loop {
        match suite.0.try_wait().expect("a child can be asked") {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    drop(suite);
    let said = told.recv_timeout(Duration::from_secs(10));
    let said = said.unwrap_or_else(|_| "what it said did not come".to_owned());
    assert!(
        status.is_some_and(|status| status.success()),
        "{status:?} (None: not within {BOUND:?})\n{said}"
    );
    for line in said.lines().filter(|line| line.contains("... skipped")) {
        skipped(line);
    }
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran "));
    let ran = ran.and_then(|rest| rest.split(' ').next()?.parse().ok());
    assert!(ran.is_some_and(|ran: u32| ran > 30), "{said}");
}

/// The server of `tests/suite/serve.py`, and where it listens.
fn python_server(package: &Path) -> (Running, String) {
    let mut command = python(package);
    command
        .args(["serve.py", "dunlin://127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Running(command.spawn().expect("python3 starts"));
    let output = server.0.stdout.take().expect("its output");
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let address = lines.recv_timeout(BOUND);
    (server, address.expect("it says where it listens"))
}

#[test]
fn a_client_in_rust_calls_a_server_in_python() {
    let Some(package) = package() else { return };
    let (mut server, address) = python_server(package);
    let client = Client::connect(&address).expect("it listens");
    let long = vec![9; 1 << 20];
    assert_eq!(&*client.call(1, &long).expect("an answer"), long);
    assert_eq!(&*client.call(2, &[8, 2]).expect("an answer"), [4]);
    let refused = client.call(2, &[8, 0]);
    assert!(
        matches!(&refused, Err(CallError::Handler { code: 1, message }) if message == "division by zero"),
        "{refused:?}"
    );
    let failed = client.call(6, &[]);
    assert!(
        matches!(&failed, Err(CallError::Handler { code: 0, message }) if message == "ValueError: not this"),
        "{failed:?}"
    );
    let table = client.attach("table").expect("it is granted");
    assert_eq!(table.fetch_add(0, 3).expect("an atomic"), 0);

    let typed = echo_client::EchoBlockingClient::connect(&address).expect("it has services");
    let said = typed.say(b"abc".to_vec()).expect("a response");
    assert_eq!(said.into_inner(), b"cba");
    let status = typed.say(b"refuse".to_vec()).expect_err("it refuses");
    assert_eq!(
        (status.code(), status.message(), status.details()),
        (Code::NotFound, "no such bird", b"details".as_slice())
    );

    // One that waits for its handler when the process is killed.
    let caller = client.within(BOUND);
    let waiting = std::thread::spawn(move || caller.call(3, &[]).map(drop));
    let end = Instant::now() + BOUND;
    while client.call(4, &[]).expect("an answer")[..] != 1u64.to_le_bytes() {
        assert!(Instant::now() < end, "the call has not come to the handler");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.0.kill().expect("a child can be killed");
    let ended = waiting.join().expect("the call ends");
    assert!(
        matches!(ended, Err(CallError::ConnectionLost { .. })),
        "{ended:?}"
    );
}
