//! Where the passive end's commands are executed: in this process, a child, or a process of another host.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Device;

use super::{wait, Agent, Harness, Message, Op, PATIENCE};

/// Set in a child that must serve commands from its standard input, which is a socket.
const ENVIRONMENT: &str = "DUNLIN_CONFORMANCE_PEER";

/// Prefix of a child's command line, as words separated by spaces, which starts the passive end elsewhere on this
/// machine, such as `ip netns exec NAME env VARIABLE=VALUE`.
const PREFIX: &str = "DUNLIN_CONFORMANCE_PEER_COMMAND";

/// A command that runs this test executable with only the test `entry`, wherever the passive end of a test is to run.
///
/// # Panics
/// When the path of this executable is unknown.
pub fn child_command(entry: &str) -> Command {
    let program = std::env::current_exe().expect("the test executable");
    let prefix = std::env::var(PREFIX).unwrap_or_default();
    let mut words = prefix.split_whitespace();
    let mut command = match words.next() {
        None => Command::new(&program),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(&program);
            command
        }
    };
    command.args([entry, "--exact", "--nocapture"]);
    command
}

/// Names a passive end of `between_processes` on another host, as `address:port`, instead of a child. The process that
/// listens there starts the test executable for each connection, as [`ProcessPeer`] does, with the connection as
/// standard input.
const ENVIRONMENT_AT: &str = "DUNLIN_CONFORMANCE_PEER_AT";

/// The passive end of a test.
pub trait Peer: std::fmt::Debug {
    /// Executes a command; the answer is [`Op::Done`] or [`Op::Failed`].
    fn call(&mut self, command: Message) -> Message;

    /// Ends it without warning.
    fn kill(&mut self);
}

/// The passive end in this process.
#[derive(Debug)]
pub struct LocalPeer<D: Device> {
    agent: Option<Agent<D>>,
}

impl<D: Device> LocalPeer<D> {
    /// Creates the passive end on `device`.
    pub fn new(device: D) -> Self {
        Self {
            agent: Some(Agent::new(device)),
        }
    }
}

impl<D: Device> Peer for LocalPeer<D> {
    fn call(&mut self, command: Message) -> Message {
        match &mut self.agent {
            Some(agent) => agent.execute(&command),
            None => Message::new(Op::Failed, []).with_bytes(*b"killed"),
        }
    }

    fn kill(&mut self) {
        self.agent = None;
    }
}

/// The passive end in a child: this test executable again, which runs only its `conformance_peer`.
#[derive(Debug)]
pub struct ProcessPeer {
    child: Child,
    stream: Option<UnixStream>,
}

impl ProcessPeer {
    /// Starts the child, whose entry is in `module`.
    ///
    /// # Errors
    /// The reason why the child has no device.
    ///
    /// # Panics
    /// When the child cannot be started.
    pub fn start(module: &str) -> Result<Self, String> {
        // Test names lack the crate's name.
        let entry = match module.split_once("::") {
            Some((_, rest)) => format!("{rest}::conformance_peer"),
            None => "conformance_peer".into(),
        };
        let (stream, theirs) = UnixStream::pair().expect("a socket pair for the child");
        let child = child_command(&entry)
            .env(ENVIRONMENT, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("the child starts");
        stream
            .set_read_timeout(Some(PATIENCE * 2))
            .expect("a timeout on the child's socket");
        let mut peer = Self {
            child,
            stream: Some(stream),
        };
        let hello = peer.answer();
        if hello.op == Op::Failed {
            return Err(String::from_utf8_lossy(&hello.bytes).into_owned());
        }
        Ok(peer)
    }

    fn answer(&mut self) -> Message {
        let stream = self.stream.as_mut().expect("the child lives");
        Message::read_from(stream).expect("the child answers")
    }
}

impl Peer for ProcessPeer {
    fn call(&mut self, command: Message) -> Message {
        let stream = self.stream.as_mut().expect("the child lives");
        command.write_to(stream).expect("the child listens");
        self.answer()
    }

    fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child ends");
        self.stream = None;
    }
}

impl Drop for ProcessPeer {
    fn drop(&mut self) {
        self.stream = None;
        // The child ends when its standard input does; if it hangs it must not outlive the test.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait("the end of the child", || {
                std::thread::sleep(Duration::from_millis(1));
                self.child.try_wait().ok().flatten()
            })
        }));
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The passive end in a process of another host.
#[derive(Debug)]
pub struct HostPeer {
    // The protocol is that of a child, and so is the type of the socket.
    stream: Option<UnixStream>,
}

impl HostPeer {
    /// Connects, if `DUNLIN_CONFORMANCE_PEER_AT` is set.
    ///
    /// # Errors
    /// The reason why the other host has no device.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn connect() -> Result<Option<Self>, String> {
        let Ok(address) = std::env::var(ENVIRONMENT_AT) else {
            return Ok(None);
        };
        let stream = TcpStream::connect(address).expect("somebody listens for the passive end");
        stream.set_nodelay(true).expect("a socket of TCP");
        let stream = UnixStream::from(OwnedFd::from(stream));
        stream
            .set_read_timeout(Some(PATIENCE * 2))
            .expect("a timeout on the peer's socket");
        let mut peer = Self {
            stream: Some(stream),
        };
        let hello = peer.answer();
        if hello.op == Op::Failed {
            return Err(String::from_utf8_lossy(&hello.bytes).into_owned());
        }
        Ok(Some(peer))
    }

    fn answer(&mut self) -> Message {
        let stream = self.stream.as_mut().expect("the peer lives");
        Message::read_from(stream).expect("the peer answers")
    }
}

impl Peer for HostPeer {
    fn call(&mut self, command: Message) -> Message {
        let stream = self.stream.as_mut().expect("the peer lives");
        command.write_to(stream).expect("the peer listens");
        self.answer()
    }

    fn kill(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            let abort = Message::new(Op::Abort, []);
            abort.write_to(&mut stream).expect("the peer listens");
            // Its end is the end of the stream.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

impl Drop for HostPeer {
    fn drop(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            // The next test's peer may need what this one's device holds, such as a port.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

/// The child's entry: serves one [`ProcessPeer`] until it closes the socket. Returns immediately in a process that was
/// not started for that.
///
/// # Panics
/// When the socket fails.
pub fn serve(harness: &impl Harness) {
    if std::env::var_os(ENVIRONMENT).is_none() {
        return;
    }
    let input = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("standard input can be cloned");
    let mut stream = UnixStream::from(input);
    let mut agent = match harness.open() {
        Ok(device) => Agent::new(device),
        Err(why) => {
            let refusal = Message::new(Op::Failed, []).with_bytes(why);
            return refusal.write_to(&mut stream).expect("the parent listens");
        }
    };
    Message::new(Op::Done, [])
        .write_to(&mut stream)
        .expect("the parent listens");
    loop {
        match Message::read_from(&mut stream) {
            Ok(command) if command.op == Op::Abort => std::process::abort(),
            Ok(command) => {
                if agent.execute(&command).write_to(&mut stream).is_err() {
                    return;
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return
            }
            Err(error) => panic!("the parent's socket: {error}"),
        }
    }
}
