//! Questions about overdue calls (FaSST §4.3: a lost packet is detected by its call's timer).

use dunlin_verbs::{thread, Device};

use super::watch::Due;
use super::DatagramLane;
use crate::channel::datagram::fate;
use crate::channel::datagram::packet::Packet;
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;

/// Maximum number of calls in a question: it fits into one datagram on any device.
const QUESTION_CALLS: usize = 24;

impl<D: Device> DatagramLane<D> {
    /// Reads the clock, and asks about overdue calls.
    #[cold]
    pub(super) fn look(&mut self) -> Result<usize, ChannelError> {
        match self.watch.pass(thread::now()) {
            Due::Nothing => Ok(0),
            Due::Gone => Err(ChannelError::queue_pair(
                "the server does not respond, not even to questions about the fate of calls"
                    .to_owned(),
            )),
            Due::Question => match &self.driving {
                None => self.ask().map(|()| 0),
                Some(driving) => {
                    // Retransmitted packets serve as questions.
                    if driving.driver.is_busy() {
                        self.watch.asked();
                    }
                    self.keep_time().map(|()| 0)
                }
            },
        }
    }

    /// Wakes a sleeping server: a question without calls is received like any datagram.
    #[cold]
    pub(super) fn rouse(&mut self) -> Result<(), ChannelError> {
        let mut packet = Packet::new(self.room.bytes);
        packet.push(Header::new(Kind::Question, 0, 0, 0), &[]);
        packet.seal(self.to);
        let question = std::iter::once((self.session, packet.bytes()));
        let sent = self.endpoint().send(question)?;
        self.asleep = sent == 0;
        self.rousing = !self.asleep;
        // It is asked again in the next poll.
        self.written |= self.asleep;
        self.held_up |= self.asleep;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), ChannelError> {
        // The calls asked about must have been sent, or the server would report that they did not arrive.
        self.send()?;
        let mut question = Vec::with_capacity(QUESTION_CALLS * fate::ASKED_BYTES);
        let waiting = |call| {
            let mut all = self.transfers.iter();
            all.any(|transfer| transfer.call == call && !transfer.has_begun())
        };
        let mut overdue = false;
        for (call, since) in self.calls.out() {
            if !self.watch.is_overdue(since) || waiting(call) {
                continue;
            }
            overdue = true;
            // Before the server was heard of most calls are not sent: then the question only asks whether it is there.
            if self.met && question.len() < QUESTION_CALLS * fate::ASKED_BYTES {
                question.extend_from_slice(&call.to_le_bytes());
            }
        }
        if !overdue {
            return Ok(());
        }
        self.watch.asked();
        // If a question that was to wake the server is lost, this one serves as well.
        self.rousing = false;
        // In a datagram of its own: packets in the batch may be waiting for this very answer.
        let mut packet = Packet::new(self.room.bytes);
        if let Some((call, count)) = self.last_whole {
            packet.push(
                Header::new(Kind::Segments, 0, call, 4),
                &count.to_le_bytes(),
            );
        }
        packet.push(Header::new(Kind::Question, 0, 0, question.len()), &question);
        packet.seal(self.to);
        // If there is no room for it, another question follows soon.
        let question = std::iter::once((self.session, packet.bytes()));
        self.endpoint().send(question).map(drop)
    }
}
