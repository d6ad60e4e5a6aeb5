//! A client and a server of a message pool on one thread, step by step: turns, and late messages.

use dunlin_shm::ShmDevice;
use dunlin_verbs::{Access, Device, Memory, Region, VerbsError};
use proptest::prelude::*;

use super::block::{Draft, Seals};
use super::client::State;
use super::server::TurnLoad;
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

/// Ends the client's turn.
fn end_turn(served: &mut ServedPool<Shm>) -> TurnLoad {
    let load = served.end_turn().unwrap();
    settle(served);
    load
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

/// ScaleRPC Fig. 7: IDLE, WARMUP with the entry, PROCESS with the first answer, IDLE with the end of the turn.
#[test]
fn a_client_goes_through_its_states() {
    let pools = Pools::new();
    goes_through_its_states(pools.join(0));
    // With memory of its own the zones of the pools are only the right to be served.
    goes_through_its_states(pools.join_in(PoolMemory::OwnByTurns));
}

fn goes_through_its_states((mut client, mut served): (PoolChannel<Shm>, ServedPool<Shm>)) {
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap());
    request(&mut client, call(0, 0), b"fetched");
    assert_eq!(client.state, State::Warmup);
    // It is not announced before its turn has begun.
    request(&mut client, call(1, 0), b"waits");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"fetched".to_vec())]);
    answer(&mut served, call(0, 0), b"one");
    assert_eq!(answers(&mut client), [(call(0, 0), b"one".to_vec())]);
    assert_eq!(client.state, State::Process);
    request(&mut client, call(0, 1), b"written");
    let both = [
        (call(0, 1), b"written".to_vec()),
        (call(1, 0), b"waits".to_vec()),
    ];
    assert_eq!(taken(&mut served), both);
    answer(&mut served, call(1, 0), b"two");
    // The last response of the turn carries its end.
    served.end_soon();
    assert!(taken(&mut served).is_empty());
    answer(&mut served, call(0, 1), b"three");
    let load = end_turn(&mut served);
    assert_eq!((load.requests, load.bytes, load.late), (3, 19, 0));
    assert_eq!(answers(&mut client).len(), 2);
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap(), "nothing is out");
    request(&mut client, call(0, 2), b"again");
    begin_turn(&mut served, 1);
    assert_eq!(taken(&mut served), [(call(0, 2), b"again".to_vec())]);
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

/// A client without requests in its turn is told of the end by a separate WRITE.
#[test]
fn a_turn_ends_between_two_batches() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    let batch = |client: &mut PoolChannel<Shm>, generation: u32| {
        for slot in 0..3 {
            request(client, call(slot, generation), b"of three");
        }
    };
    let answer_all = |served: &mut ServedPool<Shm>| {
        for (call, _) in taken(served) {
            answer(served, call, b"");
        }
    };
    request(&mut client, call(0, 0), b"the turn's first");
    begin_turn(&mut served, 0);
    answer_all(&mut served);
    assert_eq!(answers(&mut client).len(), 1);
    for generation in 1..3 {
        batch(&mut client, generation);
        answer_all(&mut served);
        assert_eq!(answers(&mut client).len(), 3);
    }
    served.end_with_answer(4);
    for slot in 0..2 {
        request(&mut client, call(slot, 3), b"of three");
        answer_all(&mut served);
        assert!(!served.may_end(), "in the middle of a batch");
    }
    request(&mut client, call(2, 3), b"of three");
    answer_all(&mut served);
    assert!(served.may_end());
    assert_eq!(answers(&mut client).len(), 3);
    assert_eq!(client.state, State::Idle);
    assert_eq!(end_turn(&mut served).words, 0);
}

#[test]
fn the_end_of_a_turn_is_told_without_answers() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"slow");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served).len(), 1);
    // Its worker takes a while: the turn, and its end, are reported without it.
    served.tell_turn().unwrap();
    settle(&mut served);
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Process);
    served.end_soon();
    end_turn(&mut served);
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Idle);
    assert!(!served.wants_turn().unwrap(), "the server has the call");
    answer(&mut served, call(0, 0), b"done");
    assert_eq!(answers(&mut client), [(call(0, 0), b"done".to_vec())]);
    assert_eq!(client.state, State::Idle);
}

/// A request that is written when the turn is over is executed in the next, once, and is not attributed to the client
/// that has the zone now.
#[test]
fn a_late_request_is_fetched_and_is_nobody_elses() {
    let pools = Pools::new();
    let (mut first, mut served_first) = pools.join(0);
    let (mut second, mut served_second) = pools.join(1);
    request(&mut first, call(0, 0), b"on time");
    begin_turn(&mut served_first, 0);
    assert_eq!(taken(&mut served_first).len(), 1);
    answer(&mut served_first, call(0, 0), b"");
    assert_eq!(answers(&mut first).len(), 1);
    served_first.end_soon();
    assert!(taken(&mut served_first).is_empty());
    // The server has polled for the last time, and has not reported that yet.
    request(&mut first, call(3, 0), b"late");
    assert_eq!(first.state, State::Process);
    end_turn(&mut served_first);
    request(&mut second, call(0, 0), b"second");
    begin_turn(&mut served_second, 0);
    let seconds = [(call(0, 0), b"second".to_vec())];
    assert_eq!(taken(&mut served_second), seconds);
    assert!(answers(&mut first).is_empty());
    assert_eq!(first.state, State::Warmup);
    begin_turn(&mut served_first, 1);
    let late = [(call(3, 0), b"late".to_vec())];
    assert_eq!(taken(&mut served_first), late);
    answer(&mut served_first, call(3, 0), b"done");
    assert_eq!(answers(&mut first), [(call(3, 0), b"done".to_vec())]);
}

/// A late request that overwrites another client's message costs that client its turn, and no more.
#[test]
fn a_message_that_a_late_one_has_hit_is_fetched_again() {
    let pools = Pools::new();
    let (mut first, mut served_first) = pools.join(0);
    let (mut second, mut served_second) = pools.join(1);
    request(&mut first, call(0, 0), b"first");
    begin_turn(&mut served_first, 0);
    // What the first client has written arrives once more, when the zone belongs to the second.
    let mut late = [0; 40];
    let end = pools.end(0, 0);
    pools.memory().read(end - late.len(), &mut late);
    assert_eq!(taken(&mut served_first).len(), 1);
    answer(&mut served_first, call(0, 0), b"");
    served_first.end_soon();
    end_turn(&mut served_first);
    for part in [40, 16, 8] {
        let generation = second.turn.number;
        request(&mut second, call(0, generation), b"the second's");
        begin_turn(&mut served_second, 0);
        pools.memory().write(end - part, &late[40 - part..]);
        assert!(taken(&mut served_second).is_empty());
        while !served_second.is_overwritten() {
            assert!(served_second.receive().unwrap().is_none());
        }
        assert_eq!(end_turn(&mut served_second).late, 1);
        assert!(answers(&mut second).is_empty());
        assert_eq!(second.state, State::Warmup);
        begin_turn(&mut served_second, 0);
        let seconds = [(call(0, generation), b"the second's".to_vec())];
        assert_eq!(taken(&mut served_second), seconds);
        answer(&mut served_second, call(0, generation), b"");
        served_second.end_soon();
        end_turn(&mut served_second);
        assert_eq!(answers(&mut second).len(), 1);
        assert_eq!(second.state, State::Idle);
    }
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

/// A request that was taken and is fetched again, because its client could not know, is executed once.
#[test]
fn what_is_fetched_twice_is_taken_once() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"twice");
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served).len(), 1);
    // As if the calls with workers had not been reported.
    let working = std::mem::take(&mut served.working);
    served.end_soon();
    end_turn(&mut served);
    served.working = working;
    assert!(answers(&mut client).is_empty());
    assert_eq!(client.state, State::Warmup);
    begin_turn(&mut served, 1);
    assert!(taken(&mut served).is_empty());
    answer(&mut served, call(0, 0), b"once");
    assert_eq!(answers(&mut client), [(call(0, 0), b"once".to_vec())]);
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

/// A READ whose completion was not taken stands for one that the client lets wait.
#[test]
fn requests_that_are_not_fetched_before_a_read_ends_are_no_arrival() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    request(&mut client, call(0, 0), b"fetched");
    assert!(served.has_arrival());
    assert!(served.warm_up(0).unwrap());
    served.give_up_warm_up();
    assert!(!served.wants_turn().unwrap());
    assert!(!served.has_arrival(), "nothing can be done");
    while !served.wants_turn().unwrap() {
        served.progress().unwrap();
    }
    assert!(served.has_arrival());
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"fetched".to_vec())]);
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

/// A client that takes its entry back between the poll that finds it and the one that serves it gets no zone: the
/// server would count the zone as taken, and give it to no other.
#[test]
fn an_entry_that_is_taken_back_gets_no_zone() {
    let pools = Pools::new();
    let (mut client, mut served) = pools.join(0);
    let entry = || pools.memory().atomic_u64(0);
    let before = entry().load(std::sync::atomic::Ordering::Acquire);
    request(&mut client, call(0, 0), b"here");
    let announced = entry().swap(before, std::sync::atomic::Ordering::AcqRel);
    assert_ne!(announced, before);
    assert!(!served.warm_up(0).unwrap());
    assert_eq!(served.place(), None);
    entry().store(announced, std::sync::atomic::Ordering::Release);
    begin_turn(&mut served, 0);
    assert_eq!(taken(&mut served), [(call(0, 0), b"here".to_vec())]);
}

/// A batch of short requests is fetched by one READ for eight of them; if one is longer than a slot, each is fetched by
/// a READ of its own.
#[test]
fn a_batch_is_fetched_together() {
    for (longest, reads) in [(40, 2), (250, 10)] {
        let pools = Pools::new();
        let (mut client, mut served) = pools.join(0);
        // The server fetches only announced requests: first this one alone, the others with the next turn.
        request(&mut client, call(0, 0), b"first");
        begin_turn(&mut served, 0);
        assert_eq!(taken(&mut served), [(call(0, 0), b"first".to_vec())]);
        answer(&mut served, call(0, 0), b"");
        end_turn(&mut served);
        answers(&mut client);
        assert_eq!(client.state, State::Idle);
        let payload = |block: u32| vec![block as u8; longest - block as usize];
        let calls: Vec<u64> = (1..=10).map(|block| call(block, 0)).collect();
        for &call in &calls {
            let payload = payload(call as u32);
            client.push(Kind::Request, 1, call, &payload);
        }
        client.flush().unwrap();
        settle(&mut client);
        let before = served.carrier.last_posted().number();
        begin_turn(&mut served, 1);
        assert_eq!(
            served.carrier.last_posted().number() - before,
            reads,
            "READs"
        );
        let expected = calls.iter().map(|&call| (call, payload(call as u32)));
        assert_eq!(taken(&mut served), expected.collect::<Vec<_>>());
    }
}
