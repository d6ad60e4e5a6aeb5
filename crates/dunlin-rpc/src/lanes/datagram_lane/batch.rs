//! Sending: packets of messages that wait for a flush, and segments of long requests.

use std::sync::PoisonError;

use dunlin_verbs::{Device, Work};

use super::{DatagramLane, PACKETS};
use crate::call::lane::CallId;
use crate::channel::datagram::packet::Packet;
use crate::channel::datagram::segments::{put_segment, SegmentHead, SEGMENT_HEAD_BYTES};
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::effort;
use crate::HandlerId;

impl<D: Device> DatagramLane<D> {
    /// Size of a segment in bytes.
    pub(super) fn piece(&self) -> usize {
        self.capacity - SEGMENT_HEAD_BYTES
    }

    /// Makes the open packet one that has room for a message with `payload` bytes, if the batch has such a packet.
    #[inline]
    pub(super) fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        if self.packets[self.last].fits(payload) {
            return Ok(true);
        }
        self.next_packet()
    }

    #[cold]
    pub(super) fn next_packet(&mut self) -> Result<bool, ChannelError> {
        if self.last + 1 == PACKETS {
            self.send()?;
        }
        if !self.packets[self.last].is_empty() {
            if self.last + 1 == PACKETS {
                return Ok(false);
            }
            self.last += 1;
            if self.last == self.packets.len() {
                self.add_packet();
            }
        }
        Ok(true)
    }

    /// Adds a packet. It has the same size as all of the endpoint, because sessions exchange them: see
    /// [`Lane::gather`].
    ///
    /// [`Lane::gather`]: crate::call::lane::Lane::gather
    pub(super) fn add_packet(&mut self) {
        let mut packet = Packet::new(self.scratch.len());
        packet.clear_for(self.room);
        self.packets.push(packet);
    }

    #[inline]
    pub(super) fn push(&mut self, kind: Kind, handler: HandlerId, call: CallId, payload: &[u8]) {
        let header = Header::new(kind, handler, call, payload.len());
        D::charge(Work::Copy(payload.len()));
        self.packets[self.last].push(header, payload);
    }

    /// Posts the batch to the device, with as many segments of long requests as may be in flight.
    #[inline]
    pub(super) fn send(&mut self) -> Result<(), ChannelError> {
        if self.driving.is_some() {
            return self.drive();
        }
        if let Some(uplink) = &mut self.uplink {
            uplink.check()?;
            if std::mem::take(&mut self.written) && self.asleep {
                self.rouse()?;
            }
        }
        loop {
            if !self.transfers.is_empty() {
                self.continue_transfers()?;
            }
            // A server that learns of cancelled calls may stop executing them; this should not wait for the next
            // request.
            let tells = self.met && !self.cancels.is_empty();
            if self.packets[0].is_empty() && !tells {
                return Ok(());
            }
            let mut count = self.last + usize::from(!self.packets[self.last].is_empty());
            count = count.max(usize::from(tells));
            if !self.met {
                if self.introduced {
                    return Ok(());
                }
                count = 1;
            }
            let all = self.send_packets(count)?;
            self.introduced |= all;
            if !all || self.transfers.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends `count` packets. `false`: there is no room for all, and the rest stays for the next poll.
    #[inline]
    pub(super) fn send_packets(&mut self, count: usize) -> Result<bool, ChannelError> {
        let count = match self.has_control_messages() {
            true => self.add_control_messages(count),
            false => count,
        };
        for packet in &mut self.packets[..count] {
            packet.seal(self.to);
            if self.driving.is_some() {
                D::charge(effort::NUMBERED);
            }
        }
        let session = self.session;
        let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match self.gathering {
            false => {
                let datagrams = self.packets[..count].iter();
                held.send(datagrams.map(|packet| (session, packet.bytes())))
            }
            true => held.gather(session, &mut self.packets[..count]),
        };
        drop(held);
        let gone = *sent.as_ref().unwrap_or(&count);
        for packet in &mut self.packets[..gone] {
            packet.clear_for(self.room);
        }
        if gone <= self.last {
            // Only before the server was heard of, or when there is no room.
            self.packets[..=self.last].rotate_left(gone);
        }
        self.last -= gone.min(self.last);
        self.held_up |= gone < count;
        sent.map(|sent| sent == count)
    }

    /// Whether the server is to be told of cancelled calls or of long responses that have arrived.
    #[inline]
    pub(super) fn has_control_messages(&self) -> bool {
        !self.cancels.is_empty() || !self.releases.is_empty()
    }

    /// Puts `Cancel` and `Release` messages into the first of `count` packets; those that it has no room for go into
    /// one more packet before it, because a response that the server still keeps counts against the response of a
    /// request that it receives before the `Release`. Returns the number of packets.
    #[cold]
    fn add_control_messages(&mut self, count: usize) -> usize {
        self.fill_with_control_messages();
        // Until the server was heard of, only one packet may be in flight.
        if !self.has_control_messages() || !self.met || count == PACKETS {
            return count;
        }
        if count == self.packets.len() {
            self.add_packet();
        }
        self.last = self.last.max(count);
        self.packets[..=count].rotate_right(1);
        self.fill_with_control_messages();
        count + 1
    }

    /// Adds as many of them to the first packet as fit.
    fn fill_with_control_messages(&mut self) {
        while self.packets[0].fits(0) {
            let cancel = self.cancels.pop().map(|call| (Kind::Cancel, call));
            let next = cancel.or_else(|| Some((Kind::Release, self.releases.pop()?)));
            let Some((kind, call)) = next else {
                return;
            };
            self.packets[0].push(Header::new(kind, 0, call, 0), &[]);
        }
    }

    /// Adds segments of long requests to the batch, as many as may be in flight.
    #[cold]
    pub(super) fn continue_transfers(&mut self) -> Result<(), ChannelError> {
        let piece = self.piece();
        loop {
            let Some(transfer) = self.transfers.front() else {
                return Ok(());
            };
            if !self.calls.is_out(transfer.call) {
                // Lost, or answered before all of it was sent.
                self.transfers.pop_front();
                self.transfer = self.transfer.wrapping_add(1);
                continue;
            }
            let full = !self.packets[self.last].is_empty() && self.last + 1 == PACKETS;
            if full || (!self.met && !self.packets[0].is_empty()) {
                return Ok(());
            }
            if !self.packets[self.last].is_empty() {
                self.next_packet()?;
            }
            let Some(transfer) = self.transfers.front_mut() else {
                return Ok(());
            };
            let Some(range) = transfer.next(piece) else {
                return Ok(());
            };
            let head = SegmentHead {
                total: transfer.bytes.len() as u32,
                offset: range.start as u32,
                transfer: self.transfer,
            };
            put_segment::<D>(&mut self.packets[self.last], transfer, head, range);
            let call = transfer.call;
            self.touch(call);
        }
    }
}
