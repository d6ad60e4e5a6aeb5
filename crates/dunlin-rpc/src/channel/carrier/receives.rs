//! RECEIVEs with memory, for a channel whose messages are SENDs: arrived messages stay here until the channel takes
//! them.

use std::collections::VecDeque;

use dunlin_verbs::{Access, Device, QueuePair, ReceiveRequest, Region, Segment, VerbsError};

use super::Carrier;
use crate::channel::ChannelError;

/// The RECEIVEs; see the module.
#[derive(Debug)]
pub(in crate::channel) struct Receives<D: Device> {
    region: D::Region,
    bytes: usize,
    /// The RECEIVE that each message arrived in, and its length.
    arrived: VecDeque<(usize, usize)>,
}

impl<D: Device> Receives<D> {
    pub(super) fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        (count, bytes): (usize, usize),
    ) -> Result<Self, VerbsError> {
        Ok(Self {
            region: device.allocate_region(domain, count * bytes, Access::LOCAL_WRITE)?,
            bytes,
            arrived: VecDeque::with_capacity(count),
        })
    }

    pub(super) fn post(
        &self,
        queue_pair: &mut D::QueuePair,
        receive: usize,
    ) -> Result<(), ChannelError> {
        let segment = Segment {
            region: &self.region,
            offset: receive * self.bytes,
            length: self.bytes,
        };
        queue_pair
            .post_receive(&[ReceiveRequest {
                id: receive as u64,
                segments: &[segment],
            }])
            .map_err(|error| ChannelError::queue_pair(error.to_string()))
    }

    pub(super) fn arrived(&mut self, receive: usize, bytes: usize) {
        self.arrived.push_back((receive, bytes));
    }
}

impl<D: Device> Carrier<D> {
    /// Whether messages are SENDs, each of which raises an event if one was requested.
    pub(super) fn hears_sends(&self) -> bool {
        self.buffers.is_some()
    }

    /// The next message that has arrived: its RECEIVE and its length. It stays until [`Carrier::post_again`].
    #[inline]
    pub(in crate::channel) fn next_arrived(&mut self) -> Option<(usize, usize)> {
        self.buffers.as_mut()?.arrived.pop_front()
    }

    /// Whether a message has arrived and was not taken.
    pub(in crate::channel) fn has_arrived(&self) -> bool {
        let buffers = self.buffers.as_ref();
        buffers.is_some_and(|buffers| !buffers.arrived.is_empty())
    }

    /// Copies the beginning of a message.
    ///
    /// # Panics
    /// When the message is shorter.
    #[inline]
    pub(in crate::channel) fn read_arrived(&self, receive: usize, target: &mut [u8]) {
        if let Some(buffers) = &self.buffers {
            assert!(target.len() <= buffers.bytes, "a message of a RECEIVE");
            let memory = buffers.region.memory();
            memory.read(receive * buffers.bytes, target);
        }
    }

    /// The message in this RECEIVE is no longer needed.
    #[inline]
    pub(in crate::channel) fn post_again(&mut self, receive: usize) -> Result<(), ChannelError> {
        match &self.buffers {
            Some(buffers) => buffers.post(&mut self.queue_pair, receive),
            None => Ok(()),
        }
    }
}
