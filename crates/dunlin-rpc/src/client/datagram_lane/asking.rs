//! Questions about calls that are overdue (FaSST §4.3: a lost packet is found by its call's timer).

use dunlin_verbs::{thread, Device};

use super::watch::Due;
use super::DatagramLane;
use crate::channel::datagram::fate;
use crate::channel::datagram::packet::Packet;
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;

/// Calls in one question: it is one datagram on any device.
const QUESTION_CALLS: usize = 24;

impl<D: Device> DatagramLane<D> {
    /// Looks at the clock, and asks about calls that are overdue.
    #[cold]
    pub(super) fn look(&mut self) -> Result<usize, ChannelError> {
        match self.watch.pass(thread::now()) {
            Due::Nothing => Ok(0),
            Due::Gone => Err(ChannelError::queue_pair(
                "the server answers nothing, not even what became of calls".to_owned(),
            )),
            Due::Question => match &self.driving {
                None => self.ask().map(|()| 0),
                Some(driving) => {
                    // Packets that are sent again are questions enough.
                    if driving.driver.is_busy() {
                        self.watch.asked();
                    }
                    self.keep_time().map(|()| 0)
                }
            },
        }
    }

    /// Wakes a server that sleeps: a question about nothing is heard as every datagram is.
    #[cold]
    pub(super) fn rouse(&mut self) -> Result<(), ChannelError> {
        let mut packet = Packet::new(self.room.bytes);
        packet.push(Header::new(Kind::Question, 0, 0, 0), &[]);
        packet.seal(self.to);
        let question = std::iter::once((self.session, packet.bytes()));
        let sent = self.endpoint().send(question)?;
        self.asleep = sent == 0;
        self.rousing = !self.asleep;
        // It is asked again with the next look.
        self.written |= self.asleep;
        self.held_up |= self.asleep;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), ChannelError> {
        // What is asked about must have been sent, or the server would say that it did not come.
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
            // Before the server was heard of most calls are not sent: then the question is only whether it is there.
            if self.met && question.len() < QUESTION_CALLS * fate::ASKED_BYTES {
                question.extend_from_slice(&call.to_le_bytes());
            }
        }
        if !overdue {
            return Ok(());
        }
        self.watch.asked();
        // If one that roused is lost, this one does as well.
        self.rousing = false;
        // In a datagram of its own: what waits in the batch may wait for the very answer.
        let mut packet = Packet::new(self.room.bytes);
        if let Some((call, count)) = self.last_whole {
            packet.push(
                Header::new(Kind::Segments, 0, call, 4),
                &count.to_le_bytes(),
            );
        }
        packet.push(Header::new(Kind::Question, 0, 0, question.len()), &question);
        packet.seal(self.to);
        // Without room for it there is another question soon.
        let question = std::iter::once((self.session, packet.bytes()));
        self.endpoint().send(question).map(drop)
    }
}
