//! Serving a port until it is stopped: the loop at the port, and the threads that open connections.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;

use crate::acceptor::Acceptor;
use crate::error::BootstrapError;
use crate::message::{OpenReply, OpenRequest};
use crate::openers::Openers;
use crate::peer::Peer;
use crate::port::{Job, Port};
use crate::refusal::Refusal;
use crate::stop::StopHandle;

impl Acceptor {
    /// Accepts clients until stopped, in the caller's thread, which sleeps while there are none. `on_open` is called on
    /// a separate thread, several at once, for each authenticated client, with the server's own device in
    /// [`OpenRequest::device`], and the client's identity. The client may not receive the reply: if it never appears on
    /// the queue pair, the caller has to give up on it.
    ///
    /// Returns when all handshakes have ended: those that wait for their client are cut short, and clients that are not
    /// being opened yet are told that the server is shutting down, so that it only waits for connections that are being
    /// opened. From the stop on the port refuses connections, including those that the system had queued, and another
    /// server may bind it.
    ///
    /// # Errors
    /// When the system cannot wait for the port.
    pub fn run(
        &self,
        stop: &StopHandle,
        on_open: impl Fn(OpenRequest, Peer) -> Result<OpenReply, Refusal> + Send + Sync,
    ) -> Result<(), BootstrapError> {
        let openers = Openers::new();
        let open = |job: Box<Job>| {
            let Job { client, request } = *job;
            if stop.is_stopped() {
                return self.answer(client, Err(Refusal::ShuttingDown));
            }
            let peer = client.known(self.config.secret.is_some());
            let outcome = catch_unwind(AssertUnwindSafe(|| on_open(request, peer)));
            self.answer(
                client,
                outcome.unwrap_or_else(|_| {
                    tracing::error!("panicked while opening a connection");
                    Err(Refusal::Failed)
                }),
            );
        };
        thread::scope(|scope| {
            let ended = Port::new(self, stop, &openers).and_then(|port| {
                port.run(|job| openers.submit(scope, &open, (job.client.origin(), job)))
            });
            self.close();
            // Not left to the threads, which may all be busy opening connections for a long time.
            for job in openers.close() {
                self.answer(job.client, Err(Refusal::ShuttingDown));
            }
            ended
        })
    }

    /// From now on the system refuses new clients; without this they would wait in its queue until their own timeout,
    /// for as long as the server answers those that it has accepted.
    fn close(&self) {
        if let Err(error) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "cannot close the port");
        }
    }
}
