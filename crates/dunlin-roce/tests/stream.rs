//! A long stream of SENDs, WRITEs, READs and atomics of mixed sizes in both directions between two processes: each
//! message arrives once, in order and whole, and each WRITE and atomic is carried out once.
//!
//! By itself over loopback; `netns/run stream` runs it between two network namespaces, over a network that loses,
//! doubles and delays packets. `DUNLIN_ROCE_STREAM_REQUESTS` says how many requests each end posts, `DUNLIN_ROCE_SEED`
//! which.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use dunlin_roce::{Count, RoceConfig, RoceDevice, RoceRegion};
use dunlin_verbs::conformance::{
    child_command, pattern, piece, wait, Endpoint, Message, Op, Options, PATIENCE,
};
use dunlin_verbs::{
    Access, CompletionOpcode, CompletionStatus, Device, EndpointAddress, Operation, QueuePair,
    Region, RemoteAddress, Transport, ENDPOINT_ADDRESS_BYTES,
};

/// Set in the child; its standard input is a socket to its parent.
const CHILD: &str = "DUNLIN_ROCE_STREAM_CHILD";
/// Set where the network marks packets: both ends must have seen that.
const MARKED: &str = "DUNLIN_ROCE_STREAM_MARKED";
/// The longest message: some packets at the largest MTU, and a partial one.
const LONGEST: usize = 70_000;
/// Requests on their way, and RECEIVEs posted: a few messages find no RECEIVE where the receiver is slow.
const OUTSTANDING: usize = 16;
/// What is read: any part of it.
const SOURCE: usize = 1 << 20;
/// The seed of what is read; those of messages are smaller.
const SOURCE_SEED: u64 = 1 << 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What one end posts as its request of a number. Both ends know both plans.
#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: Kind,
    bytes: usize,
    /// Tells its bytes from those of others; of a READ, where it reads.
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
    Add,
}

fn plan(seed: u64, end: u64, count: u64) -> impl Iterator<Item = Planned> {
    (0..count).map(move |index| {
        let seed = (seed << 40) ^ (end << 32) ^ index;
        // The generator of patterns is as good a source as any.
        let random = pattern(seed, 12);
        let word = |at: usize| u32::from_le_bytes(random[at..at + 4].try_into().unwrap()) as usize;
        let kind = match word(0) % 20 {
            0..9 => Kind::Send,
            9..14 => Kind::Write,
            14..18 => Kind::Read,
            _ => Kind::Add,
        };
        let bytes = match word(4) % 4 {
            _ if kind == Kind::Add => 8,
            0 => word(8) % 64,
            1 | 2 => word(8) % 5_000,
            _ => word(8) % LONGEST,
        };
        Planned { kind, bytes, seed }
    })
}

/// One end with its memory.
struct End {
    device: RoceDevice,
    endpoint: Endpoint<RoceDevice>,
    /// One slot for each request on its way: what is sent, and where answers land.
    requests: RoceRegion,
    /// One slot for each RECEIVE.
    receives: RoceRegion,
    /// Where the peer WRITEs: as many slots as there are RECEIVEs, each WRITE taking one.
    written: RoceRegion,
    source: RoceRegion,
    counter: RoceRegion,
}

/// Where the peer's memory is.
struct Theirs {
    address: EndpointAddress,
    written: RemoteAddress,
    source: RemoteAddress,
    counter: RemoteAddress,
}

impl End {
    fn open() -> Self {
        let mut config = RoceConfig::from_environment().expect("the environment");
        config.local_address = config.local_address.or(Some(Ipv4Addr::LOCALHOST.into()));
        let device = RoceDevice::open(config).expect("a device");
        let domain = device.create_protection_domain().expect("a domain");
        let mut options = Options::new(Transport::ReliableConnection);
        options.send_requests = OUTSTANDING;
        options.receive_requests = OUTSTANDING;
        let region = |bytes| {
            let access = Access::all();
            device
                .allocate_region(&domain, bytes, access)
                .expect("a region")
        };
        let end = Self {
            endpoint: Endpoint::new(&device, &domain, &options, None).expect("an endpoint"),
            requests: region(OUTSTANDING * LONGEST),
            receives: region(OUTSTANDING * LONGEST),
            written: region(OUTSTANDING * LONGEST),
            source: region(SOURCE),
            counter: region(8),
            device,
        };
        let bytes = pattern(SOURCE_SEED, SOURCE);
        end.source.memory().write(0, &bytes);
        end
    }

    /// Says where everything is, and learns where theirs is.
    fn meet(&mut self, stream: &mut UnixStream) -> Theirs {
        let remotes = [&self.written, &self.source, &self.counter].map(Region::remote);
        let numbers: Vec<u64> = remotes
            .iter()
            .flat_map(|remote| [remote.address, remote.key.0.into()])
            .collect();
        let address = self.endpoint.queue_pair.address().encode();
        let hello = Message::new(Op::Address, numbers).with_bytes(address);
        hello.write_to(stream).expect("the peer listens");
        let theirs = Message::read_from(stream).expect("the peer's addresses");
        let remote = |at: usize| {
            let mut remote = self.written.remote();
            remote.address = theirs.number(2 * at);
            remote.key.0 = theirs.word(2 * at + 1);
            remote
        };
        let bytes: [u8; ENDPOINT_ADDRESS_BYTES] = theirs.bytes[..].try_into().expect("an address");
        Theirs {
            address: EndpointAddress::decode(&bytes),
            written: remote(0),
            source: remote(1),
            counter: remote(2),
        }
    }

    fn post_receive(&mut self, number: usize) {
        let slot = number % OUTSTANDING;
        let place = piece(&self.receives, slot * LONGEST, LONGEST);
        self.endpoint.receive(number as u64, &[place]);
    }

    fn post(&mut self, number: u64, planned: Planned, writes: usize, theirs: &Theirs) {
        let slot = number as usize % OUTSTANDING * LONGEST;
        let immediate = Some(number as u32);
        let operation = match planned.kind {
            Kind::Send => Operation::Send { immediate },
            Kind::Write => Operation::Write {
                remote: theirs.written.plus((writes % OUTSTANDING * LONGEST) as u64),
                immediate,
            },
            Kind::Read => Operation::Read {
                remote: theirs.source.plus(read_from(planned) as u64),
            },
            Kind::Add => Operation::FetchAndAdd {
                remote: theirs.counter,
                add: 1,
            },
        };
        if matches!(planned.kind, Kind::Send | Kind::Write) {
            let bytes = pattern(planned.seed, planned.bytes);
            self.requests.memory().write(slot, &bytes);
        }
        let place = piece(&self.requests, slot, planned.bytes);
        self.endpoint.post(number, operation, &[place]);
    }
}

fn read_from(planned: Planned) -> usize {
    planned.seed as usize * 4_093 % (SOURCE - LONGEST)
}

fn bytes_of(region: &RoceRegion, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    region.memory().read(offset, &mut bytes);
    bytes
}

/// Posts the plan of `end`, and checks that of the other.
fn exchange(end: u64, stream: &mut UnixStream) {
    let seed = number("DUNLIN_ROCE_SEED").unwrap_or(1);
    let count = number("DUNLIN_ROCE_STREAM_REQUESTS").unwrap_or(2_000);
    let mut own = End::open();
    let theirs = own.meet(stream);
    let attributes = Options::new(Transport::ReliableConnection).attributes;
    own.endpoint
        .connect(Some(&theirs.address), attributes)
        .expect("connects");
    for number in 0..OUTSTANDING {
        own.post_receive(number);
    }
    let source = pattern(SOURCE_SEED, SOURCE);
    let requests: Vec<Planned> = plan(seed, end, count).collect();
    let inbound: Vec<(u32, Planned)> = (0..)
        .zip(plan(seed, 1 - end, count))
        .filter(|(_, planned)| matches!(planned.kind, Kind::Send | Kind::Write))
        .collect();
    let (mut posted, mut ended, mut arrived) = (0, 0, 0);
    let (mut writes, mut adds, mut written) = (0, 0, 0);
    while ended < requests.len() || arrived < inbound.len() {
        while posted < requests.len() && posted - ended < OUTSTANDING {
            let planned = requests[posted];
            own.post(posted as u64, planned, writes, &theirs);
            writes += usize::from(planned.kind == Kind::Write);
            posted += 1;
        }
        let completion = wait("a completion", || own.endpoint.poll());
        assert_eq!(completion.status, CompletionStatus::Success);
        let (memory, offset, expected) = match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteWithImmediate => {
                assert_eq!(completion.id, arrived as u64, "RECEIVEs are used in order");
                let (number, planned) = inbound[arrived];
                assert_eq!(completion.immediate, Some(number), "each once, in order");
                assert_eq!(completion.bytes, planned.bytes);
                let write = completion.opcode == CompletionOpcode::ReceiveWriteWithImmediate;
                assert_eq!(write, planned.kind == Kind::Write);
                let slot = if write { written } else { arrived } % OUTSTANDING;
                written += usize::from(write);
                let memory = if write { &own.written } else { &own.receives };
                (memory, slot * LONGEST, pattern(planned.seed, planned.bytes))
            }
            _ => {
                assert_eq!(completion.id, ended as u64, "requests end in order");
                let planned = requests[ended];
                let expected = match planned.kind {
                    Kind::Send | Kind::Write => Vec::new(),
                    Kind::Read => source[read_from(planned)..][..planned.bytes].to_vec(),
                    Kind::Add => u64::to_ne_bytes(adds).to_vec(),
                };
                adds += u64::from(planned.kind == Kind::Add);
                (&own.requests, ended % OUTSTANDING * LONGEST, expected)
            }
        };
        assert!(
            bytes_of(memory, offset, expected.len()) == expected,
            "the bytes of {completion:?}"
        );
        match completion.opcode {
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWriteWithImmediate => {
                own.post_receive(arrived + OUTSTANDING);
                arrived += 1;
            }
            _ => ended += 1,
        }
    }
    // What the peer added is complete when it says that it has finished.
    Message::new(Op::Done, [adds])
        .write_to(stream)
        .expect("the peer listens");
    let done = Message::read_from(stream).expect("the peer finishes");
    let counter = own
        .counter
        .memory()
        .atomic_u64(0)
        .load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(counter, done.number(0), "each atomic once");
    assert!(own.endpoint.poll().is_none(), "nothing arrives twice");
    if number(MARKED).is_some() {
        // Both ends send requests and answers, so both are marked and told.
        for what in [Count::CongestionMark, Count::CongestionNotification] {
            assert!(own.device.count(what) > 0, "{what:?}: none");
        }
    }
    let counts = own.device.packet_counts().into_iter();
    let counts: Vec<String> = counts
        .filter(|(_, times)| *times > 0)
        .map(|(what, times)| format!("{what} {times}"))
        .collect();
    eprintln!(
        "end {end}: {count} requests, {arrived} messages; {}",
        counts.join(", ")
    );
    // The peer may still be owed an acknowledgement.
    Message::new(Op::Done, [])
        .write_to(stream)
        .expect("the peer listens");
    Message::read_from(stream).expect("the peer is content");
}

#[test]
fn a_long_stream_arrives_once_in_order_and_whole() {
    let (mut stream, theirs) = UnixStream::pair().expect("a socket pair");
    stream
        .set_read_timeout(Some(PATIENCE * 2))
        .expect("a bound");
    let mut child = child_command("stream_peer")
        .env(CHILD, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .expect("the child starts");
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exchange(0, &mut stream)));
    drop(stream);
    if ran.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().expect("the child ends");
    ran.unwrap_or_else(|why| std::panic::resume_unwind(why));
    assert!(status.success(), "the child failed");
}

/// The other end: nothing in a process that was not started for it.
#[test]
fn stream_peer() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let input = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .expect("standard input");
    let mut stream = UnixStream::from(input);
    stream
        .set_read_timeout(Some(PATIENCE * 2))
        .expect("a bound");
    exchange(1, &mut stream);
}
