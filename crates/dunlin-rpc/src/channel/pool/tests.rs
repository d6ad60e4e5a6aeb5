//! A client and a server of a message pool on one thread, step by step: their zones, and what others write there.

mod turns;

use dunlin_shm::ShmDevice;
use dunlin_verbs::{Access, Device, Memory, Region, VerbsError};
use proptest::prelude::*;

use super::block::{Draft, Seals};
use super::client::State;
use super::turn::Turn;
use super::{
    bits, block_bytes, zone_bytes, PoolChannel, PoolMemory, ServedPool, BLOCKS, ENTRY_BYTES,
};
use crate::channel::call_id::{call_id, slot_of};
use crate::channel::carrier::Carrier;
use crate::channel::message::{Header, Kind};
use crate::channel::opening::Opening;
use crate::channel::{Channel, ChannelError};
use crate::ChannelConfig;

const ZONES_AT: usize = 4096;
const PLACES: usize = 2;

type Shm = ShmDevice;
type Zones<'a> = PoolMemory<'a, <Shm as Device>::Region, <Shm as Device>::CompletionQueue>;

/// What a server's clients share.
pub(super) struct Pools {
    device: Shm,
    region: <Shm as Device>::Region,
}

fn config() -> ChannelConfig {
    ChannelConfig {
        eager_bytes: 256,
        ..ChannelConfig::default()
    }
}

impl Pools {
    pub(super) fn new() -> Self {
        let device = crate::devices::shared_memory().unwrap();
        let domain = device.create_protection_domain().unwrap();
        let bytes = ZONES_AT + PLACES * zone_bytes(config().eager_bytes);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device.allocate_region(&domain, bytes, access).unwrap();
        Self { device, region }
    }

    fn memory(&self) -> &Memory {
        self.region.memory()
    }

    /// The end of a block of a zone.
    fn end(&self, place: u16, block: usize) -> usize {
        let bytes = block_bytes(config().eager_bytes);
        ZONES_AT + usize::from(place) * BLOCKS * bytes + (block + 1) * bytes
    }

    fn join(&self, number: usize) -> (PoolChannel<Shm>, ServedPool<Shm>) {
        self.join_in(self.shared(number))
    }

    /// The zones of client `number`, among those of all.
    fn shared(&self, number: usize) -> Zones<'_> {
        PoolMemory::Shared {
            region: &self.region,
            entry_at: number * ENTRY_BYTES,
            zones_at: ZONES_AT,
            places: PLACES,
        }
    }

    #[allow(clippy::type_complexity)]
    fn open(&self, memory: Zones<'_>) -> (Opening<PoolChannel<Shm>>, Opening<ServedPool<Shm>>) {
        let wake = || self.device.create_completion_channel().unwrap();
        let client = PoolChannel::open(&self.device, &wake(), &config()).unwrap();
        let served = ServedPool::open(&self.device, &wake(), &config(), memory).unwrap();
        (client, served)
    }

    pub(super) fn join_in(&self, memory: Zones<'_>) -> (PoolChannel<Shm>, ServedPool<Shm>) {
        let (client, served) = self.open(memory);
        let (address, parameters) = (served.address, served.parameters);
        let mut served = (served.join)(&client.address, &client.parameters).unwrap();
        let mut client = (client.join)(&address, &parameters).unwrap();
        client.greet().unwrap();
        served.carrier.met = true;
        settle(&mut client);
        settle(&mut served);
        (client, served)
    }
}

/// Waits until all that was posted has arrived: memory of a peer is mapped at the first write.
fn settle(carrier: &mut Carrier<Shm>) {
    carrier.probe().unwrap();
    while !carrier.is_done(carrier.last_posted()) {
        carrier.progress().unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn a_pool_without_zones_is_refused() {
    let pools = Pools::new();
    let (client, mut served) = pools.open(pools.shared(0));
    let said = &mut served.parameters;
    said.insert("pool-zones".to_owned(), 0);
    let error = (client.join)(&served.address, said).unwrap_err();
    assert!(matches!(error, VerbsError::Peer(_)), "{error}");
}

pub(super) fn call(slot: u32, generation: u32) -> u64 {
    call_id(slot, generation)
}

pub(super) fn request(client: &mut PoolChannel<Shm>, call: u64, payload: &[u8]) {
    assert!(client.make_room(payload.len()).unwrap());
    client.push(Kind::Request, 1, call, payload);
    client.flush().unwrap();
    settle(client);
}

/// Fetches the client's requests and begins its turn.
pub(super) fn begin_turn(served: &mut ServedPool<Shm>, place: u16) {
    assert!(served.wants_turn().unwrap());
    assert!(served.warm_up(place).unwrap());
    while !served.is_warm().unwrap() {
        std::thread::yield_now();
    }
    assert!(served.receive().unwrap().is_none(), "it is not its turn");
    served.begin_turn();
}

pub(super) fn taken(served: &mut ServedPool<Shm>) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    // More polls than there are between two of every block.
    for _ in 0..40 {
        while let Some(header) = served.receive().unwrap() {
            all.push((header.call, served.payload(header).to_vec()));
        }
    }
    all
}

pub(super) fn answer(served: &mut ServedPool<Shm>, call: u64, payload: &[u8]) {
    served.push(Kind::Response, 0, call, payload);
    served.flush().unwrap();
    settle(served);
}

pub(super) fn answers(client: &mut PoolChannel<Shm>) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(header) = client.receive().unwrap() {
        assert_eq!(header.kind, Kind::Response);
        all.push((header.call, client.payload(header).to_vec()));
    }
    // It may have written what waited.
    settle(client);
    all
}

/// A client that knows everything of another but the key writes a message into the other's zone, in its turn.
#[test]
fn nobody_forges_the_message_of_another() {
    let pools = Pools::new();
    let (mut victim, mut served) = pools.join(0);
    let (hostile, _served) = pools.join(1);
    assert!(matches!(served.reads, Seals::Mac(_)), "others write here");
    request(&mut victim, call(0, 0), b"honest");
    begin_turn(&mut served, 0);
    let turn = Turn {
        number: served.turn,
        place: 2,
        ..Turn::default()
    };
    for seals in [hostile.writes.clone(), Seals::sum(0), Seals::mac([0; 2])] {
        let mut draft = Draft::new(block_bytes(config().eager_bytes));
        draft.fill(b"forged");
        let header = Header::new(Kind::Request, 1, call(1, 0), 6);
        let forged = draft.finish(header, turn.encode(), &seals, 1);
        let end = pools.end(0, 1);
        pools.memory().write(end - forged.len(), forged);
        for (call, payload) in taken(&mut served) {
            assert_eq!((call, &payload[..]), (0, &b"honest"[..]));
        }
    }
    assert!(served.next[0] == 1 && served.next[1] == 0);
    // In memory of its own nobody can forge messages.
    let (_client, served) = pools.join_in(PoolMemory::OwnByTurns);
    assert!(matches!(served.reads, Seals::Sum(_)));
}

/// Bytes that are not and do not become a message keep no poller awake; the message that is there afterwards does.
#[test]
fn noise_in_a_block_is_no_arrival() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"first");
    begin_turn(&mut served, 0);
    assert!(served.has_arrival());
    assert_eq!(taken(&mut served).len(), 1);
    assert!(!served.has_arrival());
    answer(&mut served, call(0, 0), b"");
    assert_eq!(answers(&mut client).len(), 1);
    pools.memory().write(pools.end(0, 1) - 8, &[7; 8]);
    // It may be what a late message has left of another, which ends the turn after some polls.
    while !served.is_overwritten() {
        assert!(served.has_arrival());
        assert!(served.receive().unwrap().is_none());
    }
    assert!(!served.has_arrival());
    request(&mut client, call(1, 0), b"second");
    assert!(served.has_arrival());
    assert_eq!(taken(&mut served), [(call(1, 0), b"second".to_vec())]);
}

/// Control messages have blocks of their own, which are free when they are answered.
#[test]
fn words_are_answered_and_wait_for_room() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join_in(PoolMemory::Own(None));
    for word in 0..8u64 {
        assert!(client.make_room(0).unwrap());
        client.push(Kind::Release, 0, word, &[]);
    }
    client.flush().unwrap();
    settle(&mut client);
    assert!(!client.make_room(0).unwrap());
    let released: Vec<u64> = taken(&mut served).iter().map(|(call, _)| *call).collect();
    assert_eq!(released, (0..8).collect::<Vec<_>>());
    served.flush().unwrap();
    settle(&mut served);
    assert!(client.make_room(0).unwrap());
    client.push(Kind::Cancel, 0, 9, &[]);
    client.flush().unwrap();
    settle(&mut client);
    assert_eq!(taken(&mut served).len(), 1);
}

/// Static mapping: the zone belongs to the client from the beginning, and the client says goodbye by its entry.
#[test]
fn a_client_with_a_zone_for_good_needs_no_turns() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join_in(PoolMemory::Own(None));
    for generation in 0..100 {
        let calls = [call(0, generation), call(23, generation)];
        for call in calls {
            request(&mut client, call, &generation.to_le_bytes());
        }
        for (call, payload) in taken(&mut served) {
            answer(&mut served, call, &payload);
        }
        assert_eq!(answers(&mut client).len(), 2);
        assert_eq!(client.state, State::Process);
    }
    // Nobody else writes here: bytes that are not a message are ignored.
    let end = served.zones_at + served.block_bytes;
    served.carrier.inlet.memory().write(end - 8, &[7; 8]);
    assert!(!served.has_arrival());
    client.close();
    let ended: ChannelError = (0..100)
        .find_map(|_| served.receive().err())
        .expect("it has left");
    assert!(!ended.is_violation());
}

/// Both arrive during one poll, the call in a block that was checked already.
#[test]
fn a_call_is_taken_before_its_cancellation() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join_in(PoolMemory::Own(None));
    served.scan.look_at_all();
    assert_eq!(served.scan.next(), Some(0));
    let given_up = call(0, 0);
    request(&mut client, given_up, b"given up");
    client.push(Kind::Cancel, 0, given_up, &[]);
    client.flush().unwrap();
    settle(&mut client);
    let first = served.receive().unwrap().expect("a message");
    assert_eq!((first.kind, first.call), (Kind::Request, given_up));
    assert_eq!(served.payload(first), b"given up");
    assert!(served.has_arrival(), "it is cancelled");
    let second = served.receive().unwrap().expect("a message");
    assert_eq!((second.kind, second.call), (Kind::Cancel, given_up));
    assert_eq!(taken(&mut served), []);
    assert!(!served.has_arrival());
}

#[test]
fn no_answer_waits_behind_a_block_that_is_used_again_and_again() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(20, 0), b"begins a turn");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served).len(), 1);
    answer(&mut served, call(20, 0), b"");
    assert_eq!(answers(&mut client).len(), 1);
    request(&mut client, call(0, 0), b"quick");
    request(&mut client, call(5, 0), b"patient");
    assert_eq!(taken(&mut served).len(), 2);
    answer(&mut served, call(0, 0), b"quick");
    answer(&mut served, call(5, 0), b"patient");
    let first = client.receive().unwrap().unwrap();
    assert_eq!(first.call, call(0, 0));
    request(&mut client, call(0, 1), b"again");
    assert_eq!(taken(&mut served), [(call(0, 1), b"again".to_vec())]);
    answer(&mut served, call(0, 1), b"again");
    let second = client.receive().unwrap().unwrap();
    assert_eq!(second.call, call(5, 0));
    assert_eq!(answers(&mut client), [(call(0, 1), b"again".to_vec())]);
}

#[test]
fn bits_come_in_order() {
    assert_eq!(bits(0b1001_0010).collect::<Vec<_>>(), [1, 4, 7]);
    assert_eq!(bits(0).count(), 0);
    assert_eq!(bits(u32::MAX).count(), 32);
}

fn header_is_of_block(header: Header) -> bool {
    slot_of(header.call) < 24
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a client, or another one, writes into entries and zones: it is refused, ignored, or a violation.
    #[test]
    fn any_bytes_are_no_request(entry: u64, lengths in prop::collection::vec((0usize..BLOCKS, 1usize..300, any::<u8>()), 0..20)) {
        let pools = Pools::new();
        let (mut client, mut served) = pools.join(0);
        request(&mut client, call(0, 0), b"honest");
        begin_turn(&mut served, 0);
        pools.memory().atomic_u64(0).store(entry, std::sync::atomic::Ordering::Release);
        for (block, length, byte) in lengths {
            pools.memory().write(pools.end(0, block) - length, &vec![byte; length]);
        }
        for _ in 0..400 {
            match served.receive() {
                Ok(Some(header)) => prop_assert!(header_is_of_block(header) && served.payload(header) == b"honest"),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let _ = served.end_turn();
        if matches!(served.wants_turn(), Ok(true)) {
            let _ = served.warm_up(1);
        }
    }
}
