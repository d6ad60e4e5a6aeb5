//! A server at work: what is to be seen of it, and its end.

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

/// A server at work. Dropping it ends it at once; [`RunningServer::shutdown`] ends it with grace. In a process that was
/// forked since it does nothing: the server runs in the parent.
///
/// Neither waits for a handler that does not return: a second after threads were told to end, those that are still in a
/// handler are left behind, and the connections that they served end. Such a thread ends when its handler returns,
/// whose answer nobody gets; until then it keeps the memory that it uses.
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

/// How long [`RunningServer::shutdown`] takes at most, and how long of that it waits for answers to be taken.
const SHUTDOWN: Duration = Duration::from_secs(10);
const DRAIN: Duration = SHUTDOWN.saturating_sub(PATIENCE);

impl RunningServer {
    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.acceptor.local_address().clone()
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.local_acceptor.connections()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        self.local_acceptor.statistics()
    }

    /// The clients that the queue-pair scheduler knows: those whose preset counts credits.
    pub fn senders(&self) -> Vec<SenderReport> {
        self.local_acceptor.senders()
    }

    /// All live figures.
    pub fn figures(&self) -> ServerFigures {
        // A server that runs has what its observer looks at.
        self.observer.figures().unwrap_or_default()
    }

    /// Something to look at the server with from elsewhere in the process, for metrics.
    pub fn observer(&self) -> ServerObserver {
        self.observer.clone()
    }

    /// How handshakes ended so far.
    pub fn handshakes(&self) -> Counts {
        self.acceptor.counters()
    }

    /// Names of the devices that it serves over.
    pub fn devices(&self) -> Vec<String> {
        self.local_acceptor
            .services()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Takes no new clients and no new requests, answers what was taken, and ends, within ten seconds. `true` when
    /// everything was answered and read within nine; what is left then is cut off.
    pub fn shutdown(mut self) -> bool {
        if !self.local_acceptor.is_here() {
            return false;
        }
        self.stop_accepting();
        self.local_acceptor.call_no_more();
        for (_, service) in self.local_acceptor.services() {
            service.drain();
        }
        let deadline = Instant::now() + DRAIN;
        let over = || {
            self.local_acceptor
                .services()
                .all(|(_, service)| service.is_over())
        };
        while !over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        over()
    }

    fn stop_accepting(&mut self) {
        if let Some(follower) = &*self.follower {
            // Its thread is waited for last of all, when this is dropped.
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
