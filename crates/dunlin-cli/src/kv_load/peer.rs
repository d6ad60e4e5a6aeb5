//! A competitor's server process on a Unix socket, started for a measurement and ended after it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};

use crate::affinity;
use crate::commands::Failure;

/// Time limit for the server to start listening.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for the server to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A store to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// memcached, one thread.
    Memcached,
    /// Redis, nothing on disk.
    Redis,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis-server",
        }
    }

    fn command(self, socket: &Path, memory: usize) -> Command {
        let mut command = Command::new(self.name());
        let megabytes = (memory >> 20).max(64).to_string();
        match self {
            Self::Memcached => {
                // Root is refused without a user; any other user ignores the option.
                command.args(["-t", "1", "-u", "root", "-m", &megabytes, "-s"]);
                command.arg(socket);
            }
            Self::Redis => {
                command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
                command.arg("--unixsocket").arg(socket);
            }
        }
        command
    }
}

/// A folder for one server process, which is removed when this value is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one, for a program of this name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The process. It ends when this value is dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    folder: Folder,
    socket: PathBuf,
    version: String,
    /// The signal that ends it at once.
    ends_by: Signal,
}

impl Peer {
    /// Starts it with this much memory, on the core of servers.
    ///
    /// # Errors
    /// When it is not installed, or does not listen.
    pub fn start(program: Program, memory: usize) -> Result<Self, Failure> {
        let name = program.name();
        let version = version(Path::new(name), name)?;
        let folder = Folder::new(name)?;
        let socket = folder.path().join("socket");
        let mut command = program.command(&socket, memory);
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // The process begins where its parent is, with all its threads.
        if let Some((_, server)) = affinity::client_and_server() {
            affinity::pin(server);
        }
        let started = Self::run(command, (folder, socket), version, Signal::KILL);
        affinity::release();
        let mut peer = started?;
        peer.wait_until_it_listens(name)?;
        Ok(peer)
    }

    /// Runs a command in its folder, which a signal ends. It need not listen yet.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub fn run(
        mut command: Command,
        (folder, socket): (Folder, PathBuf),
        version: String,
        ends_by: Signal,
    ) -> Result<Self, Failure> {
        let spawned = command.spawn();
        let child = spawned.map_err(|error| Failure::new(format!("{version}: {error}")))?;
        Ok(Self {
            child,
            folder,
            socket,
            version,
            ends_by,
        })
    }

    /// Its name and version, as it reports them.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The socket it listens on.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its own folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// # Errors
    /// When it has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            Some(status) => Err(Failure::new(format!(
                "{} ended immediately: {status}",
                self.version
            ))),
            None => Ok(()),
        }
    }

    fn wait_until_it_listens(&mut self, name: &str) -> Result<(), Failure> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            self.check()?;
            if start.elapsed() > PATIENCE {
                return Err(Failure::new(format!("{name} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Who has processes of its own ends them, if the signal leaves it the time.
        let asked = Pid::from_raw(self.child.id() as i32).map(|id| kill_process(id, self.ends_by));
        let start = Instant::now();
        while asked.is_some() && start.elapsed() < ENDS_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The version of a program, which a package of Debian has.
///
/// # Errors
/// When it is not there.
pub fn version(program: &Path, package: &str) -> Result<String, Failure> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("{name} is not installed"))
            .help(format!("on Debian and Ubuntu: apt-get install {package}")),
        _ => Failure::new(format!("{name}: {error}")),
    })?;
    let words = String::from_utf8_lossy(&output.stdout);
    let number = words
        .split([' ', '='])
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    Ok(format!("{name} {}", number.unwrap_or_default().trim()))
}
