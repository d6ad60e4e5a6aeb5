//! The first queue pair below a logical one is alone until the peer has answered, so it is given as long as the
//! attributes of the connection say: Flor's own two retries are for queue pairs that have backups.

#[path = "common/end.rs"]
mod end;

use std::time::{Duration, Instant};

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorCompletionQueue, FlorConfig, FlorDevice, FlorQueuePair};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Completion, CompletionQueue, ConnectAttributes, Device, Operation, Payload, QueuePair,
    ReceiveRequest, SendFlags, SendRequest,
};

/// How long a run may take before it counts as standing still.
const PATIENCE: Duration = Duration::from_secs(60);
/// Eight times this is what the connection is given, and three times what the queue pair would have by itself.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long the peer is not there: between the two.
const AWAY: Duration = Duration::from_millis(3500);

type Pair = FlorQueuePair<ShmDevice>;
type Queue = FlorCompletionQueue<ShmDevice>;

fn end() -> (Pair, Queue) {
    let below = ShmDevice::open(ShmConfig::default()).expect("a device");
    let config = FlorConfig::new(Deployment::IntraPodLossless);
    let device = FlorDevice::new(below, config).expect("Flor's device");
    let domain = device.create_protection_domain().expect("a domain");
    end::end(&device, &domain)
}

fn connect(pair: &mut Pair, peer: &Pair) {
    let attributes = ConnectAttributes {
        timeout_ns: TIMEOUT.as_nanos() as u64,
        retry_count: 7,
        ..ConnectAttributes::default()
    };
    let address = peer.address();
    pair.to_ready_to_receive(Some(&address), attributes)
        .expect("ReadyToReceive");
    pair.to_ready_to_send().expect("ReadyToSend");
}

fn poll(queue: &mut Queue) -> Option<Completion> {
    let mut one = [Completion::EMPTY];
    let count = queue.poll(&mut one).expect("no overrun");
    (count > 0).then_some(one[0])
}

#[test]
fn a_peer_that_comes_late_finds_the_connection_alive() {
    let (mut ours, mut our_queue) = end();
    let (mut theirs, mut their_queue) = end();
    connect(&mut ours, &theirs);
    let plain = Operation::Send { immediate: None };
    let payload = Payload::Inline(b"");
    ours.post_send(&[SendRequest::new(1, plain, payload, SendFlags::SIGNALED)])
        .expect("posted");
    let start = Instant::now();
    while start.elapsed() < AWAY {
        let completion = poll(&mut our_queue);
        let why = ours.failure();
        assert!(completion.is_none(), "{completion:?}: {why:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    theirs
        .post_receive(&[ReceiveRequest {
            id: 2,
            segments: &[],
        }])
        .expect("posted");
    connect(&mut theirs, &ours);
    let (mut sent, mut received) = (None, None);
    while sent.is_none() || received.is_none() {
        assert!(start.elapsed() < PATIENCE, "{sent:?}, {received:?}");
        sent = sent.or_else(|| poll(&mut our_queue));
        received = received.or_else(|| poll(&mut their_queue));
        std::thread::yield_now();
    }
    let why = ours.failure();
    assert!(sent.is_some_and(|it| it.is_success()), "{sent:?}: {why:?}");
    let received = received.expect("it was waited for");
    assert_eq!(received.id, 2);
}
