//! Another store in a process of its own, on a unix socket: started for a measurement, ended after it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::affinity;
use crate::commands::Failure;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store to measure beside.
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

/// The process. It ends when this value is dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
    version: String,
}

impl Peer {
    /// Starts it with so much memory, on the core of servers.
    ///
    /// # Errors
    /// When it is not installed, or does not listen.
    pub fn start(program: Program, memory: usize) -> Result<Self, Failure> {
        let name = program.name();
        let version = version(name)?;
        let folder = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("socket");
        // The process begins where its parent is, with all its threads.
        if let Some((_, server)) = affinity::client_and_server() {
            affinity::pin(server);
        }
        let spawned = program
            .command(&socket, memory)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        affinity::release();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(Failure::new(format!("{name}: {error}")));
            }
        };
        let mut peer = Self {
            child,
            folder,
            socket,
            version,
        };
        peer.wait_until_it_listens(name)?;
        Ok(peer)
    }

    /// Its name and version, as it says itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn wait_until_it_listens(&mut self, name: &str) -> Result<(), Failure> {
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&self.socket).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(Failure::new(format!("{name} ended at once: {status}")));
            }
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
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn version(name: &str) -> Result<String, Failure> {
    let output = Command::new(name).arg("--version").output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("{name} is not installed"))
            .help(format!("Debian and Ubuntu have it: apt-get install {name}")),
        _ => Failure::new(format!("{name}: {error}")),
    })?;
    let words = String::from_utf8_lossy(&output.stdout);
    let number = words
        .split([' ', '='])
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    Ok(format!("{name} {}", number.unwrap_or_default().trim()))
}
