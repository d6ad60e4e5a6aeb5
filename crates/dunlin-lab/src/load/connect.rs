//! Connected queue pairs between hosts of a cluster.

use dunlin_sim::{SimCompletionQueue, SimDevice, SimProtectionDomain, SimQueuePair};
use dunlin_verbs::{
    Access, ConnectAttributes, Device, QueuePair, QueuePairConfig, ReceiveQueue, Transport,
};

/// One end of a connection.
#[derive(Debug)]
pub struct End<'a> {
    /// The host's device.
    pub device: &'a SimDevice,
    /// Its domain.
    pub domain: &'a SimProtectionDomain,
    /// Completion queue of the end.
    pub completions: &'a SimCompletionQueue,
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// RC or UC.
    pub transport: Transport,
    /// Entries of each send queue.
    pub sends: usize,
    /// Entries of each receive queue.
    pub receives: usize,
    /// Maximum inline bytes.
    pub inline_bytes: usize,
}

/// Creates a queue pair of this end in state Init.
///
/// # Panics
/// When the device refuses.
pub fn pair_config(end: &End<'_>, cable: Cable) -> SimQueuePair {
    let config = QueuePairConfig {
        transport: cable.transport,
        send_completions: end.completions,
        receive_completions: end.completions,
        send_requests: cable.sends,
        receive_queue: ReceiveQueue::Own(cable.receives),
        segments: 2,
        inline_bytes: cable.inline_bytes,
    };
    let mut pair = end
        .device
        .create_queue_pair(end.domain, &config)
        .expect("within the limits");
    pair.to_init(Access::all()).expect("from Reset");
    pair
}

/// Connects two ends.
///
/// # Panics
/// When a device refuses.
pub fn connect(one: &End<'_>, other: &End<'_>, cable: Cable) -> (SimQueuePair, SimQueuePair) {
    let (mut a, mut b) = (pair_config(one, cable), pair_config(other, cable));
    let (to_a, to_b) = (a.address(), b.address());
    for (pair, address) in [(&mut a, to_b), (&mut b, to_a)] {
        pair.to_ready_to_receive(Some(&address), ConnectAttributes::default())
            .expect("from Init");
        pair.to_ready_to_send().expect("from ReadyToReceive");
    }
    (a, b)
}
