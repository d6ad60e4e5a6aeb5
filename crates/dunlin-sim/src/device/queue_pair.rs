//! Queue pairs: creation and states. Posting is in `post.rs`.

use std::sync::Arc;

use dunlin_verbs::{
    Access, ConnectAttributes, EndpointAddress, PostError, QueuePair, QueuePairConfig,
    QueuePairState, ReceiveQueue, ReceiveRequest, SendRequest, Transport, VerbsError,
};

use crate::inner::Inner;
use crate::pair::{Limits, Pair, PeerOf};
use crate::priority;
use crate::stack;
use crate::world::{World, QUEUE_PAIRS_MAX};

use super::{
    gid, host_of, limit, shared_receive, SimAddressHandle, SimCompletionQueue, SimRegion,
    SimSharedReceiveQueue,
};

/// A queue pair.
#[derive(Debug)]
pub struct SimQueuePair {
    pub(super) inner: Arc<Inner>,
    /// Index in the world's table.
    pub(super) place: u32,
    pub(super) host: u16,
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) own_receives: bool,
    /// MTU of the NIC, part of the queue pair's address.
    mtu_bytes: u32,
}

impl SimQueuePair {
    pub(super) fn new(
        inner: &Arc<Inner>,
        host: u16,
        domain: u32,
        config: &QueuePairConfig<'_, SimCompletionQueue, SimSharedReceiveQueue>,
    ) -> Result<Self, VerbsError> {
        if matches!(&config.receive_queue, ReceiveQueue::Shared(queue) if queue.domain() != domain)
        {
            return Err(VerbsError::Invalid {
                argument: "receive_queue",
                why: "of another protection domain".to_owned(),
            });
        }
        let mut world = inner.world(host);
        let place = world
            .free_pairs
            .pop_front()
            .unwrap_or(world.pairs.len() as u32);
        let at = &mut world.hosts[usize::from(host)];
        let Some(number) = at.take_number(place) else {
            if (place as usize) < world.pairs.len() {
                world.free_pairs.push_front(place);
            }
            limit("max_queue_pairs", 1, 0, QUEUE_PAIRS_MAX)?;
            return Err(VerbsError::Invalid {
                argument: "config",
                why: "no number left".to_owned(),
            });
        };
        let mtu_bytes = at.nic.parameters.mtu_bytes as u32;
        let receives = match config.receive_queue {
            ReceiveQueue::Own(requests) | ReceiveQueue::OwnEmpty(requests) => (
                shared_receive::create(&mut world, host, domain, requests, config.segments),
                false,
            ),
            ReceiveQueue::Shared(queue) => {
                world.receives[queue.number()].users += 1;
                (queue.number(), true)
            }
        };
        let limits = Limits {
            send_requests: config.send_requests,
            segments: config.segments,
            inline_bytes: config.inline_bytes,
        };
        let queues = (
            config.send_completions.number(),
            config.receive_completions.number(),
        );
        for queue in [queues.0, queues.1] {
            world.cqs[queue].users += 1;
        }
        let stamp = world
            .pairs
            .get(place as usize)
            .map_or(1, |old| old.stamp + 1);
        let pair = Pair::new(
            host,
            number,
            config.transport,
            domain,
            queues,
            receives,
            limits,
            stamp,
        );
        if (place as usize) < world.pairs.len() {
            world.pairs[place as usize] = pair;
        } else {
            world.pairs.push(pair);
        }
        drop(world);
        Ok(Self {
            inner: Arc::clone(inner),
            place,
            host,
            number,
            transport: config.transport,
            own_receives: !receives.1,
            mtu_bytes,
        })
    }

    /// Moves to state `to` if the state machine allows it, after `change`.
    fn go(&mut self, to: QueuePairState, change: impl FnOnce(&mut Pair)) -> Result<(), VerbsError> {
        let mut world = self.inner.world(self.host);
        let pair = &mut world.pairs[self.place as usize];
        let from = pair.state;
        if !from.may_move(to, self.transport) {
            return Err(VerbsError::Transition {
                queue_pair: self.number,
                from,
                to,
            });
        }
        pair.state = to;
        change(pair);
        if to == QueuePairState::ReadyToSend {
            world.wake_sender(self.place);
        }
        drop(world);
        self.inner.notify();
        Ok(())
    }

    /// Drops everything posted.
    fn forget(world: &mut World, place: u32) {
        world.drop_answers(place);
        let pair = &mut world.pairs[place as usize];
        let (receives, shared) = (pair.receives, pair.shared);
        pair.reset();
        if !shared {
            world.receives[receives].clear();
        }
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        let mut world = self.inner.world(self.host);
        Self::forget(&mut world, self.place);
        world.hosts[usize::from(self.host)].give_number_back(self.number);
        let pair = &mut world.pairs[self.place as usize];
        pair.alive = false;
        let (receives, queues) = (pair.receives, [pair.send_cq, pair.receive_cq]);
        world.release_receives(receives);
        for queue in queues {
            world.release_completions(queue);
        }
        world.free_pairs.push_back(self.place);
    }
}

impl QueuePair for SimQueuePair {
    type Region = SimRegion;
    type AddressHandle = SimAddressHandle;
    type Mapped = dunlin_verbs::NotMapped;

    fn number(&self) -> u32 {
        self.number
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn state(&self) -> QueuePairState {
        self.inner.world(self.host).pairs[self.place as usize].state
    }

    fn address(&self) -> EndpointAddress {
        let world = self.inner.world(self.host);
        let pair = &world.pairs[self.place as usize];
        EndpointAddress {
            gid: gid(self.inner.id, self.host),
            lid: 0,
            mtu_bytes: self.mtu_bytes,
            queue_pair: self.number,
            packet_sequence: 0,
            queue_key: pair.queue_key,
            // The incarnation: packets sent to an earlier one do not reach this one.
            token: u64::from(pair.stamp),
        }
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        self.go(QueuePairState::Init, |pair| pair.access = access)
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        let from = self.state();
        if !from.may_move(QueuePairState::ReadyToReceive, self.transport) {
            let to = QueuePairState::ReadyToReceive;
            return Err(VerbsError::Transition {
                queue_pair: self.number,
                from,
                to,
            });
        }
        let peer = match (self.transport, remote) {
            (Transport::UnreliableDatagram, _) => None,
            (_, None) => {
                return Err(VerbsError::Address(
                    "a connected queue pair needs one".to_owned(),
                ))
            }
            (_, Some(address)) => Some(PeerOf {
                host: host_of(&self.inner, address, self.host)?,
                number: address.queue_pair,
                stamp: address.token as u32,
            }),
        };
        self.go(QueuePairState::ReadyToReceive, |pair| {
            pair.peer = peer;
            pair.attributes = attributes;
            pair.priority = priority::of_class(attributes.traffic_class);
            pair.retries_left = attributes.retry_count;
            pair.not_ready_left = attributes.receiver_not_ready_retries;
        })?;
        // The command that connects loads the context into the NIC.
        let mut world = self.inner.world(self.host);
        let context = world.pairs[self.place as usize].context();
        let nic = &mut world.hosts[usize::from(self.host)].nic;
        nic.contexts.touch(context);
        nic.responders.touch(context);
        Ok(())
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        self.go(QueuePairState::ReadyToSend, |_| ())
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        self.go(QueuePairState::SendQueueDrained, |_| ())
    }

    fn to_error(&mut self) {
        let mut world = self.inner.world(self.host);
        if world.pairs[self.place as usize].state != QueuePairState::Error {
            world.fail_pair(self.place);
        }
        drop(world);
        self.inner.notify();
    }

    fn to_reset(&mut self) {
        Self::forget(&mut self.inner.world(self.host), self.place);
    }

    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, SimRegion, SimAddressHandle>],
    ) -> Result<(), PostError> {
        let result = super::post::send(self, requests);
        self.inner.notify();
        stack::settle();
        result
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, SimRegion>],
    ) -> Result<(), PostError> {
        let result = super::post::receive(self, requests);
        self.inner.notify();
        stack::settle();
        result
    }
}
