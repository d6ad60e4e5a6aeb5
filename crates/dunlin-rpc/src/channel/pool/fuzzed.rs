//! Both ends of a message pool whose memory the other end fills with any bytes; for the fuzz target `pool`, see
//! `crate::fuzzing`.

use std::sync::atomic::Ordering;

use dunlin_shm::ShmDevice;
use dunlin_verbs::{Device, Memory, Region};

use super::block::{Blocks, Draft, Seals};
use super::turn::{Entry, Turn};
use super::{PoolChannel, PoolMemory, ServedPool, BLOCKS};
use crate::channel::call_id::call_id;
use crate::channel::message::{Header, HEADER_BYTES};
use crate::channel::{Channel, ChannelError};
use crate::ChannelConfig;

/// Maximum length of a payload in a block.
const EAGER: usize = 256;
/// Number of polls of each end after each step.
const LOOKS: usize = 4;

/// A client and a server of one pool.
#[derive(Debug)]
pub(crate) struct FuzzedPool {
    by_turns: bool,
    client: PoolChannel<ShmDevice>,
    served: ServedPool<ShmDevice>,
    /// The last call that the server has taken.
    call: u64,
    draft: Draft,
}

impl FuzzedPool {
    pub(crate) fn new(device: &ShmDevice, by_turns: bool) -> Self {
        let config = ChannelConfig {
            eager_bytes: EAGER,
            ..ChannelConfig::default()
        };
        let memory = match by_turns {
            true => PoolMemory::OwnByTurns,
            false => PoolMemory::Own(None),
        };
        let wake = || device.create_completion_channel().expect("a channel");
        let client = PoolChannel::open(device, &wake(), &config).expect("a pool");
        let served = ServedPool::open(device, &wake(), &config, memory).expect("a pool");
        let (address, parameters) = (served.address, served.parameters);
        let served = (served.join)(&client.address, &client.parameters).expect("an honest client");
        let mut client = (client.join)(&address, &parameters).expect("an honest server");
        client.greet().expect("room for a WRITE");
        Self {
            by_turns,
            served,
            client,
            call: 0,
            draft: Draft::new(super::block_bytes(EAGER)),
        }
    }

    /// Executes the steps, of eleven bytes each, until one of the ends reports a violation.
    ///
    /// # Errors
    /// The violation that an end found.
    pub(crate) fn run(&mut self, steps: &[u8]) -> Result<(), ChannelError> {
        for step in steps.chunks_exact(11) {
            let value = u64::from_le_bytes(std::array::from_fn(|i| step[3 + i]));
            let place = usize::from(u16::from_le_bytes([step[1], step[2]]));
            self.step(step[0], place, value)?;
            self.look()?;
        }
        Ok(())
    }

    fn step(&mut self, kind: u8, place: usize, value: u64) -> Result<(), ChannelError> {
        let (at_server, at_client) = (
            self.served.carrier.inlet.memory(),
            self.client.inlet_memory(),
        );
        match kind % 12 {
            0 => set(at_server, place, value),
            1 => set(at_client, place, value),
            2 => {
                // An almost valid endpoint entry.
                let entry = Entry {
                    serial: self.served.served.wrapping_add(1 + (place & 1) as u16),
                    lines: (value >> 32) as u16 & 15,
                    blocks: value as u32,
                };
                let word = at_server.atomic_u64(self.served.entry_at);
                word.store(entry.encode().to_le(), Ordering::SeqCst);
            }
            3 | 4 => {
                let blocks = Blocks {
                    start: self.served.zones_at,
                    bytes: self.served.block_bytes,
                };
                let turn = Turn {
                    number: self
                        .served
                        .turn
                        .wrapping_add((kind & 4) as u32 / 4 * (place as u32 & 1)),
                    place: (place >> 8) as u16,
                    ..Turn::default()
                };
                forge(
                    &mut self.draft,
                    at_server,
                    blocks,
                    place,
                    &self.served.reads,
                    turn.encode(),
                    value,
                );
            }
            5 | 6 => {
                let turn = Turn::decode(value.rotate_left(place as u32));
                forge(
                    &mut self.draft,
                    at_client,
                    self.client.answers,
                    place,
                    &self.client.reads,
                    turn.encode(),
                    value,
                );
            }
            7 => {
                if self.client.make_room(8)? {
                    // Slots of calls are small numbers, and a generation is used once.
                    let call = call_id(place as u32 % 4, value as u32 & 7);
                    self.client.push(
                        crate::channel::message::Kind::Request,
                        1,
                        call,
                        &value.to_le_bytes(),
                    );
                    self.client.flush()?;
                }
            }
            8 if self.call != 0 => {
                let call = std::mem::take(&mut self.call);
                self.served.push(
                    crate::channel::message::Kind::Response,
                    0,
                    call,
                    &value.to_le_bytes(),
                );
                self.served.flush()?;
            }
            9 if self.by_turns && self.served.wants_turn()? => {
                self.served.warm_up(place as u16 % 2)?;
                // A READ of memory that is mapped here is completed when it is posted, or soon after.
                for _ in 0..1000 {
                    if self.served.is_warm()? {
                        self.served.begin_turn();
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            10 if self.by_turns && self.served.active => {
                self.served.end_turn()?;
            }
            _ => {
                self.served.progress()?;
                self.client.progress()?;
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), ChannelError> {
        for _ in 0..LOOKS {
            if let Some(header) = self.served.receive()? {
                assert_eq!(self.served.payload(header).len(), header.length as usize);
                assert!(header.length as usize <= EAGER);
                self.call = header.call;
            }
            if let Some(header) = self.client.receive()? {
                assert_eq!(self.client.payload(header).len(), header.length as usize);
                assert!(header.length as usize <= EAGER);
            }
        }
        Ok(())
    }
}

impl PoolChannel<ShmDevice> {
    fn inlet_memory(&self) -> &Memory {
        self.carrier.inlet.memory()
    }
}

/// Writes a word somewhere.
fn set(memory: &Memory, place: usize, value: u64) {
    let at = place * 8 % memory.len();
    memory.atomic_u64(at).store(value, Ordering::SeqCst);
}

/// Puts a message with any header into a block, with a valid seal.
pub(crate) fn forge(
    draft: &mut Draft,
    memory: &Memory,
    blocks: Blocks,
    place: usize,
    seals: &Seals,
    turn: u64,
    value: u64,
) {
    let length = (value >> 48) as usize % (EAGER + 1);
    let mut bytes = [0; HEADER_BYTES];
    // Any kind, any handler; a call whose slot and generation may well be the next ones.
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[4..6].copy_from_slice(&(value as u16 & 3).to_le_bytes());
    bytes[6] = (value >> 16) as u8 & 15;
    let call = call_id((value >> 24) as u32 & 31, (value >> 32) as u32 & 7);
    bytes[8..].copy_from_slice(&call.to_le_bytes());
    let Some(header) = Header::read(&bytes) else {
        return;
    };
    draft.space(length).fill(value as u8);
    let block = place % BLOCKS;
    let message = draft.finish(header, turn, seals, block);
    memory.write(blocks.end(block) - message.len(), message);
}
