//! A hostile client of datagrams.

mod acts;

use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionQueue, ConnectAttributes, Destination, Device,
    EndpointAddress, Operation, Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest,
    Region, Segment, SendFlags, SendRequest, Transport, GRH_BYTES,
};

use super::{has_marker, wait_for, Door, ECHO};
use crate::channel::datagram::packet::{Head, Packet};
use crate::channel::datagram::written::{UnconnectedUplink, Uplink};
use crate::channel::datagram::Greeting;
use crate::channel::message::{Header, Kind};
use crate::Preset;

/// Number of RECEIVEs of a sender, and the size of each in bytes.
const RECEIVES: usize = 16;
const RECEIVE_BYTES: usize = GRH_BYTES + PACKET_BYTES;
/// Longest datagram.
const PACKET_BYTES: usize = 4096;

/// A hostile datagram queue pair.
pub(crate) struct Sender<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    handle: D::AddressHandle,
    to: EndpointAddress,
    /// The memory in which answers arrive, followed by what is sent.
    memory: D::Region,
    /// The server's greeting.
    pub(crate) theirs: Greeting,
    /// The zone into which requests are written, with `herd`.
    pub(crate) uplink: Option<Uplink<D>>,
}

impl<D: Device> Sender<D> {
    /// Makes the handshake of a client.
    pub(crate) fn open(device: &D, door: &Door, preset: Preset) -> Self {
        let domain = device.create_protection_domain().expect("a domain");
        let completions = device.create_completion_queue(256, None).expect("a queue");
        let config = QueuePairConfig {
            transport: Transport::UnreliableDatagram,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: 64,
            receive_queue: ReceiveQueue::Own(RECEIVES),
            segments: 1,
            inline_bytes: 0,
        };
        let queue_pair = device.create_queue_pair(&domain, &config);
        let mut queue_pair = queue_pair.expect("a queue pair");
        let ready = queue_pair
            .to_init(Access::empty())
            .and_then(|()| queue_pair.to_ready_to_receive(None, ConnectAttributes::default()))
            .and_then(|()| queue_pair.to_ready_to_send());
        ready.expect("a new queue pair");
        let packet_bytes = device.attributes().mtu_bytes.min(PACKET_BYTES);
        let ours = Greeting {
            to: Head {
                cookie: 1,
                session: 0,
                ..Head::default()
            },
            packet_bytes,
            longest: 1 << 20,
            calls: 16,
        };
        let mut parameters = ours.parameters();
        let uplink = (preset == Preset::Herd).then(|| UnconnectedUplink::new(device).expect("UC"));
        if let Some(uplink) = &uplink {
            uplink.tell(&mut parameters);
        }
        let reply = door.open(preset.name(), queue_pair.address(), parameters);
        let mut theirs = Greeting::read(&reply.parameters).expect("a session");
        theirs.packet_bytes = theirs.packet_bytes.min(packet_bytes);
        let bytes = RECEIVES * RECEIVE_BYTES + PACKET_BYTES;
        let memory = device.allocate_region(&domain, bytes, Access::LOCAL_WRITE);
        let handle = device.create_address_handle(&domain, &reply.endpoint);
        let mut sender = Self {
            handle: handle.expect("the server's address"),
            queue_pair,
            completions,
            to: reply.endpoint,
            memory: memory.expect("memory"),
            theirs,
            uplink: uplink.map(|uplink| uplink.join(&reply.parameters).expect("a zone")),
        };
        (0..RECEIVES).for_each(|place| sender.receive(place));
        sender
    }

    /// Posts the RECEIVE at an index.
    fn receive(&mut self, place: usize) {
        let segment = [Segment {
            region: &self.memory,
            offset: place * RECEIVE_BYTES,
            length: RECEIVE_BYTES,
        }];
        let request = ReceiveRequest {
            id: place as u64,
            segments: &segment,
        };
        self.queue_pair.post_receive(&[request]).expect("room");
    }

    /// Sends a datagram to the server. Returns `false` if the queue pair has failed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.send_to(self.to.queue_pair, self.to.queue_key, bytes)
    }

    /// As [`Sender::send`], to any queue pair of its device.
    fn send_to(&mut self, queue_pair: u32, queue_key: u32, bytes: &[u8]) -> bool {
        let offset = RECEIVES * RECEIVE_BYTES;
        self.memory.memory().write(offset, bytes);
        let segment = [Segment {
            region: &self.memory,
            offset,
            length: bytes.len(),
        }];
        let operation = Operation::Send { immediate: None };
        let segments = if bytes.is_empty() { &[][..] } else { &segment };
        let payload = Payload::Segments(segments);
        let mut request = SendRequest::new(0, operation, payload, SendFlags::SIGNALED);
        request.destination = Some(Destination {
            handle: &self.handle,
            queue_pair,
            queue_key,
        });
        if self.queue_pair.post_send(&[request]).is_err() {
            return false;
        }
        let mut completions = [Completion::EMPTY; 16];
        let mut sent = None;
        wait_for("the datagram leaves", || {
            let count = self.completions.poll(&mut completions).expect("room");
            for completion in &completions[..count] {
                if !completion.is_success() {
                    sent = Some(false);
                } else if completion.opcode != CompletionOpcode::Receive {
                    sent = Some(true);
                } else {
                    self.saw_nothing(completion.id as usize, completion.bytes);
                    self.receive(completion.id as usize);
                }
            }
            sent.is_some()
        });
        sent == Some(true)
    }

    /// Checks that what arrived at an index is an answer to its own calls.
    fn saw_nothing(&self, place: usize, length: usize) {
        let mut bytes = vec![0; length];
        self.memory.memory().read(place * RECEIVE_BYTES, &mut bytes);
        assert!(!has_marker(&bytes), "a good client's call in a datagram");
    }

    /// Sends a datagram with one message of this kind.
    pub(crate) fn message(&mut self, kind: Kind, call: u64, payload: &[u8]) -> bool {
        let mut packet = Packet::new(self.theirs.packet_bytes);
        packet.push(
            Header {
                length: payload.len() as u32,
                handler: ECHO,
                kind,
                call,
            },
            payload,
        );
        packet.seal(self.theirs.to);
        let bytes = packet.bytes().to_vec();
        self.send(&bytes)
    }

    /// Sends a datagram with this many messages of this kind, or as many as fit.
    pub(crate) fn many(&mut self, kind: Kind, messages: usize) -> bool {
        let mut packet = Packet::new(self.theirs.packet_bytes);
        for _ in 0..messages {
            if !packet.fits(0) {
                break;
            }
            packet.push(Header::new(kind, ECHO, 0, 0), &[]);
        }
        packet.seal(self.theirs.to);
        let bytes = packet.bytes().to_vec();
        self.send(&bytes)
    }
}
