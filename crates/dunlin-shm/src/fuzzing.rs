//! Access to internals for the fuzz targets `shm_port` and `shm_control` in `/fuzz` and for this crate's tests of
//! hostile peers. Not part of the interface; nothing else may use it.
//!
//! It provides two queue pairs of two devices of this process, and the port between them, whose words may be written as
//! its sender could.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Destination, Device, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Segment, SendFlags,
    SendRequest, Transport,
};

pub use crate::control::fuzzed::FuzzedControl;
use crate::port::{PortMap, Record, RecordKind};
use crate::{
    ShmAddressHandle, ShmCompletionChannel, ShmCompletionQueue, ShmConfig, ShmDevice,
    ShmProtectionDomain, ShmQueuePair, ShmRegion, ShmSharedReceiveQueue,
};

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where a RECEIVE stores its bytes, and how many it accepts.
const RECEIVE_AT: usize = 1000;
const RECEIVE_BYTES: usize = 3000;

/// One side: a device with a queue pair.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) device: ShmDevice,
    domain: ShmProtectionDomain,
    pub(crate) region: ShmRegion,
    pub(crate) queue: ShmCompletionQueue,
    pub(crate) pair: ShmQueuePair,
}

impl Side {
    pub(crate) fn new(transport: Transport) -> Self {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        Self::on(device, transport, None)
    }

    /// Creates a side on a device, with arrivals that raise events of a channel.
    pub(crate) fn on(
        device: ShmDevice,
        transport: Transport,
        channel: Option<&ShmCompletionChannel>,
    ) -> Self {
        let domain = device.create_protection_domain().unwrap();
        let region = device
            .allocate_region(&domain, 1 << 16, Access::all())
            .unwrap();
        let queue = device.create_completion_queue(256, channel).unwrap();
        let config = QueuePairConfig {
            transport,
            send_completions: &queue,
            receive_completions: &queue,
            send_requests: 32,
            receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
            segments: 2,
            inline_bytes: 256,
        };
        let pair = device.create_queue_pair(&domain, &config).unwrap();
        Self {
            device,
            domain,
            region,
            queue,
            pair,
        }
    }

    /// Posts a RECEIVE, if there is space for one.
    pub(crate) fn receive(&mut self) {
        let segments = [Segment {
            region: &self.region,
            offset: RECEIVE_AT,
            length: RECEIVE_BYTES,
        }];
        let _ = self.pair.post_receive(&[ReceiveRequest {
            id: 1,
            segments: &segments,
        }]);
    }

    /// Sends a message to `peer`, if the send queue accepts it.
    pub(crate) fn send(&mut self, peer: &Side) {
        let to = peer.pair.address();
        let datagram = self.pair.transport() == Transport::UnreliableDatagram;
        let handle: Option<ShmAddressHandle> = datagram.then(|| {
            self.device
                .create_address_handle(&self.domain, &to)
                .unwrap()
        });
        let mut request = SendRequest::new(
            1,
            Operation::Send { immediate: None },
            Payload::Inline(&[7; 200]),
            SendFlags::SIGNALED,
        );
        request.destination = handle.as_ref().map(|handle| Destination {
            handle,
            queue_pair: to.queue_pair,
            queue_key: to.queue_key,
        });
        let _ = self.pair.post_send(&[request]);
    }

    /// Takes what has completed.
    ///
    /// # Panics
    /// When a RECEIVE reports more bytes than it has space for.
    pub(crate) fn poll(&mut self) -> usize {
        let mut completions = [Completion::EMPTY; 8];
        let taken = self.queue.poll(&mut completions).unwrap();
        for completion in &completions[..taken] {
            assert!(completion.bytes <= RECEIVE_BYTES, "{completion:?}");
        }
        taken
    }
}

/// Reconnects both sides, whatever their state.
pub(crate) fn connect(a: &mut Side, b: &mut Side) {
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    for (side, remote) in [(a, at_b), (b, at_a)] {
        let datagram = side.pair.transport() == Transport::UnreliableDatagram;
        side.pair.to_reset();
        side.pair.to_init(Access::all()).unwrap();
        side.pair
            .to_ready_to_receive((!datagram).then_some(&remote), ConnectAttributes::default())
            .unwrap();
        side.pair.to_ready_to_send().unwrap();
    }
}

/// [`connect`], and one message across, so that `b` has the port that `a` writes.
pub(crate) fn meet(a: &mut Side, b: &mut Side) -> Arc<PortMap> {
    connect(a, b);
    b.receive();
    a.send(b);
    let started = Instant::now();
    let mut seen = 0;
    while seen < 2 {
        seen += a.poll() + b.poll();
        assert!(started.elapsed() < PATIENCE, "a message does not arrive");
    }
    b.pair.inbound_port().expect("a message came through it")
}

/// A port whose sender may do anything.
#[derive(Debug)]
pub struct FuzzedPort {
    a: Side,
    b: Side,
}

impl FuzzedPort {
    /// For a transport given by its number: RC, UC, UD.
    ///
    /// # Panics
    /// When this machine has no memory.
    pub fn new(transport: u8) -> Self {
        let transport = match transport % 3 {
            0 => Transport::ReliableConnection,
            1 => Transport::UnreliableConnection,
            _ => Transport::UnreliableDatagram,
        };
        Self {
            a: Side::new(transport),
            b: Side::new(transport),
        }
    }

    /// Runs the receiver while words of the port change: ten bytes of `bytes` are one step, of either side.
    ///
    /// # Panics
    /// When the receiver delivers more than it has space for, or reports endlessly.
    pub fn receive(&mut self, bytes: &[u8]) {
        let port = meet(&mut self.a, &mut self.b);
        let words = port.words_for_tests();
        let data_at = words - port.geometry().data_bytes as usize / 8;
        for step in bytes.chunks_exact(10) {
            let place = usize::from(step[1]);
            let value = u64::from_le_bytes(std::array::from_fn(|i| step[2 + i]));
            let set = |at: usize, value| {
                port.word_for_tests(at % words)
                    .store(value, Ordering::SeqCst);
            };
            match step[0] % 8 {
                0 => set(0, value),
                1 => set(place % 48, value),
                2 => set(data_at + place, value),
                3 => self.b.receive(),
                4 => self.a.send(&self.b),
                5 => {
                    self.b.poll();
                }
                // A record that is nearly valid, behind what the receiver has taken.
                _ => {
                    let taken = port.word_for_tests(8).load(Ordering::SeqCst);
                    let record = Record {
                        kind: [
                            RecordKind::Send,
                            RecordKind::SendImmediate,
                            RecordKind::WriteImmediate,
                            RecordKind::TooLong,
                        ][place % 4],
                        solicited: place & 4 != 0,
                        first: place & 8 != 0,
                        more: place & 16 != 0,
                        bytes: value as u32 & 0x1fff,
                        total: (value >> 16) as u32 & 0x1fff,
                        immediate: value as u32,
                    };
                    let at = data_at + (taken as usize / 8) % (words - data_at);
                    for (at, word) in (at..).zip(record.encode()) {
                        set(at, word);
                    }
                    let tail = match place & 32 {
                        0 => taken.wrapping_add(record.ring_bytes()),
                        _ => taken.wrapping_add(value >> 48),
                    };
                    set(0, tail);
                    self.b.poll();
                }
            }
        }
        // A flood of records is taken piece by piece, and ends with what the port holds.
        let limit = words + 64;
        assert!(
            (0..limit).any(|_| self.b.poll() == 0),
            "completions without end"
        );
        while self.a.poll() > 0 {}
    }
}
