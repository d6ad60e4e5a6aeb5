//! Sending on a datagram queue pair: lists of datagrams with one doorbell, while the send queue has room.

use std::time::Duration;

use dunlin_verbs::{thread, Device};

use super::super::packet::Packet;
use super::{Endpoint, Route};
use crate::channel::ChannelError;
use crate::config::DOORBELL;

/// How long the send queue may be full without a completed SEND.
const RECLAIM: Duration = Duration::from_secs(2);

impl<D: Device> Endpoint<D> {
    /// Sends a datagram to each of these sessions, all with one doorbell if it takes that many. Returns how many were
    /// sent: there is no room now for the others.
    #[inline]
    pub(crate) fn send<'a>(
        &mut self,
        datagrams: impl Iterator<Item = (u32, &'a [u8])>,
    ) -> Result<usize, ChannelError> {
        let mut datagrams = datagrams.peekable();
        let together = self.sends.together();
        let mut sent = 0;
        while let Some((session, bytes)) = datagrams.next() {
            if !self.sends.has_entries(DOORBELL) && !self.look_for_room(DOORBELL)? {
                break;
            }
            sent += 1;
            let place = self.places.get(session as usize);
            let Some(route) = place.and_then(|place| place.route.as_ref()) else {
                // A session that has ended needs no responses.
                continue;
            };
            let posted = if datagrams.peek().is_none() || together == 1 {
                self.sends.post_one(&mut self.queue_pair, route, bytes)
            } else {
                let mut list: [(&Route<D>, &[u8]); DOORBELL] = [(route, bytes); DOORBELL];
                let mut count = 1;
                while count < together {
                    let Some((session, bytes)) = datagrams.next() else {
                        break;
                    };
                    sent += 1;
                    let place = self.places.get(session as usize);
                    if let Some(route) = place.and_then(|place| place.route.as_ref()) {
                        list[count] = (route, bytes);
                        count += 1;
                    }
                }
                self.sends.post(&mut self.queue_pair, &list[..count])
            };
            posted.inspect_err(|error| self.broken = Some(error.clone()))?;
        }
        Ok(sent)
    }

    /// Takes the first of a session's packets, to be sent with those of others, and returns how many: there is no room
    /// now for the others. The caller gets an empty packet for each of them, whose limits it sets.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        session: u32,
        packets: &mut [Packet],
    ) -> Result<usize, ChannelError> {
        for (taken, packet) in packets.iter_mut().enumerate() {
            if !self.gather_one(session, packet)? {
                return Ok(taken);
            }
        }
        Ok(packets.len())
    }

    #[inline]
    fn gather_one(&mut self, session: u32, packet: &mut Packet) -> Result<bool, ChannelError> {
        let together = self.sends.together();
        if self.gathered_count == together {
            self.send_gathered()?;
            if self.gathered_count == together {
                return Ok(false);
            }
        }
        if self.gathered_count == self.gathered.len() {
            self.gathered
                .push((session, Packet::new(self.packet_bytes)));
        }
        let place = &mut self.gathered[self.gathered_count];
        place.0 = session;
        place.1.clear();
        std::mem::swap(&mut place.1, packet);
        self.gathered_count += 1;
        Ok(true)
    }

    /// Whether gathered packets are still to be sent.
    #[inline]
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathered_count > 0
    }

    /// Sends what was gathered, with one doorbell if it takes that many. Packets without room stay.
    #[inline]
    pub(crate) fn send_gathered(&mut self) -> Result<(), ChannelError> {
        let count = std::mem::take(&mut self.gathered_count);
        if count == 0 {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        let all = gathered[..count].iter();
        let sent = self.send(all.map(|(session, packet)| (*session, packet.bytes())));
        if let Ok(sent) = sent {
            if sent < count {
                gathered[..count].rotate_left(sent);
                self.gathered_count = count - sent;
            }
        }
        self.gathered = gathered;
        sent.map(drop)
    }

    /// Whether there is room for this many datagrams, in any number of lists.
    #[inline]
    pub(crate) fn has_room(&mut self, datagrams: usize) -> Result<bool, ChannelError> {
        let entries = datagrams + DOORBELL;
        Ok(self.sends.has_entries(entries) || self.look_for_room(entries)?)
    }

    /// Takes completions to free entries of the send queue.
    ///
    /// # Errors
    /// When it has been full for long without a completion, or the queue pair has failed.
    #[cold]
    fn look_for_room(&mut self, entries: usize) -> Result<bool, ChannelError> {
        #[cfg(test)]
        if self.vain_looks > 0 {
            self.vain_looks -= 1;
            return Ok(false);
        }
        let mut missed = std::mem::take(&mut self.missed);
        let polled = self.poll(|session| missed.push(session));
        self.missed = missed;
        polled?;
        if self.sends.has_entries(entries) {
            return Ok(true);
        }
        let now = thread::now();
        if now.duration_since(*self.full_since.get_or_insert(now)) > RECLAIM {
            return Err(self.fail("SENDs do not complete".to_owned()));
        }
        Ok(false)
    }
}
