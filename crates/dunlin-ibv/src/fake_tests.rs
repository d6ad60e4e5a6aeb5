//! Tests that soft-RoCE does not allow: devices that are full, down or badly configured, and the error texts for users.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use dunlin_verbs::{
    Access, AnyRegion, Completion, CompletionQueue, CompletionStatus, ConnectAttributes,
    Destination, Device, EndpointAddress, Operation, Payload, Placement, PostErrorKind, QueuePair,
    QueuePairConfig, ReceiveQueue, Region, SendFlags, SendRequest, Transport, VerbsError,
};

use crate::fake::{api, complete, live, posted, script};
use crate::sys::types::Wc;
use crate::{
    IbvAddressHandle, IbvCompletionQueue, IbvConfig, IbvDevice, IbvProtectionDomain, IbvQueuePair,
    IbvRegion, IbvSharedReceiveQueue, PlacementReason,
};

pub(crate) const RC: Transport = Transport::ReliableConnection;

/// A directory in place of sysfs, with the kind of each GID.
fn sysfs(kinds: &[&str]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let root =
        std::env::temp_dir().join(format!("dunlin-ibv-sysfs-{}-{number}", std::process::id()));
    let types = root.join("class/infiniband/fake0/ports/1/gid_attrs/types");
    std::fs::create_dir_all(&types).expect("a directory");
    for (index, kind) in kinds.iter().enumerate() {
        std::fs::write(types.join(index.to_string()), kind).expect("a file");
    }
    root
}

pub(crate) fn open_with(
    kinds: &[&str],
    change: impl FnOnce(&mut IbvConfig),
) -> Result<IbvDevice, VerbsError> {
    let mut config = IbvConfig {
        sysfs: sysfs(kinds),
        ..IbvConfig::default()
    };
    change(&mut config);
    let result = IbvDevice::open_with(api(), config.clone());
    let _ = std::fs::remove_dir_all(&config.sysfs);
    result
}

pub(crate) fn open() -> IbvDevice {
    open_with(&["RoCE v2"], |_| {}).expect("a device")
}

/// The text of a failure; no object of the library may be left behind.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, VerbsError>) -> String {
    let text = result.expect_err("refused").to_string();
    println!("{text}");
    text
}

pub(crate) fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

#[test]
fn no_device() {
    script(|s| s.devices = 0);
    let text = refused(open_with(&[], |_| {}));
    says(&text, &["no RDMA device", "mlx5_ib", "rdma_rxe"]);
    assert_eq!(live(), 0);
}

#[test]
fn not_this_device() {
    let text = refused(open_with(&["RoCE v2"], |c| {
        c.device = Some("mlx5_3".into())
    }));
    says(&text, &["no such device `mlx5_3`", "fake0"]);
    assert_eq!(live(), 0);
}

#[test]
fn device_file_is_closed_to_us() {
    script(|s| s.open = Some(13));
    let text = refused(open_with(&["RoCE v2"], |_| {}));
    says(
        &text,
        &[
            "ibv_open_device",
            "Permission denied",
            "fake0",
            "--device /dev/infiniband",
        ],
    );
    assert_eq!(live(), 0);
}

#[test]
fn port_is_down() {
    script(|s| s.port_state = 1);
    let text = refused(open_with(&["RoCE v2"], |_| {}));
    says(&text, &["port 1 of fake0 is down", "ip link set"]);
    assert_eq!(live(), 0);
}

#[test]
fn no_such_port() {
    let text = refused(open_with(&["RoCE v2"], |c| c.port = Some(2)));
    says(&text, &["port", "2", "ports 1 to 1"]);
}

#[test]
fn only_version_1_gids() {
    let text = refused(open_with(&["IB/RoCE v1"], |_| {}));
    says(
        &text,
        &[
            "no RoCEv2 GID",
            "cannot be routed",
            "gid_index 0",
            "10.0.0.1",
        ],
    );
    // Its owner may insist.
    let device = open_with(&["IB/RoCE v1"], |c| c.gid_index = Some(0)).expect("asked for");
    assert_eq!(device.port().gid.index, 0);
    drop(device);
    assert_eq!(live(), 0);
}

#[test]
fn no_gid_at_all() {
    script(|s| s.gids = Vec::new());
    let text = refused(open_with(&[], |_| {}));
    says(&text, &["no GID", "ip addr add", "the GID table is empty"]);
}

#[test]
fn no_gid_of_the_address() {
    let address = "10.9.9.9".parse().expect("an address");
    let text = refused(open_with(&["RoCE v2"], |c| c.local_address = Some(address)));
    says(&text, &["10.9.9.9", "GID 0 10.0.0.1 (RoCE v2)"]);
}

#[test]
fn memory_may_not_be_locked() {
    let device = open();
    let domain = device.create_protection_domain().expect("a domain");
    script(|s| s.register = Some(12));
    let text = refused(device.allocate_region(&domain, 1 << 20, Access::LOCAL_WRITE));
    says(
        &text,
        &["ibv_reg_mr", "1048576 bytes", "RLIMIT_MEMLOCK", "ulimit -l"],
    );
    // The budget is restored.
    script(|s| s.register = None);
    device
        .allocate_region(&domain, 1 << 20, Access::LOCAL_WRITE)
        .expect("a region");
}

#[test]
fn budget_is_kept() {
    let device = open_with(&["RoCE v2"], |c| c.max_registered_bytes = 10_000).expect("a device");
    let domain = device.create_protection_domain().expect("a domain");
    let region = device.allocate_region(&domain, 6000, Access::LOCAL_WRITE);
    let text = refused(device.allocate_region(&domain, 6000, Access::LOCAL_WRITE));
    says(&text, &["max_registered_bytes", "6000", "4000 of 10000"]);
    drop(region);
    device
        .allocate_region(&domain, 10_000, Access::LOCAL_WRITE)
        .expect("all of it");
}

/// The memory of another device's region lives as long as its registration here, with no more access than was granted.
#[test]
fn memory_of_another_device() {
    let [first, second] = [open(), open()];
    let domains = [&first, &second].map(|device| device.create_protection_domain().expect("one"));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let region = first.allocate_region(&domains[0], 4096, access);
    let region: Arc<dyn AnyRegion> = Arc::new(region.expect("a region"));
    let adopted = second.adopt_region(&domains[1], &region, Access::all());
    let adopted = adopted.expect("registered").expect("adopted");
    assert_eq!(Region::access(&adopted), access);
    region.memory().write(8, b"the same");
    drop(region);
    let again = second.register_again(&domains[1], &adopted, access);
    let again = again.expect("once more");
    drop(adopted);
    let mut bytes = [0; 8];
    Region::memory(&again).read(8, &mut bytes);
    assert_eq!(&bytes, b"the same");
}

pub(crate) fn pair(device: &IbvDevice) -> Result<(IbvQueuePair, IbvCompletionQueue), VerbsError> {
    pair_in(device, &device.create_protection_domain()?)
}

pub(crate) fn pair_in(
    device: &IbvDevice,
    domain: &IbvProtectionDomain,
) -> Result<(IbvQueuePair, IbvCompletionQueue), VerbsError> {
    let queue = device.create_completion_queue(8, None)?;
    let config = QueuePairConfig {
        transport: RC,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: 4,
        receive_queue: ReceiveQueue::Own(4),
        segments: 1,
        inline_bytes: 64,
    };
    Ok((device.create_queue_pair(domain, &config)?, queue))
}

pub(crate) fn connect(pair: &mut IbvQueuePair, peer: &EndpointAddress) -> Result<(), VerbsError> {
    pair.to_init(Access::all())?;
    pair.to_ready_to_receive(Some(peer), ConnectAttributes::default())?;
    pair.to_ready_to_send()
}

#[test]
fn device_is_full() {
    // Three for the trials.
    script(|s| s.queue_pairs = Some((4, 12)));
    let device = open();
    let first = pair(&device).expect("the last one");
    let text = refused(pair(&device));
    says(
        &text,
        &[
            "ibv_create_qp",
            "RC on fake0",
            "4 sends",
            "ENOMEM",
            "fewer or smaller",
        ],
    );
    drop((first, device));
    assert_eq!(live(), 0);
}

#[test]
fn peer_cannot_be_routed() {
    let device = open();
    let (mut pair, _queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    pair.to_init(Access::all()).expect("Init");
    script(|s| s.modify = 110);
    let attributes = ConnectAttributes::default();
    let text = refused(pair.to_ready_to_receive(Some(&peer), attributes));
    says(
        &text,
        &[
            "ibv_modify_qp",
            "timed out",
            "10.0.0.1",
            "no route to the peer",
            "path MTU 1024",
        ],
    );
    let mut other_family = peer;
    other_family.gid = [0xfd; 16];
    let text = refused(pair.to_ready_to_receive(Some(&other_family), attributes));
    says(&text, &["IPv6", "10.0.0.1", "IPv4", "DUNLIN_IBV_ADDRESS"]);
    let mut infiniband = peer;
    infiniband.gid = [0; 16];
    infiniband.lid = 5;
    let text = refused(pair.to_ready_to_receive(Some(&infiniband), attributes));
    says(&text, &["LID 5", "InfiniBand", "Ethernet"]);
}

#[test]
fn limits_are_found_by_trial() {
    let device = open();
    assert_eq!(device.attributes().max_inline_bytes, 220);
    assert_eq!(device.attributes().mtu_bytes, 1024);
    let text = refused(open_with(&["RoCE v2"], |c| c.mtu_bytes = Some(4096)));
    says(&text, &["mtu_bytes", "256 to 1024"]);
    let small = open_with(&["RoCE v2"], |c| c.mtu_bytes = Some(512)).expect("a device");
    assert_eq!(small.attributes().mtu_bytes, 512);
}

#[test]
fn placement_needs_a_promise() {
    let device = open();
    assert_eq!(device.attributes().placement, Placement::Unordered);
    assert_eq!(device.placement_reason(), PlacementReason::NotPromised);
    script(|s| s.data_in_order = 1);
    assert_eq!(open().placement_reason(), PlacementReason::Provider);
    script(|s| s.data_in_order = 0);
    let told = open_with(&["RoCE v2"], |c| c.placement = Some(Placement::InOrder));
    let told = told.expect("a device");
    assert_eq!(told.attributes().placement, Placement::InOrder);
    assert_eq!(told.placement_reason(), PlacementReason::Configured);
}

pub(crate) fn write(id: u64) -> SendRequest<'static, crate::IbvRegion, crate::IbvAddressHandle> {
    let remote = dunlin_verbs::RemoteAddress {
        address: 0,
        key: dunlin_verbs::RemoteKey(0),
    };
    let operation = Operation::Write {
        remote,
        immediate: None,
    };
    SendRequest::new(id, operation, Payload::Inline(&[1; 8]), SendFlags::SIGNALED)
}

/// A provider that accepts a list in part: the error reports how far, and no entry is lost.
#[test]
fn provider_takes_a_list_in_part() {
    let device = open();
    let (mut pair, mut queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    script(|s| s.takes = 2);
    let error = pair.post_send(&[write(1), write(2), write(3)]);
    let error = error.expect_err("the third");
    assert_eq!(error.index, 2);
    assert_eq!(error.kind, PostErrorKind::Full { limit: 4 });
    pair.post_send(&[write(4), write(5)]).expect("two are free");
    let error = pair.post_send(&[write(6)]).expect_err("full");
    assert_eq!(
        (error.index, error.kind),
        (0, PostErrorKind::Full { limit: 4 })
    );
    let ids: Vec<u64> = posted().iter().map(|&(id, _)| id).collect();
    assert_eq!(ids.len(), 4);
    // The third completion also frees the two before it.
    complete(Wc {
        id: ids[2],
        status: 12,
        ..Wc::EMPTY
    });
    let mut some = [Completion::EMPTY; 4];
    assert_eq!(queue.poll(&mut some), Ok(1));
    assert_eq!(some[0].id, 4);
    assert_eq!(some[0].status, CompletionStatus::RetryExceeded);
    pair.post_send(&[write(7), write(8)]).expect("room");
}

/// A completion of a queue pair that has since been reset is ignored.
#[test]
fn completions_of_the_past_vanish() {
    let device = open();
    let (mut pair, mut queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    pair.post_send(&[write(1)]).expect("posted");
    pair.to_reset();
    complete(Wc {
        id: posted()[0].0,
        ..Wc::EMPTY
    });
    let mut some = [Completion::EMPTY; 4];
    assert_eq!(queue.poll(&mut some), Ok(0));
}

#[test]
fn channel_is_refused() {
    let text = refused(open().create_completion_channel());
    says(
        &text,
        &["ibv_create_comp_channel", "Too many open files", "fake0"],
    );
}

const UD: Transport = Transport::UnreliableDatagram;

pub(crate) fn config<'a>(
    transport: Transport,
    sends: &'a IbvCompletionQueue,
    receives: &'a IbvCompletionQueue,
) -> QueuePairConfig<'a, IbvCompletionQueue, IbvSharedReceiveQueue> {
    QueuePairConfig {
        transport,
        send_completions: sends,
        receive_completions: receives,
        send_requests: 4,
        receive_queue: ReceiveQueue::Own(4),
        segments: 1,
        inline_bytes: 64,
    }
}

/// A queue pair for datagrams that may send.
pub(crate) fn datagrams(
    device: &IbvDevice,
    domain: &IbvProtectionDomain,
) -> (IbvQueuePair, IbvCompletionQueue) {
    let queue = device.create_completion_queue(8, None).expect("a queue");
    let pair = device.create_queue_pair(domain, &config(UD, &queue, &queue));
    let mut pair = pair.expect("a queue pair");
    pair.to_init(Access::LOCAL_WRITE).expect("Init");
    let attributes = ConnectAttributes::default();
    pair.to_ready_to_receive(None, attributes).expect("RTR");
    pair.to_ready_to_send().expect("RTS");
    (pair, queue)
}

pub(crate) fn datagram(
    id: u64,
    handle: &IbvAddressHandle,
) -> SendRequest<'_, IbvRegion, IbvAddressHandle> {
    let operation = Operation::Send { immediate: None };
    let inline = Payload::Inline(&[1; 8]);
    let mut request = SendRequest::new(id, operation, inline, SendFlags::SIGNALED);
    request.destination = Some(Destination {
        handle,
        queue_pair: 1,
        queue_key: 2,
    });
    request
}

/// Objects of two devices must not be combined: a provider would take them for its own.
#[test]
fn objects_of_another_device_are_refused() {
    script(|s| (s.channels, s.handles) = (true, true));
    let [ours, theirs] = [open(), open()];
    let channel = theirs.create_completion_channel().expect("a channel");
    let text = refused(ours.create_completion_queue(8, Some(&channel)));
    says(&text, &["channel", "another device"]);

    let domain = ours.create_protection_domain().expect("a domain");
    let [here, there] =
        [&ours, &theirs].map(|device| device.create_completion_queue(8, None).expect("a queue"));
    let text = refused(ours.create_queue_pair(&domain, &config(RC, &there, &here)));
    says(&text, &["send_completions", "another device"]);
    let text = refused(ours.create_queue_pair(&domain, &config(RC, &here, &there)));
    says(&text, &["receive_completions", "another device"]);

    let (mut pair, _queue) = datagrams(&ours, &domain);
    let to = pair.address();
    let other = theirs.create_protection_domain().expect("a domain");
    let handle = theirs.create_address_handle(&other, &to).expect("a handle");
    let error = pair
        .post_send(&[datagram(1, &handle)])
        .expect_err("foreign");
    assert_eq!((error.index, error.kind), (0, PostErrorKind::Verb(UD)));
    let handle = ours.create_address_handle(&domain, &to).expect("a handle");
    pair.post_send(&[datagram(1, &handle)]).expect("posted");
}
