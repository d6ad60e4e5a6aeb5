//! A server process for `demo` and `perf`: it runs this same program, and ends when its owner does.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use dunlin::Address;

use crate::commands::Failure;

/// A server process. It listens on a port of its own choice and ends when this value is dropped, or with this process,
/// however that ends: its standard input closes then.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: Address,
}

impl ServerProcess {
    /// Starts `dunlin serve SERVICE` with further arguments.
    ///
    /// # Errors
    /// When the process cannot be started or does not begin to listen.
    pub fn start(service: &str, arguments: &[String]) -> Result<Self, Failure> {
        Self::start_at(service, "dunlin://127.0.0.1:0", arguments)
    }

    /// As [`ServerProcess::start`], listening there.
    ///
    /// # Errors
    /// As there.
    pub fn start_at(service: &str, listen: &str, arguments: &[String]) -> Result<Self, Failure> {
        let serve = ["serve", service, "--listen", listen, "--with-parent"].map(str::to_owned);
        Self::run(&[&serve, arguments].concat())
    }

    /// Starts `dunlin` with these arguments. It says where it listens, and ends when its standard input does.
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
                    "the server process did not start: {status}"
                )))
            }
        }
    }

    /// Its number at the system.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Ends it at once, as a crash would.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it with grace and waits for it.
    ///
    /// # Errors
    /// When it ends otherwise than asked.
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
