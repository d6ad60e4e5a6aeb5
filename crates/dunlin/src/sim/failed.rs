//! Why a simulation failed, and how to run it again.

use std::any::Any;
use std::error::Error;
use std::time::Duration;

use crate::ServeError;

/// A run has failed. Its message names the seed and the faults so far.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// The seed, with which it fails again.
    pub seed: u64,
    /// Virtual time of the failure.
    pub at: Duration,
    /// The reason.
    pub reason: Reason,
    /// The faults so far, as sentences, with their times.
    pub faults: Vec<(Duration, String)>,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}, at {:?}: {}", self.seed, self.at, self.reason)?;
        for (at, what) in &self.faults {
            write!(f, "\n  at {at:?}: {what}")?;
        }
        Ok(())
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

/// Why a run has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A program returned an error.
    #[error("the program on `{program}` returned an error: {source}")]
    Program {
        /// Its host.
        program: String,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A program panicked.
    #[error("the program on `{program}` panicked: {message}")]
    Panicked {
        /// Its host.
        program: String,
        /// The panic message.
        message: String,
    },
    /// Programs have not ended within the time limit.
    #[error("programs did not finish in time on {}: `Simulation::within` gives them more time", .0.join(", "))]
    Hanging(Vec<String>),
    /// A server cannot be started.
    #[error("cannot start the server on `{host}`: {source}")]
    Serve {
        /// Its host.
        host: String,
        /// The cause.
        source: Box<ServeError>,
    },
    /// A host was given two servers.
    #[error("`{0}` already has a server: a host can have only one")]
    SecondServer(String),
    /// A host is to be restarted on which something cannot be restarted.
    #[error("`{0}` cannot be restarted: add everything on it with `restartable_server` and `restartable_program`")]
    NotRestartable(String),
    /// A fault names a host that does not exist.
    #[error("a fault names the host `{name}`, which does not exist; hosts: {}", .hosts.join(", "))]
    NoHost {
        /// The name.
        name: String,
        /// The existing hosts.
        hosts: Vec<String>,
    },
}

impl Reason {
    pub(super) fn panicked(program: String, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::Panicked {
            program,
            message: text.unwrap_or("no message").to_owned(),
        }
    }
}
