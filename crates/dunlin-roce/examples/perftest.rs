//! Speaks with `ib_send_bw`, `ib_write_bw`, `ib_read_bw` and `ib_atomic_bw` of perftest (6.0 and later), as their
//! client or their server.
//!
//! ```text
//! perftest send|write|read|atomic server PORT          [size=65536] [count=1000]
//! perftest send|write|read|atomic client ADDRESS:PORT  [size=65536] [count=1000]
//! ```
//!
//! They need `-x` with the index of a GID of the address's family, `-s` and `-n` as here, and no `-b`. Over RC; over UC
//! with `over=uc` here and `-c UC` there (`send` and `write`). Settings of the device are variables, as
//! `DUNLIN_ROCE_ADDRESS`; the port is 4791.
//!
//! Those programs do not look at what arrives. Here memory is filled before, and has to be other bytes afterwards:
//! theirs are random.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use common::{open, print_counts, reach, setting, Failure, PATIENCE};
use dunlin_roce::{RoceCompletionQueue, RoceDevice, RoceQueuePair, RoceRegion};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, RemoteAddress,
    Segment, SendFlags, SendRequest, Transport,
};

/// What is said first: the version of their protocol, with zeros to sixteen bytes.
const VERSION: &[u8; 16] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0";
/// They move through so many bytes of a peer's memory while messages are shorter.
const CYCLE_BYTES: usize = 4096;
const CACHE_LINE_BYTES: u32 = 64;
/// READs and atomics on their way at once, at either end.
const READS: u32 = 16;
/// Requests and RECEIVEs posted at once.
const POSTED: usize = 64;
/// The form of an address: `lid:reads:qpn:psn:key:address:gid:srq:` in hexadecimal, and a zero.
const NAME_BYTES: usize = 108;
/// Bytes that were not written.
const BLANK: u8 = 0xa5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Send,
    Write,
    Read,
    Atomic,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().filter(|word| !word.contains('='));
    let (Some(test), Some(role), Some(place)) = (words.next(), words.next(), words.next()) else {
        return Err(
            "perftest send|write|read|atomic server PORT | client ADDRESS:PORT [size=BYTES] [count=N]"
                .into(),
        );
    };
    let test = match test.as_str() {
        "send" => Test::Send,
        "write" => Test::Write,
        "read" => Test::Read,
        "atomic" => Test::Atomic,
        other => return Err(format!("`{other}` is none of send, write, read, atomic").into()),
    };
    let is_client = match role.as_str() {
        "client" => true,
        "server" => false,
        other => return Err(format!("`{other}` is neither server nor client").into()),
    };
    let transport = match arguments.iter().find_map(|word| word.strip_prefix("over=")) {
        None | Some("rc") => Transport::ReliableConnection,
        Some("uc") => Transport::UnreliableConnection,
        Some(other) => return Err(format!("`{other}` is neither rc nor uc").into()),
    };
    let size = match test {
        Test::Atomic => 8,
        _ => setting(&arguments, "size=", 65536)?,
    };
    let count = setting(&arguments, "count=", 1000)?;
    let device = open()?;
    let mut end = End::new(&device, test, transport, size)?;
    let stream = if is_client {
        reach(place)?
    } else {
        TcpListener::bind(("::", place.parse()?))?.accept()?.0
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let outcome = end.run(&mut Talk { stream, is_client }, count);
    print_counts(&device);
    outcome
}

/// Their exchange over TCP: each side says the same amount, the client first.
struct Talk {
    stream: TcpStream,
    is_client: bool,
}

impl Talk {
    fn exchange<const N: usize>(&mut self, ours: &[u8; N]) -> Result<[u8; N], Failure> {
        let mut theirs = [0; N];
        if self.is_client {
            self.stream.write_all(ours)?;
            self.stream.read_exact(&mut theirs)?;
        } else {
            self.stream.read_exact(&mut theirs)?;
            self.stream.write_all(ours)?;
        }
        Ok(theirs)
    }
}

/// What each side tells of itself, again and again: it is also how they wait for each other.
fn name(address: &EndpointAddress, memory: RemoteAddress) -> [u8; NAME_BYTES] {
    let gid: String = address
        .gid
        .iter()
        .map(|byte| format!("{byte:02x}:"))
        .collect();
    let (number, psn) = (address.queue_pair, address.packet_sequence);
    let text = format!(
        "{:04x}:{READS:04x}:{number:06x}:{psn:06x}:{:08x}:{:016x}:{gid}{:08x}:",
        address.lid, memory.key.0, memory.address, 0
    );
    let mut name = [0; NAME_BYTES];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// Reads the other side's name.
fn read_name(name: &[u8], mtu_bytes: usize) -> Result<(EndpointAddress, RemoteAddress), Failure> {
    let text = std::str::from_utf8(name)?.trim_end_matches('\0');
    let parts: Vec<&str> = text.split(':').collect();
    let [lid, reads, number, psn, key, address, ref gid @ ..] = parts[..] else {
        return Err(format!("`{text}` is not an address").into());
    };
    let mut bytes = [0; 16];
    if gid.len() < bytes.len() {
        return Err(format!("`{text}` has no GID").into());
    }
    for (byte, part) in bytes.iter_mut().zip(gid) {
        *byte = u8::from_str_radix(part, 16)?;
    }
    let endpoint = EndpointAddress {
        gid: bytes,
        lid: u16::from_str_radix(lid, 16)?,
        mtu_bytes: mtu_bytes.try_into()?,
        queue_pair: u32::from_str_radix(number, 16)?,
        packet_sequence: u32::from_str_radix(psn, 16)?,
        queue_key: 0,
        // A peer that is no device of Dunlin says by its token how many READs it answers at once.
        token: u64::from_str_radix(reads, 16)?.clamp(1, READS.into()),
    };
    let memory = RemoteAddress {
        address: u64::from_str_radix(address, 16)?,
        key: dunlin_verbs::RemoteKey(u32::from_str_radix(key, 16)?),
    };
    Ok((endpoint, memory))
}

/// A queue pair with a buffer that the peer may use, and one of our own.
struct End {
    test: Test,
    size: usize,
    mtu_bytes: usize,
    pair: RoceQueuePair,
    completions: RoceCompletionQueue,
    own: RoceRegion,
    open: RoceRegion,
}

impl End {
    fn new(
        device: &RoceDevice,
        test: Test,
        transport: Transport,
        size: usize,
    ) -> Result<Self, Failure> {
        let domain = device.create_protection_domain()?;
        let completions = device.create_completion_queue(4 * POSTED, None)?;
        let config = QueuePairConfig {
            transport,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: POSTED,
            receive_queue: ReceiveQueue::Own(POSTED),
            segments: 1,
            inline_bytes: 0,
        };
        let mut pair = device.create_queue_pair(&domain, &config)?;
        let access = Access::LOCAL_WRITE
            | match test {
                Test::Send => Access::empty(),
                Test::Write => Access::REMOTE_WRITE,
                Test::Read => Access::REMOTE_READ,
                Test::Atomic => Access::REMOTE_ATOMIC,
            };
        pair.to_init(access)?;
        let bytes = size.max(CYCLE_BYTES);
        let end = Self {
            test,
            size,
            mtu_bytes: device.attributes().mtu_bytes,
            own: device.allocate_region(&domain, bytes, Access::LOCAL_WRITE)?,
            open: device.allocate_region(&domain, bytes, access)?,
            pair,
            completions,
        };
        for region in [&end.own, &end.open] {
            region.memory().fill(0, bytes, BLANK);
        }
        Ok(end)
    }

    fn run(&mut self, talk: &mut Talk, count: usize) -> Result<(), Failure> {
        let theirs = talk.exchange(VERSION)?;
        let theirs = String::from_utf8_lossy(&theirs);
        let version: f32 = theirs.trim_end_matches('\0').parse()?;
        if version < 6.0 {
            return Err(format!("perftest {theirs} is older than 6.0").into());
        }
        talk.exchange(&(CYCLE_BYTES as u32).to_be_bytes())?;
        talk.exchange(&CACHE_LINE_BYTES.to_be_bytes())?;
        // Codes of verbs: 1 is 256 bytes, 5 is 4096.
        let code = |bytes: usize| (bytes / 128).ilog2();
        let digit = char::from_digit(code(self.mtu_bytes), 10).unwrap_or('1');
        let theirs = talk.exchange(&[digit as u8, 0])?;
        let theirs = char::from(theirs[0])
            .to_digit(10)
            .filter(|code| (1..=5).contains(code));
        let theirs = theirs.ok_or("the other side's MTU is none of 256 to 4096 bytes")?;
        let mtu_bytes = self.mtu_bytes.min(128 << theirs);
        let ours = name(&self.pair.address(), self.open.remote());
        let (peer, memory) = read_name(&talk.exchange(&ours)?, mtu_bytes)?;
        self.pair
            .to_ready_to_receive(Some(&peer), ConnectAttributes::default())?;
        self.pair.to_ready_to_send()?;
        let receives = self.test == Test::Send && !talk.is_client;
        if receives {
            self.receive(POSTED.min(count))?;
        }
        // Connected; told; ready.
        talk.exchange(&ours)?;
        talk.exchange(&ours)?;
        let began = Instant::now();
        if self.test == Test::Send {
            talk.exchange(&ours)?;
        }
        if talk.is_client {
            self.post(count, memory)?;
        } else if receives {
            self.take(count)?;
        }
        if self.test != Test::Send {
            // Who has posted says that it is done, and with which figures: bytes, messages and five rates.
            talk.exchange(&ours)?;
            let reported = [self.size as u64, count as u64, 0, 0, 0];
            for value in reported {
                talk.exchange(&value.to_be_bytes())?;
            }
        }
        talk.exchange(&ours)?;
        // They may be gone by now.
        let _ = talk.stream.write_all(b"done\0");
        let arrives = match self.test {
            Test::Send => receives.then_some(&self.own),
            Test::Write | Test::Atomic => (!talk.is_client).then_some(&self.open),
            Test::Read => talk.is_client.then_some(&self.own),
        };
        if let Some(region) = arrives {
            let mut bytes = vec![0; self.size];
            region.memory().read(0, &mut bytes);
            if bytes.iter().all(|&byte| byte == BLANK) {
                return Err("nothing was written".into());
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let (size, transport) = (self.size, self.pair.transport());
        println!("{count} messages of {size} bytes over {transport} in {seconds:.3} s");
        Ok(())
    }

    fn receive(&mut self, count: usize) -> Result<(), Failure> {
        let segments = [Segment {
            region: &self.own,
            offset: 0,
            length: self.size,
        }];
        for id in 0..count as u64 {
            let segments = &segments;
            self.pair.post_receive(&[ReceiveRequest { id, segments }])?;
        }
        Ok(())
    }

    /// Takes `count` messages.
    fn take(&mut self, count: usize) -> Result<(), Failure> {
        let (mut taken, mut posted) = (0, POSTED.min(count));
        while taken < count {
            taken += poll(&mut self.completions, taken)?;
            let wanted = count.min(taken + POSTED);
            self.receive(wanted - posted)?;
            posted = wanted;
        }
        Ok(())
    }

    /// Posts `count` requests and takes their completions.
    fn post(&mut self, count: usize, remote: RemoteAddress) -> Result<(), Failure> {
        let operation = match self.test {
            Test::Send => Operation::Send { immediate: None },
            Test::Write => Operation::Write {
                remote,
                immediate: None,
            },
            Test::Read => Operation::Read { remote },
            Test::Atomic => Operation::FetchAndAdd { remote, add: 1 },
        };
        let segments = [Segment {
            region: &self.own,
            offset: 0,
            length: self.size,
        }];
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
        let (mut posted, mut ended) = (0, 0);
        while ended < count {
            while posted < count && posted < ended + POSTED {
                self.pair.post_send(&[request])?;
                posted += 1;
            }
            ended += poll(&mut self.completions, ended)?;
        }
        Ok(())
    }
}

/// Some completions, at least one; `before` of them were there before.
fn poll(completions: &mut RoceCompletionQueue, before: usize) -> Result<usize, Failure> {
    let began = Instant::now();
    let mut some = [Completion::EMPTY; 16];
    loop {
        let found = completions.poll(&mut some)?;
        if let Some(failed) = some[..found].iter().find(|one| !one.is_success()) {
            return Err(format!("after {before} messages: {failed:?}").into());
        }
        if found > 0 {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("nothing for {PATIENCE:?} after {before} messages").into());
        }
    }
}
