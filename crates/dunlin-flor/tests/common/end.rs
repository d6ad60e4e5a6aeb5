//! One end of a connection.

use dunlin_verbs::{Access, Device, QueuePair, QueuePairConfig, ReceiveQueue, Transport};

/// A queue pair in Init, and the queue that it alone completes to.
pub(crate) fn end<D: Device>(
    device: &D,
    domain: &D::ProtectionDomain,
) -> (D::QueuePair, D::CompletionQueue) {
    let queue = device.create_completion_queue(16, None).expect("a queue");
    let config = QueuePairConfig {
        transport: Transport::ReliableConnection,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: 4,
        receive_queue: ReceiveQueue::Own(4),
        segments: 1,
        inline_bytes: 8,
    };
    let pair = device.create_queue_pair(domain, &config);
    let mut pair = pair.expect("a queue pair");
    pair.to_init(Access::all()).expect("Init");
    (pair, queue)
}
