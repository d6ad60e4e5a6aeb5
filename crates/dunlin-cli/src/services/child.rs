//! A server process for `demo` and `perf`: it runs this same program, and ends when its owner does.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use dunlin::Address;

use crate::commands::Failure;

/// A server process. It listens on a free port and ends when this value is dropped, or when this process ends in any
/// way, since its standard input closes then.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: Address,
}

impl ServerProcess {
    /// Starts `dunlin serve SERVICE` with further arguments.
    ///
    /// # Errors
    /// When the process cannot be started or does not start to listen.
    pub fn start(service: &str, arguments: &[String]) -> Result<Self, Failure> {
        Self::start_at(service, "dunlin://127.0.0.1:0", arguments)
    }

    /// Like [`ServerProcess::start`], with the address to listen on.
    ///
    /// # Errors
    /// As for `start`.
    pub fn start_at(service: &str, listen: &str, arguments: &[String]) -> Result<Self, Failure> {
        let serve = ["serve", service, "--listen", listen, "--with-parent"].map(str::to_owned);
        Self::run(&[&serve, arguments].concat())
    }

    /// Starts `dunlin` with these arguments. It prints the address it listens on, and ends when its standard input
    /// does.
    ///
    /// # Errors
    /// As for [`ServerProcess::start`].
    pub fn run(arguments: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on ");
        match address.and_then(|address| address.parse().ok()) {
            Some(address) => Ok(Self { child, address }),
            None => {
                let _ = child.kill();
                let status = child.wait()?;
                Err(Failure::new(format!(
                    "the server process failed to start: {status}"
                )))
            }
        }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address it listens on.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Shuts it down gracefully and waits for it.
    ///
    /// # Errors
    /// When it ends unexpectedly.
    pub fn stop(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            return Err(Failure::new(format!(
                "the server process ended with {status}"
            )));
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
