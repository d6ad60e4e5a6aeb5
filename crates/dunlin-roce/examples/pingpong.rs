//! Speaks with `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong` of rdma-core, as their client or their
//! server.
//!
//! ```text
//! pingpong rc|uc|ud server PORT          [size=4096] [count=1000]
//! pingpong rc|uc|ud client ADDRESS:PORT  [size=4096] [count=1000]
//! ```
//!
//! Settings of the device are variables, as `DUNLIN_ROCE_ADDRESS`; the port is 4791 and the queue key the one that
//! those programs have agreed on, 0x11111111. They need `-g` with the index of a GID of the address's family.
//!
//! Those programs send back what they have received, from the same buffer. So each message that leaves here has bytes
//! of its own, and each that comes back is compared with them.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use common::{open, print_counts, reach, setting, Failure, PATIENCE, QUEUE_KEY};
use dunlin_roce::{RoceAddressHandle, RoceCompletionQueue, RoceDevice, RoceQueuePair, RoceRegion};
use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionQueue, ConnectAttributes, Destination, Device,
    EndpointAddress, Operation, Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest,
    Region, Segment, SendFlags, SendRequest, Transport, GRH_BYTES,
};

/// RECEIVEs posted at once.
const RECEIVES: u64 = 16;
/// What the other end is called in their protocol: `lid:qpn:psn:gid` in hexadecimal, and a zero.
const NAME_BYTES: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().filter(|word| !word.contains('='));
    let (Some(transport), Some(role), Some(place)) = (words.next(), words.next(), words.next())
    else {
        return Err(
            "pingpong rc|uc|ud server PORT | client ADDRESS:PORT [size=BYTES] [count=N]".into(),
        );
    };
    let transport = match transport.as_str() {
        "rc" => Transport::ReliableConnection,
        "uc" => Transport::UnreliableConnection,
        "ud" => Transport::UnreliableDatagram,
        other => return Err(format!("`{other}` is none of rc, uc, ud").into()),
    };
    let device = open()?;
    let mut end = End::new(&device, transport, setting(&arguments, "size=", 4096)?)?;
    let is_server = match role.as_str() {
        "server" => true,
        "client" => false,
        other => return Err(format!("`{other}` is neither server nor client").into()),
    };
    if is_server {
        let (mut stream, _) = TcpListener::bind(("::", place.parse()?))?.accept()?;
        let theirs = read_name(&mut stream)?;
        end.connect(&device, &theirs)?;
        write_name(&mut stream, &end.pair.address())?;
        // They say when they have read that.
        let _ = stream.read(&mut [0; 16])?;
    } else {
        let mut stream = reach(place)?;
        write_name(&mut stream, &end.pair.address())?;
        let theirs = read_name(&mut stream)?;
        stream.write_all(b"done\0")?;
        end.connect(&device, &theirs)?;
    }
    let outcome = end.exchange(setting(&arguments, "count=", 1000)?, !is_server);
    print_counts(&device);
    outcome
}

fn write_name(stream: &mut TcpStream, address: &EndpointAddress) -> Result<(), Failure> {
    let gid: String = address
        .gid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let (number, psn) = (address.queue_pair, address.packet_sequence);
    let name = format!("{:04x}:{number:06x}:{psn:06x}:{gid}\0", address.lid);
    Ok(stream.write_all(name.as_bytes())?)
}

fn read_name(stream: &mut TcpStream) -> Result<EndpointAddress, Failure> {
    let mut name = [0; NAME_BYTES];
    stream.read_exact(&mut name)?;
    let name = std::str::from_utf8(&name)?.trim_end_matches('\0');
    let parts: Vec<&str> = name.split(':').collect();
    let [lid, number, psn, gid] = parts[..] else {
        return Err(format!("`{name}` is not lid:qpn:psn:gid").into());
    };
    Ok(EndpointAddress {
        gid: u128::from_str_radix(gid, 16)?.to_be_bytes(),
        lid: u16::from_str_radix(lid, 16)?,
        // Their own default, which they do not say; this side's is taken where it is less.
        mtu_bytes: 1024,
        queue_pair: u32::from_str_radix(number, 16)?,
        packet_sequence: u32::from_str_radix(psn, 16)?,
        queue_key: QUEUE_KEY,
        token: 0,
    })
}

/// A queue pair, one buffer to send from and one to receive into.
struct End {
    transport: Transport,
    size: usize,
    /// Where a message begins in the buffer for RECEIVEs.
    header_bytes: usize,
    pair: RoceQueuePair,
    completions: RoceCompletionQueue,
    outgoing: RoceRegion,
    incoming: RoceRegion,
    peer: Option<(RoceAddressHandle, EndpointAddress)>,
}

impl End {
    fn new(device: &RoceDevice, transport: Transport, size: usize) -> Result<Self, Failure> {
        let domain = device.create_protection_domain()?;
        let completions = device.create_completion_queue(64, None)?;
        let pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: 1,
                receive_queue: ReceiveQueue::Own(RECEIVES as usize),
                segments: 1,
                inline_bytes: 0,
            },
        )?;
        let header_bytes = match transport {
            Transport::UnreliableDatagram => GRH_BYTES,
            _ => 0,
        };
        let region =
            |bytes: usize| device.allocate_region(&domain, bytes.max(1), Access::LOCAL_WRITE);
        let mut end = Self {
            transport,
            size,
            header_bytes,
            pair,
            completions,
            outgoing: region(size)?,
            incoming: region(header_bytes + size)?,
            peer: None,
        };
        end.pair.to_init(Access::LOCAL_WRITE)?;
        for _ in 0..RECEIVES {
            end.receive()?;
        }
        Ok(end)
    }

    fn connect(&mut self, device: &RoceDevice, theirs: &EndpointAddress) -> Result<(), Failure> {
        let attributes = ConnectAttributes::default();
        if self.transport == Transport::UnreliableDatagram {
            let domain = device.create_protection_domain()?;
            let handle = device.create_address_handle(&domain, theirs)?;
            self.peer = Some((handle, *theirs));
            self.pair.to_ready_to_receive(None, attributes)?;
        } else {
            self.pair.to_ready_to_receive(Some(theirs), attributes)?;
        }
        Ok(self.pair.to_ready_to_send()?)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let segments = [Segment {
            region: &self.incoming,
            offset: 0,
            length: self.header_bytes + self.size,
        }];
        let request = ReceiveRequest {
            id: 0,
            segments: &segments,
        };
        Ok(self.pair.post_receive(&[request])?)
    }

    fn send(&mut self) -> Result<(), Failure> {
        let segments = [Segment {
            region: &self.outgoing,
            offset: 0,
            length: self.size,
        }];
        let operation = Operation::Send { immediate: None };
        let mut request = SendRequest::new(
            1,
            operation,
            Payload::Segments(&segments),
            SendFlags::SIGNALED,
        );
        request.destination = self.peer.as_ref().map(|(handle, address)| Destination {
            handle,
            queue_pair: address.queue_pair,
            queue_key: address.queue_key,
        });
        Ok(self.pair.post_send(&[request])?)
    }

    /// `count` messages in each direction, one after the other.
    fn exchange(&mut self, count: usize, begins: bool) -> Result<(), Failure> {
        let (mut sent, mut ended, mut received, mut echoes) = (0, 0, 0, 0);
        let mut bytes = vec![0; self.size];
        let mut expected: Option<Vec<u8>> = None;
        let began = Instant::now();
        if begins {
            expected = Some(self.fill(sent));
            self.send()?;
            sent += 1;
        }
        let mut last = Instant::now();
        while ended < count || received < count {
            let mut some = [Completion::EMPTY; 8];
            let found = self.completions.poll(&mut some)?;
            if found == 0 && last.elapsed() > PATIENCE {
                let (ends, state) = (format!("{ended} of {sent} sends"), self.pair.state());
                return Err(format!(
                    "nothing for {PATIENCE:?}: {ends} ended, {received} received, {state:?}"
                )
                .into());
            }
            for completion in &some[..found] {
                last = Instant::now();
                if !completion.is_success() {
                    return Err(format!(
                        "after {ended} sends and {received} received: {completion:?}"
                    )
                    .into());
                }
                if completion.opcode == CompletionOpcode::Send {
                    ended += 1;
                    continue;
                }
                received += 1;
                if completion.bytes != self.header_bytes + self.size {
                    return Err(
                        format!("message {received} has another length: {completion:?}").into(),
                    );
                }
                self.incoming.memory().read(self.header_bytes, &mut bytes);
                if let Some(expected) = expected.take() {
                    if bytes != expected {
                        return Err(format!("message {received} came back with other bytes").into());
                    }
                    echoes += 1;
                }
                self.receive()?;
            }
            // The next message is the answer to the last, and the send queue holds one.
            if sent < count && sent == ended && received >= sent + usize::from(!begins) {
                expected = Some(self.fill(sent));
                self.send()?;
                sent += 1;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let each = seconds * 1e6 / count as f64;
        println!(
            "{} of {} bytes: {count} each way in {seconds:.3} s, {each:.1} us each, {echoes} came back unchanged",
            self.transport, self.size
        );
        Ok(())
    }

    /// Fills the buffer with bytes of message `number`, and returns them.
    fn fill(&mut self, number: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.size)
            .map(|place| (place ^ (place >> 8) ^ (place >> 16) ^ number ^ 0x55) as u8)
            .collect();
        self.outgoing.memory().write(0, &bytes);
        bytes
    }
}
