//! A running server: its figures, and its shutdown.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_bootstrap::{Acceptor, Address, Counts, StopHandle};
use dunlin_verbs::process::Owned;

use super::figures::{ServerFigures, ServerObserver};
use super::local::LocalAcceptor;
use super::pacing::Follower;
use super::service::PATIENCE;
use super::statistics::ServerStatistics;
use crate::admission::SenderReport;

/// A running server. Dropping it ends it at once; [`RunningServer::shutdown`] ends it gracefully. In a process that was
/// forked after the start it does nothing: the server runs in the parent.
///
/// Neither waits for a handler that does not return: one second after threads were asked to stop, those that are still
/// in a handler are abandoned, and the connections that they served end. Such a thread ends when its handler returns,
/// and the answer is discarded; until then the thread keeps the memory that it uses.
pub struct RunningServer {
    pub(super) follower: Owned<Option<Follower>>,
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) local_acceptor: LocalAcceptor,
    pub(super) observer: ServerObserver,
    pub(super) stop: StopHandle,
    pub(super) thread: Owned<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer")
            .field("address", self.acceptor.local_address())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// The longest that [`RunningServer::shutdown`] takes, and how much of that it waits for clients to read their answers.
const SHUTDOWN: Duration = Duration::from_secs(10);
const DRAIN: Duration = SHUTDOWN.saturating_sub(PATIENCE);

impl RunningServer {
    /// The address at which it listens, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.acceptor.local_address().clone()
    }

    /// Number of connections at present.
    pub fn connections(&self) -> usize {
        self.local_acceptor.connections()
    }

    /// What the server has counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        self.local_acceptor.statistics()
    }

    /// The clients known to the queue-pair scheduler: those whose preset uses credits.
    pub fn senders(&self) -> Vec<SenderReport> {
        self.local_acceptor.senders()
    }

    /// All live figures.
    pub fn figures(&self) -> ServerFigures {
        // What the observer needs exists as long as the server runs.
        self.observer.figures().unwrap_or_default()
    }

    /// A handle for observing the server from elsewhere in the process, for metrics.
    pub fn observer(&self) -> ServerObserver {
        self.observer.clone()
    }

    /// Counts of handshakes so far, by outcome.
    pub fn handshakes(&self) -> Counts {
        self.acceptor.counters()
    }

    /// Names of the devices over which it serves.
    pub fn devices(&self) -> Vec<String> {
        self.local_acceptor.names().map(str::to_owned).collect()
    }

    /// Stops accepting clients and requests, answers the requests already taken, and ends, within ten seconds. Returns
    /// `true` if everything was answered and read by the clients within nine; whatever is left then is aborted.
    pub fn shutdown(mut self) -> bool {
        if !self.local_acceptor.is_here() {
            return false;
        }
        self.stop_accepting();
        self.local_acceptor.drain();
        let deadline = Instant::now() + DRAIN;
        let over = || self.local_acceptor.is_over();
        while !over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        over()
    }

    fn stop_accepting(&mut self) {
        if let Some(follower) = &*self.follower {
            // Its thread is joined last, when this is dropped.
            follower.stop();
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            if thread.join().is_err() {
                tracing::error!("the accepting thread panicked");
            }
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if !self.local_acceptor.is_here() {
            return;
        }
        self.stop_accepting();
        self.local_acceptor.end();
    }
}
