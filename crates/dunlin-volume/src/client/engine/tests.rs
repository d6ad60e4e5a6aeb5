//! The engine with servers modelled as maps: they answer in any order, fail and come back, driven by a seed.

use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::client::open::is_enough;
use crate::wire::{decode_read, split_epoch, BlockState, Record, STATE_BYTES};
use proptest::prelude::*;

const SERVERS: usize = 4;
const BLOCKS: u64 = 96;

/// A server's state: for each block a version, and the byte that fills it.
#[derive(Clone, Debug, Default)]
struct Server {
    blocks: BTreeMap<u64, (Version, u8)>,
    is_up: bool,
}

struct World {
    engine: Engine,
    servers: Vec<Server>,
    epoch: u64,
    session: u64,
    now: Instant,
    /// Requests that are sent and not answered.
    flying: Vec<(usize, usize, Vec<u8>)>,
    reopens: bool,
    random: fastrand::Rng,
    next: u64,
    /// By tag: the block and the byte of a write; `None` for a read.
    out: HashMap<u64, Option<(u64, u8)>>,
    /// For each block the bytes that it may contain.
    may_be: BTreeMap<u64, Vec<u8>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let shape = Shape {
            id: 7,
            name: "birds".into(),
            blocks: BLOCKS,
            chunk_blocks: 32,
            copies: 3,
            servers: SERVERS as u8,
        };
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let mut engine = Engine::new(shape, Duration::from_secs(1), hour);
        engine.opened(1, (1 << SERVERS) - 1, 0, now);
        let server = Server {
            is_up: true,
            ..Server::default()
        };
        Self {
            engine,
            servers: vec![server; SERVERS],
            epoch: 1,
            session: 0,
            now,
            flying: Vec::new(),
            reopens: false,
            random: fastrand::Rng::with_seed(seed),
            next: 0,
            out: HashMap::new(),
            may_be: BTreeMap::new(),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.engine.actions.pop_front() {
            match action {
                Action::Send { server, part } => {
                    if let Some((_, payload)) = self.engine.payload(part) {
                        self.flying.push((server, part, payload.to_vec()));
                    }
                }
                Action::Disconnect { server } => self.disconnect(server),
                Action::Rewrite { .. } => {}
                Action::Reopen => self.reopens = true,
                Action::Done { tag, result } => {
                    let bytes = result.expect("there is enough patience");
                    match self.out.remove(&tag).expect("it was begun") {
                        Some((block, byte)) => {
                            let may_be = self.may_be.entry(block).or_default();
                            let at = may_be.iter().position(|one| *one == byte);
                            may_be.drain(..at.expect("it was noted"));
                        }
                        None => assert_eq!(bytes.len(), BLOCK_BYTES),
                    }
                }
            }
        }
    }

    /// Some of the writes in flight have arrived, but nobody learns of it.
    fn disconnect(&mut self, server: usize) {
        let (gone, others) = std::mem::take(&mut self.flying)
            .into_iter()
            .partition(|(of, _, _)| *of == server);
        self.flying = others;
        let gone: Vec<(usize, usize, Vec<u8>)> = gone;
        for (_, _, payload) in gone {
            if decode_read(&payload).is_none() && self.random.bool() {
                self.write(server, &payload);
            }
        }
    }

    fn write(&mut self, server: usize, payload: &[u8]) {
        let (epoch, record) = split_epoch(payload).unwrap();
        assert_eq!(epoch, self.epoch);
        let record = Record::parse(record).unwrap();
        let new = (record.head.version, record.block(0).unwrap()[0]);
        let old = self.servers[server]
            .blocks
            .entry(record.head.first)
            .or_default();
        *old = (*old).max(new);
    }

    fn begin(&mut self) {
        let block = self.random.u64(..BLOCKS);
        // The bytes written to a block differ as long as they may be found in it.
        let is_out = self.out.values().flatten().any(|(of, _)| *of == block);
        self.next += 1;
        let byte = self.next as u8;
        if is_out || self.random.u8(..4) == 0 {
            self.out.insert(self.next, None);
            self.engine
                .begin(Wanted::Read(1), block, self.next, self.now);
        } else {
            self.out.insert(self.next, Some((block, byte)));
            self.may_be
                .entry(block)
                .or_insert_with(|| vec![0])
                .push(byte);
            let bytes = [byte; BLOCK_BYTES];
            self.engine
                .begin(Wanted::Write(&bytes), block, self.next, self.now);
        }
        self.act();
    }

    /// A server answers one request.
    fn answer(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let (server, part, payload) = self
            .flying
            .swap_remove(self.random.usize(..self.flying.len()));
        if !self.servers[server].is_up {
            return self.flying.push((server, part, payload));
        }
        let blocks = &self.servers[server].blocks;
        let bytes = match decode_read(&payload) {
            Some(read) => {
                let (version, byte) = blocks.get(&read.first).copied().unwrap_or_default();
                let may_be = self.may_be.get(&read.first);
                assert!(
                    may_be.is_none_or(|may_be| may_be.contains(&byte)),
                    "{read:?}: {byte}"
                );
                let data = [byte; BLOCK_BYTES];
                let mut bytes = vec![0; STATE_BYTES];
                let sum = (version != Version::default()).then(|| crate::wire::checksum(&data));
                BlockState { version, sum }.put(&mut bytes);
                bytes.extend(data);
                bytes
            }
            None => {
                self.write(server, &payload);
                Vec::new()
            }
        };
        self.engine.answer(server, part, Ok(&bytes), self.now);
        self.act();
    }

    fn fail(&mut self) {
        let server = self.random.usize(..SERVERS);
        self.servers[server].is_up = false;
        match self.random.bool() {
            true => self.engine.lose(server, self.now),
            // It does not respond until this is detected.
            false => {
                for _ in 0..=4 {
                    self.now += Duration::from_millis(250);
                    self.engine.tick(self.now);
                }
            }
        }
        self.act();
    }

    fn newest(&self, among: u64) -> BTreeMap<u64, (Version, u8)> {
        let mut all = BTreeMap::new();
        for server in each(among) {
            for (block, has) in &self.servers[server].blocks {
                let known: &mut (Version, u8) = all.entry(*block).or_default();
                *known = (*known).max(*has);
            }
        }
        all
    }

    /// Acts as the keeper: servers come back, individually or by an open.
    fn bring_back(&mut self) {
        if self.reopens {
            for server in &mut self.servers {
                server.is_up |= self.random.u8(..3) > 0;
            }
            let up = (0..SERVERS).filter(|server| self.servers[*server].is_up);
            let up = up.fold(0, |set, server| set | 1 << server);
            if is_enough(self.engine.shape(), up).is_err() {
                return;
            }
            let newest = self.newest(up);
            each(up).for_each(|server| self.servers[server].blocks = self.of(server, &newest));
            (self.epoch, self.reopens) = (self.epoch + 1, false);
            self.flying.clear();
            self.engine.opened(self.epoch, up, self.session, self.now);
            return self.act();
        }
        let in_sync = self.engine.in_sync();
        let Some(server) = (0..SERVERS).find(|server| in_sync & 1 << server == 0) else {
            return;
        };
        // The outstanding requests of a stopped server are lost with its connection.
        self.engine.lose(server, self.now);
        self.act();
        if self.reopens {
            return;
        }
        self.servers[server].is_up = true;
        self.session += 1;
        // It may have lost everything that it had acknowledged.
        let whole = self.random.bool();
        if !whole {
            self.servers[server].blocks.clear();
        }
        self.engine.connected(server, whole, self.session, self.now);
        self.act();
        let newest = self.newest(in_sync);
        let mut has = self.of(server, &newest);
        for (block, own) in &self.servers[server].blocks {
            let known = has.entry(*block).or_default();
            // It may already have more of the owner's epoch.
            if own.0.epoch() == self.epoch || own.0 <= known.0 {
                *known = (*known).max(*own);
            }
        }
        self.servers[server].blocks = has;
        self.engine.joined(server, self.session);
    }

    /// The blocks that a server must have.
    fn of(
        &self,
        server: usize,
        all: &BTreeMap<u64, (Version, u8)>,
    ) -> BTreeMap<u64, (Version, u8)> {
        let shape = self.engine.shape();
        let is_its = |block: u64| shape.set_of(shape.chunk(block)) & 1 << server != 0;
        all.iter()
            .filter(|(block, _)| is_its(**block))
            .map(|(block, has)| (*block, *has))
            .collect()
    }
}

#[test]
fn a_copy_that_comes_and_goes_is_no_excuse_for_one_that_does_not_answer() {
    let mut world = World::new(1);
    let write = Wanted::Write(&[1; BLOCK_BYTES]);
    world.engine.begin(write, 0, 1, world.now);
    world.engine.answer(0, 0, Ok(&[]), world.now);
    // Of the first chunk, which servers 0, 1 and 2 have; its last one is connected again and again.
    for session in 1..=10 {
        world.engine.lose(2, world.now);
        world.engine.connected(2, true, session, world.now);
        world.now += Duration::from_millis(200);
        world.engine.tick(world.now);
    }
    assert_eq!(
        world.engine.in_sync() & 2,
        0,
        "the one that does not answer is not late"
    );
}

#[test]
fn time_in_which_nobody_looked_hardly_counts_against_copies() {
    let mut world = World::new(1);
    world.engine.tick(world.now);
    let write = Wanted::Write(&[1; BLOCK_BYTES]);
    world.engine.begin(write, 0, 1, world.now);
    // The clock is checked rarely, but it is.
    for looks in 0.. {
        let is_late = world.engine.in_sync().count_ones() as usize != SERVERS;
        assert_eq!(is_late, looks >= 4, "after {looks} looks");
        if is_late {
            break;
        }
        world.now += Duration::from_secs(3600);
        world.engine.tick(world.now);
    }
    // A part that is sent after such a time has its full time.
    let mut world = World::new(1);
    world.engine.tick(world.now);
    world.now += Duration::from_secs(3600);
    world.engine.begin(write, 0, 1, world.now);
    world.engine.tick(world.now);
    assert_eq!(world.engine.in_sync().count_ones() as usize, SERVERS);
    for _ in 0..4 {
        assert_eq!(world.engine.in_sync().count_ones() as usize, SERVERS);
        world.now += Duration::from_millis(250);
        world.engine.tick(world.now);
    }
    assert_ne!(world.engine.in_sync().count_ones() as usize, SERVERS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_acknowledged_is_read_whoever_fails(seed: u64) {
        let mut world = World::new(seed);
        for _ in 0..400 {
            match world.random.u8(..20) {
                0 => world.fail(),
                1 => world.bring_back(),
                2..8 if world.engine.has_room() && world.out.len() < 40 => world.begin(),
                _ => world.answer(),
            }
        }
        // Once all are present, everything that was begun ends.
        for _ in 0..10_000 {
            world.bring_back();
            world.answer();
            if world.out.is_empty() && world.engine.in_sync().count_ones() as usize == SERVERS {
                break;
            }
        }
        prop_assert_eq!((world.engine.outstanding(), world.out.len()), (0, 0));
        for block in 0..BLOCKS {
            world.next += 1;
            world.out.insert(world.next, None);
            world.engine.begin(Wanted::Read(1), block, world.next, world.now);
            world.act();
            while !world.out.is_empty() {
                world.answer();
            }
        }
    }
}
