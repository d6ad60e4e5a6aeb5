//! A poller: serves, on a polling thread, some of the connections of one device, all of one kind of channel.

use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::{thread, Device};

use super::connection::{Connection, Context};
use super::dispatch::Finished;
use super::mailbox::{Mail, Mailbox};
use super::partition::Partition;
use super::rounds::{Rounds, LONGEST};
use crate::channel::{Channel, ChannelError};

/// Number of passes without a request after which a lane counts as quiet.
const PASSES_PER_SORT: u32 = 256;

/// Longest sleep of a poller that drains.
const DRAINING_SLEEP: Duration = Duration::from_millis(1);

/// The part of a poller that other threads use.
pub(super) type PollerHandle<C> =
    Mailbox<Connection<C>, <<C as Channel>::Device as Device>::CompletionChannel>;

/// The part of a poller that its thread owns.
pub(super) struct Poller<C: Channel> {
    handle: Arc<PollerHandle<C>>,
    context: Context,
    /// A pass polls all that are expected to send requests, and one of the others.
    connections: Partition<Connection<C>>,
    passes: u32,
}

impl<C: Channel> Poller<C> {
    pub(super) fn new(handle: Arc<PollerHandle<C>>, context: Context) -> Self {
        Self {
            handle,
            context,
            connections: Partition::new(),
            passes: 0,
        }
    }

    #[cold]
    fn take_mail(&mut self) -> usize {
        let mail = self.handle.take();
        let count = mail.len();
        for item in mail {
            match item {
                Mail::Adopt(connection) => self.connections.push(*connection),
                Mail::Finished(Finished {
                    connection,
                    call,
                    outcome,
                }) => {
                    let found = self.connections.iter().position(|c| c.id == connection);
                    // A client that has left needs no answer.
                    let Some(index) = found else { continue };
                    if let Err(error) = self.connections[index].finished(call, outcome) {
                        self.end(index, &error);
                    }
                }
            }
        }
        if self.handle.is_draining() {
            self.each(|connection, _| connection.drain());
        }
        count
    }

    #[cold]
    fn end(&mut self, index: usize, error: &ChannelError) {
        let id = self.connections.remove(index).end(error, &self.context);
        // Only now, because the client's place is free then.
        self.handle.left(id);
    }

    /// Polls a connection. Returns the amount of work done, or `None` if it has ended.
    #[inline]
    fn look(&mut self, index: usize) -> Option<usize> {
        match self.connections[index].poll(&self.context) {
            Ok(taken) => Some(taken),
            Err(error) => {
                self.end(index, &error);
                None
            }
        }
    }

    /// Polls a quiet connection, which is no longer quiet if it had work.
    fn look_at_quiet(&mut self, index: usize) -> Option<usize> {
        let taken = self.look(index)?;
        if taken > 0 {
            self.connections.expect(index);
        }
        Some(taken)
    }

    /// Continues draining, and returns whether that is done.
    #[cold]
    fn is_drained(&mut self) -> bool {
        self.each(|connection, _| connection.drain());
        self.connections.iter().all(Connection::is_quiet) && !self.handle.has_mail()
    }

    /// Runs an action on all connections; one on which it fails ends.
    fn each(
        &mut self,
        mut action: impl FnMut(&mut Connection<C>, &Context) -> Result<(), ChannelError>,
    ) {
        let mut index = 0;
        while index < self.connections.len() {
            match action(&mut self.connections[index], &self.context) {
                Ok(()) => index += 1,
                Err(error) => self.end(index, &error),
            }
        }
    }
}

impl<C: Channel> Rounds for Poller<C> {
    /// Serves each connection from which requests are expected once, and one of the others. A lane that FLOCK's
    /// scheduler has deactivated usually brings no requests, nor does any lane while threads are asked to use
    /// datagrams, and a server may have many more such lanes than active ones.
    #[inline]
    fn pass(&mut self) -> usize {
        let mut work = 0;
        if self.handle.has_mail() {
            work += self.take_mail();
        }
        self.passes = self.passes.wrapping_add(1);
        if self.passes % PASSES_PER_SORT == 0 {
            // A lane is quiet if the server wants nothing of it and it has brought nothing since the last time.
            self.connections.sort(Connection::is_quiet_now);
        }
        let mut index = 0;
        while index < self.connections.expected() {
            if let Some(taken) = self.look(index) {
                work += taken;
                index += 1;
            }
        }
        if let Some(quiet) = self.connections.next_quiet() {
            work += self.look_at_quiet(quiet).unwrap_or(0);
        }
        work
    }

    fn pass_quiet(&mut self) -> usize {
        let mut work = 0;
        let mut index = self.connections.expected();
        while index < self.connections.len() {
            if let Some(taken) = self.look_at_quiet(index) {
                work += taken;
                index += 1;
            }
        }
        work
    }

    fn check(&mut self) {
        let now = thread::now();
        self.each(|connection, context| connection.check(now, context));
    }

    fn has_clients(&self) -> bool {
        self.handle.has_clients()
    }

    #[inline]
    fn is_over(&mut self) -> bool {
        self.handle.is_ending() || self.handle.is_draining() && self.is_drained()
    }

    fn is_ending(&self) -> bool {
        self.handle.is_ending()
    }

    fn has_work(&mut self) -> bool {
        self.handle.has_mail() || self.connections.iter().any(Connection::has_arrival)
    }

    fn longest_sleep(&mut self) -> Duration {
        // While it drains, it may be waiting for an acknowledgement, which the preparation of the sleep may have taken.
        match self.handle.is_draining() {
            true => DRAINING_SLEEP,
            false => LONGEST,
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut known = true;
        self.each(|connection, _| {
            known &= connection.prepare_sleep()?;
            Ok(())
        });
        known
    }

    fn close(&mut self) {
        for connection in self.connections.iter_mut() {
            connection.close();
        }
    }
}
