//! What a requester was told has failed does not happen afterwards, in virtual time: its memory may hold something else
//! by then, and it may have asked again elsewhere.

#[path = "common/end.rs"]
mod end;

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorCompletionQueue, FlorConfig, FlorDevice, FlorQueuePair, FlorRegion};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, SimDevice, SwitchParameters,
};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, CompletionStatus, ConnectAttributes, Device, Operation,
    Payload, QueuePair, QueuePairState, ReceiveRequest, Region, RemoteAddress, RemoteKey, Segment,
    SendFlags, SendRequest,
};

use end::end;

const BEFORE: u8 = 1;
const AFTER: u8 = 2;

struct End {
    pair: FlorQueuePair<SimDevice>,
    queue: FlorCompletionQueue<SimDevice>,
    region: FlorRegion<<SimDevice as Device>::Region>,
}

impl End {
    fn new(device: &FlorDevice<SimDevice>, bytes: usize) -> Self {
        let domain = device.create_protection_domain().expect("a domain");
        let (pair, queue) = end(device, &domain);
        let region = device.allocate_region(&domain, bytes, Access::all());
        let region = region.expect("a region");
        Self {
            pair,
            queue,
            region,
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut one = [Completion::EMPTY];
        let count = self.queue.poll(&mut one).expect("no overrun");
        (count > 0).then_some(one[0])
    }
}

/// Two hosts and a connection between them, with regions of so many bytes.
fn connected(bytes: usize) -> (Cluster, [End; 2]) {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_5());
    let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx6036());
    let mut ends = [0, 1].map(|at| {
        let config = FlorConfig::new(Deployment::CrossPod);
        let device = FlorDevice::new(cluster.device(cluster.hosts()[at]), config);
        End::new(&device.expect("a device"), bytes)
    });
    let addresses = ends.each_ref().map(|end| end.pair.address());
    for (own, end) in ends.iter_mut().enumerate() {
        let attributes = ConnectAttributes::default();
        end.pair
            .to_ready_to_receive(Some(&addresses[1 - own]), attributes)
            .expect("RTR");
        end.pair.to_ready_to_send().expect("RTS");
    }
    (cluster, ends)
}

/// A SEND of so many bytes, and a network that is cut some time after it was posted and heals when its sender has been
/// told that it failed. Says whether it has failed.
fn cut_after(bytes: usize, until_cut_ns: u64) -> bool {
    let (cluster, [mut sender, mut receiver]) = connected(bytes);
    sender.region.memory().write(0, &vec![BEFORE; bytes]);
    let segments = whole(&receiver.region);
    let receive = ReceiveRequest {
        id: 1,
        segments: &segments,
    };
    receiver.pair.post_receive(&[receive]).expect("posted");
    let segments = whole(&sender.region);
    let (plain, payload) = (
        Operation::Send { immediate: None },
        Payload::Segments(&segments),
    );
    let request = SendRequest::new(2, plain, payload, SendFlags::SIGNALED);
    sender.pair.post_send(&[request]).expect("posted");

    let mut received = None;
    for _ in 0..until_cut_ns / 500 {
        cluster.run_for(500);
        received = received.or(receiver.poll());
    }
    let cut = cluster.fault(FaultRule::new(Fault::Drop, 1.0));
    let sent = loop {
        cluster.run_for(1_000_000);
        received = received.or(receiver.poll());
        if let Some(sent) = sender.poll() {
            break sent;
        }
    };
    if sent.status == CompletionStatus::Success {
        return false;
    }
    let before = received.is_some();
    sender.region.memory().write(0, &vec![AFTER; bytes]);
    drop(cut);
    for _ in 0..1_000 {
        cluster.run_for(1_000_000);
        let _ = sender.poll();
        received = received.or(receiver.poll());
    }
    let carried_out = received.is_some_and(|one| one.status == CompletionStatus::Success);
    assert!(
        before || !carried_out,
        "{bytes} bytes, cut after {until_cut_ns} ns: carried out late"
    );
    let mut there = vec![0; bytes];
    receiver.region.memory().read(0, &mut there);
    let expected = if carried_out { BEFORE } else { 0 };
    assert!(
        there.iter().all(|byte| *byte == expected),
        "{bytes} bytes, cut after {until_cut_ns} ns"
    );
    true
}

/// All of a region.
fn whole<R: Region>(region: &R) -> [Segment<'_, R>; 1] {
    let length = region.memory().len();
    [Segment {
        region,
        offset: 0,
        length,
    }]
}

#[test]
fn what_has_failed_is_not_carried_out_when_the_network_heals() {
    for bytes in [1 << 10, 256 << 10] {
        let failed = (0..=40).filter(|at| cut_after(bytes, at * 2_000)).count();
        assert!(failed > 0, "{bytes} bytes: none was cut off");
    }
}

/// Who refuses a request still sends the answers to those before it, also where they are messages of their own.
#[test]
fn a_read_before_a_refused_request_is_answered() {
    let bytes = 256 << 10;
    let (cluster, [mut reader, read]) = connected(bytes);
    read.region.memory().write(0, &vec![AFTER; bytes]);
    let remote = read.region.remote();
    let nowhere = RemoteAddress {
        key: RemoteKey(remote.key.0.wrapping_add(1_000)),
        ..remote
    };
    let segments = whole(&reader.region);
    let few = [Segment {
        length: 8,
        ..segments[0]
    }];
    let write = Operation::Write {
        remote: nowhere,
        immediate: None,
    };
    let requests = [(Operation::Read { remote }, &segments), (write, &few)];
    for (id, (operation, segments)) in requests.into_iter().enumerate() {
        let payload = Payload::Segments(segments);
        let request = SendRequest::new(id as u64, operation, payload, SendFlags::SIGNALED);
        reader.pair.post_send(&[request]).expect("posted");
    }
    let mut ended = Vec::new();
    for _ in 0..1_000 {
        cluster.run_for(1_000_000);
        ended.extend(reader.poll().map(|one| (one.id, one.status)));
    }
    assert_eq!(
        ended,
        [
            (0, CompletionStatus::Success),
            (1, CompletionStatus::RemoteAccess)
        ]
    );
}

/// A failure that only one end can see is told to the other, which would wait for as long as its peer acknowledges what
/// it sends: here a completion queue that nobody polls overruns.
#[test]
fn a_peer_hears_of_an_overrun() {
    let (cluster, [mut sender, mut receiver]) = connected(8);
    let mut failed = None;
    for _ in 0..10_000 {
        // As many as there is room for.
        let segments = whole(&receiver.region);
        let receive = ReceiveRequest {
            id: 1,
            segments: &segments,
        };
        let _ = receiver.pair.post_receive(&[receive]);
        let segments = whole(&sender.region);
        let (plain, payload) = (
            Operation::Send { immediate: None },
            Payload::Segments(&segments),
        );
        let request = SendRequest::new(2, plain, payload, SendFlags::SIGNALED);
        let _ = sender.pair.post_send(&[request]);
        cluster.run_for(1_000_000);
        while let Some(sent) = sender.poll() {
            if sent.status != CompletionStatus::Success {
                failed = failed.or(Some(sent.status));
            }
        }
        if failed.is_some() {
            break;
        }
    }
    assert_eq!(receiver.pair.state(), QueuePairState::Error);
    assert_eq!(failed, Some(CompletionStatus::RetryExceeded));
    let why = sender.pair.failure();
    assert_eq!(why.as_deref(), Some("the peer has closed its end"));
}
