//! The responses of a pass, in one open packet for each session that has some; the packets are sent together (FaSST's
//! response batching).

use std::sync::Arc;

use dunlin_verbs::Device;

use crate::admission::DatagramShare;
use crate::channel::datagram::packet::{Head, Packet, Room};
use crate::channel::datagram::Endpoint;
use crate::channel::ChannelError;

/// Number of packets after which they must be sent.
const PACKETS: usize = 64;

/// A session's open packet, valid as long as the batch is the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenPacket {
    batch: u64,
    index: usize,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) number: u32,
    pub(super) to: Head,
    /// What fits into one datagram.
    pub(super) room: Room,
}

/// The packets of a pass.
#[derive(Debug)]
pub(super) struct Outgoing {
    packets: Vec<Packet>,
    owners: Vec<(u32, Head)>,
    used: usize,
    /// Counted from one: no open packet is of batch zero.
    batch: u64,
    packet_bytes: usize,
    /// Says what clients are asked to do.
    share: Arc<DatagramShare>,
}

impl Outgoing {
    pub(super) fn new(packet_bytes: usize, share: &Arc<DatagramShare>) -> Self {
        Self {
            share: Arc::clone(share),
            packets: Vec::with_capacity(PACKETS),
            owners: Vec::with_capacity(PACKETS),
            used: 0,
            batch: 1,
            packet_bytes,
        }
    }

    /// Returns the session's packet with room for a message of `payload` bytes.
    #[inline]
    pub(super) fn packet<D: Device>(
        &mut self,
        open_packet: &mut OpenPacket,
        target: &Target,
        payload: usize,
        endpoint: &mut Endpoint<D>,
    ) -> Result<&mut Packet, ChannelError> {
        if open_packet.batch == self.batch && self.packets[open_packet.index].fits(payload) {
            return Ok(&mut self.packets[open_packet.index]);
        }
        self.begin(open_packet, target, endpoint)
    }

    /// Starts an empty packet for the session.
    #[inline]
    pub(super) fn begin<D: Device>(
        &mut self,
        open_packet: &mut OpenPacket,
        target: &Target,
        endpoint: &mut Endpoint<D>,
    ) -> Result<&mut Packet, ChannelError> {
        if self.is_full() {
            self.flush(endpoint)?;
        }
        // If they could not be sent, there are more: at most what one datagram asks for, because then no other datagram
        // is taken.
        let index = self.used;
        self.used += 1;
        if index == self.packets.len() {
            self.packets.push(Packet::new(self.packet_bytes));
            self.owners.push((target.number, target.to));
        }
        self.owners[index] = (target.number, target.to);
        *open_packet = OpenPacket {
            batch: self.batch,
            index,
        };
        let packet = &mut self.packets[index];
        packet.clear_for(target.room);
        Ok(packet)
    }

    /// Whether the packets must be sent before more are added.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used >= PACKETS
    }

    /// Whether there are no packets to send.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Discards all packets.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.batch += 1;
    }

    /// Posts all packets, with one doorbell for many. Those that find no room in the send queue stay for the next
    /// flush.
    #[inline]
    pub(super) fn flush<D: Device>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Result<(), ChannelError> {
        if self.used == 0 {
            return Ok(());
        }
        let used = std::mem::take(&mut self.used);
        self.batch += 1;
        let all = self.packets[..used].iter_mut().zip(&self.owners);
        let wants_datagrams = self.share.wants_datagrams();
        for (packet, (_, to)) in all {
            packet.seal(Head {
                wants_datagrams,
                ..*to
            });
        }
        let all = self.packets[..used].iter().zip(&self.owners);
        // A failed handler may have left a packet without a message.
        let full = all.filter(|(packet, _)| !packet.is_empty());
        let mut left =
            endpoint.send(full.map(|(packet, (number, _))| (*number, packet.bytes())))?;
        let unsent = self.packets[..used].iter().position(|packet| {
            let is_sent = packet.is_empty() || left > 0;
            left -= usize::from(!packet.is_empty() && is_sent);
            !is_sent
        });
        if let Some(first) = unsent {
            self.packets[..used].rotate_left(first);
            self.owners[..used].rotate_left(first);
            self.used = used - first;
        }
        Ok(())
    }
}
