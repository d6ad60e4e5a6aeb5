//! Completion queues and channels in the world's tables.

use std::collections::VecDeque;

use dunlin_verbs::{Completion, Notify};

use crate::world::World;

/// A completion, with the send queue entries that it releases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqEntry {
    pub(crate) completion: Completion,
    pub(crate) qp: u32,
    pub(crate) stamp: u32,
    /// Requests of the send queue that are released when it is polled; `None` for a RECEIVE.
    pub(crate) retires: Option<u64>,
}

impl Default for CqEntry {
    fn default() -> Self {
        Self {
            completion: Completion::EMPTY,
            qp: 0,
            stamp: 0,
            retires: None,
        }
    }
}

/// A completion on its way to its queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) cq: u32,
    pub(crate) entry: CqEntry,
    pub(crate) solicited: bool,
}

/// A completion queue.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    pub(crate) alive: bool,
    /// Number of users: its handle, and queue pair ends that name it. Its place is free when there are none.
    pub(crate) users: u32,
    pub(crate) host: u16,
    /// Number among all completion queues that its host has had. Unlike its place in the world's table, this does not
    /// depend on other hosts.
    pub(crate) number: u32,
    pub(crate) limit: usize,
    pub(crate) entries: VecDeque<CqEntry>,
    pub(crate) overrun: bool,
    pub(crate) channel: Option<u32>,
    pub(crate) armed: Option<Notify>,
    /// The thread that polls the queue.
    pub(crate) poller: Option<u32>,
}

impl Cq {
    /// Key of its context in the NIC's cache, built like that of a queue pair.
    #[inline]
    pub(crate) fn context(&self) -> u64 {
        u64::from(self.host) << 32 | u64::from(self.number)
    }
}

impl World {
    /// Called when a handle or a queue pair no longer names this completion queue. Completions still on their way to it
    /// belong to queue pairs that are gone or were reset, and so are void.
    pub(crate) fn release_completions(&mut self, cq: u32) {
        let queue = &mut self.cqs[cq];
        queue.users -= 1;
        if queue.users == 0 {
            *queue = Cq::default();
            self.cqs.give_back(cq);
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_verbs::{
        Access, Device, QueuePairConfig, ReceiveQueue, ReceiveRequest, Segment, SharedReceiveQueue,
        Transport,
    };

    use crate::{Cluster, HostParameters, NicParameters, SwitchParameters};

    /// A dropped queue's place is reused, but not while a queue pair names it.
    #[test]
    fn places_of_queues_are_used_again() {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        let cluster = Cluster::star(1, 1, &host, &nic, &SwitchParameters::z9264f());
        let device = cluster.device(cluster.hosts()[0]);
        let used = || {
            let world = cluster.inner().world(0);
            (world.cqs.used(), world.receives.used())
        };
        let domain = device.create_protection_domain().expect("a domain");
        let region = device.allocate_region(&domain, 64, Access::all());
        let region = region.expect("a region");
        for _ in 0..3 {
            let queue = device.create_completion_queue(4, None).expect("a queue");
            let shared = device.create_shared_receive_queue(&domain, 4, 1);
            let mut shared = shared.expect("a receive queue");
            let segments = &[Segment {
                region: &region,
                offset: 0,
                length: 64,
            }];
            let receive = ReceiveRequest { id: 1, segments };
            shared.post_receive(&[receive]).expect("room");
            let pair = |receive_queue| {
                let config = QueuePairConfig {
                    transport: Transport::ReliableConnection,
                    send_completions: &queue,
                    receive_completions: &queue,
                    send_requests: 4,
                    receive_queue,
                    segments: 1,
                    inline_bytes: 0,
                };
                device.create_queue_pair(&domain, &config).expect("a pair")
            };
            let own = pair(ReceiveQueue::Own(1));
            let of_shared = pair(ReceiveQueue::Shared(&shared));
            assert_eq!(used(), (1, 2));
            drop((queue, shared));
            assert_eq!(used(), (1, 2));
            drop(own);
            assert_eq!(used(), (1, 1));
            drop(of_shared);
            assert_eq!(used(), (0, 0));
        }
        let world = cluster.inner().world(0);
        assert!(world.receives[0].entries.is_empty());
    }
}
