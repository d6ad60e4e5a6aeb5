//! The end of a connection when its server shuts down: every request that was taken is answered, and the answers have
//! arrived at the client.

use dunlin_link::Ticket;

use super::{Connection, Context};
use crate::channel::message::Kind;
use crate::channel::{Channel, ChannelError};

/// The progress of a connection's end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Whether the client was told.
    said_goodbye: bool,
    /// The last work request that sent the client something when it was told.
    goodbye: Option<Ticket>,
    /// Whether all answers are known to have arrived.
    settled: bool,
}

impl<C: Channel> Connection<C> {
    /// Stops taking requests: those taken are answered, later ones are refused. Called again until the connection is
    /// quiet.
    pub(in crate::server) fn drain(&mut self) -> Result<(), ChannelError> {
        self.draining = true;
        self.say_goodbye()?;
        self.settle()
    }

    /// Tells the client as soon as possible: otherwise a client whose lane is not active would wait for credits.
    fn say_goodbye(&mut self) -> Result<(), ChannelError> {
        if self.ending.said_goodbye || !self.channel.is_met() || !self.channel.make_room(0)? {
            return Ok(());
        }
        // The goodbye itself is not waited for: no call needs it.
        self.channel.flush()?;
        // There must still be room for it: what waited before has taken some.
        if self.channel.is_short() || !self.channel.fence()? || !self.channel.make_room(0)? {
            return Ok(());
        }
        self.ending.said_goodbye = true;
        self.channel.push(Kind::Goodbye, 0, 0, &[]);
        self.channel.flush()?;
        self.ending.goodbye = self.channel.unconfirmed();
        Ok(())
    }

    /// Finds out whether all answers have arrived. An answer that was only posted may not have: a queue pair that has
    /// ended does not retransmit a lost packet.
    fn settle(&mut self) -> Result<(), ChannelError> {
        self.channel.flush()?;
        let said_since = self.channel.unconfirmed() != self.ending.goodbye;
        let is_fenced = !said_since || self.channel.fence()?;
        self.channel.progress()?;
        let is_sent = !self.channel.is_short();
        self.ending.settled = is_sent && is_fenced && self.channel.is_fence_done();
        Ok(())
    }

    /// Whether every request taken is answered, the answers have arrived at the client, and every long one was read.
    pub(in crate::server) fn is_quiet(&self) -> bool {
        self.away.is_empty()
            && self.backlog.is_empty()
            && self.fetching.is_empty()
            && self.exported.is_empty()
            && !self.channel.has_arrival()
            && self.ending.settled
    }

    pub(in crate::server) fn close(&mut self) {
        self.channel.close();
    }

    /// Ends the connection because of an error, and releases everything that it holds; returns its id.
    pub(in crate::server) fn end(mut self, error: &ChannelError, context: &Context) -> u64 {
        self.close();
        context.ended(self.id, error);
        self.id
    }
}
