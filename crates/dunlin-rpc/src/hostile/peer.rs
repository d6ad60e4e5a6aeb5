//! A hostile peer of a preset, on any device: on one connection after the other it does what no honest client does,
//! driven by a seed.

use dunlin_verbs::{Device, QueuePair, Region, RemoteAddress};

use super::datagram::Sender;
use super::pair::{Grant, Pair};
use super::pool::Guest;
use super::rb2::Rb2;
use super::ring::Ring;
use super::sent::Sent;
use super::{Door, Random, ECHO, LONG};
use crate::admission::{FEW_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER};
use crate::channel::batch::Form;
use crate::channel::message::{Descriptor, Kind};
use crate::preset::ChannelKind;
use crate::Preset;

/// Number of connections of a hostile peer, one after the other.
const CONNECTIONS: usize = 20;
/// Maximum number of acts on each.
const ACTS: usize = 40;
/// One act in this many is hostile, by connection: the first hostile act is mostly the last, and hostile acts between
/// honest calls reach other code.
const DARING: [usize; 3] = [1, 3, 12];
/// Number of past connections whose keys it still tries.
const KEPT: usize = 8;

/// A hostile client with a queue pair of its own.
pub(crate) trait Peer<D: Device> {
    fn pair(&mut self) -> &mut Pair<D>;

    /// What the server has granted; the first is where a wake-up is written.
    fn grants(&self) -> Vec<Grant>;

    /// Makes a valid call. Returns `false` if the connection is over, as the others do.
    fn honest(&mut self, random: &mut Random, call: u64) -> bool;

    /// Does something that no honest client does.
    fn misbehave(&mut self, random: &mut Random) -> bool;

    /// Immediate data that could be valid.
    fn immediate(&self, _random: &mut Random) -> u32 {
        0
    }
}

/// Returns the job of a hostile peer of this preset, from its first connection to its last.
pub fn peer<D: Device>(
    device: D,
    door: Door,
    preset: Preset,
    seed: u64,
) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let mut random = Random::new(seed);
        let mut gone = Vec::new();
        let mut acts = 0;
        for _ in 0..CONNECTIONS {
            let (random, gone) = (&mut random, &mut gone);
            let receives = random.of(&[0, 1, 64, 64]);
            let name = preset.name();
            acts += match preset.channel() {
                ChannelKind::Ring => {
                    act(ring(&device, &door, preset, receives, random), random, gone)
                }
                ChannelKind::Pool(_) => act(Guest::open(&device, &door, preset), random, gone),
                ChannelKind::Sent => act(Sent::open(&device, &door, name, receives), random, gone),
                ChannelKind::Rb2 => act(Rb2::open(&device, &door, name, receives), random, gone),
                ChannelKind::Datagram(_) => sender(&device, &door, preset, random),
            };
            let old = gone.len().saturating_sub(KEPT);
            gone.drain(..old);
        }
        println!("hostile peer {seed:#x}: {acts} acts on {CONNECTIONS} connections");
    })
}

/// Acts on a connection until it is over, and returns the number of acts. `gone` are the grants of past connections.
fn act<D: Device>(mut peer: impl Peer<D>, random: &mut Random, gone: &mut Vec<Grant>) -> usize {
    let grants = peer.grants();
    let mut acts = 0;
    let daring = random.of(&DARING);
    // Half of them announce themselves, as honest clients do.
    let mut goes_on = random.below(2) == 0 || peer.pair().write_at(grants[0].at, &[], Some(0));
    while goes_on && acts < ACTS && peer.pair().is_alive() {
        acts += 1;
        goes_on = match random.below(5) {
            _ if random.below(daring) > 0 => peer.honest(random, acts as u64),
            0 | 1 => {
                let immediate = peer.immediate(random);
                peer.pair().stray(random, &grants, gone, immediate)
            }
            _ => peer.misbehave(random),
        };
        Pair::<D>::rest(random);
    }
    peer.pair().saw_nothing();
    gone.extend(grants);
    acts
}

/// Opens a connection over rings.
fn ring<D: Device>(
    device: &D,
    door: &Door,
    preset: Preset,
    receives: usize,
    random: &mut Random,
) -> Ring<D> {
    let form = random.of(&[Form::Twice, Form::Sealed]);
    let mut ring = Ring::new(device, receives, form);
    let mut parameters = ring.parameters();
    if let Some(sharing) = preset.sharing(4).filter(|sharing| sharing.admitted) {
        let alone = random.next();
        let told = [
            (SENDER_PARAMETER, random.of(&[7, alone])),
            (LANE_PARAMETER, random.of(&[0, 1, u64::MAX])),
            (FEW_PARAMETER, u64::from(sharing.few)),
        ];
        parameters.extend(told.map(|(name, value)| (name.to_owned(), value)));
    }
    let reply = door.open(preset.name(), ring.queue_pair.address(), parameters);
    ring.connect(&reply.endpoint, &reply.parameters);
    ring
}

impl<D: Device> Peer<D> for Ring<D> {
    fn pair(&mut self) -> &mut Pair<D> {
        self
    }

    fn grants(&self) -> Vec<Grant> {
        self.grant.into_iter().collect()
    }

    fn honest(&mut self, random: &mut Random, call: u64) -> bool {
        let (kind, handler, payload) = valid_call(random, self.inlet.remote());
        Ring::honest(self, kind, handler, call, &payload)
    }

    fn misbehave(&mut self, random: &mut Random) -> bool {
        Ring::misbehave(self, random, &[0, 1, 2, 3])
    }

    fn immediate(&self, random: &mut Random) -> u32 {
        let degree = random.of(&[0, 1, 48, 49, (1 << 29) - 1]);
        random.of(&[1 << 31 | degree, 1 << 30 | degree, 0])
    }
}

/// A valid call: its kind, its handler and its payload.
pub(super) fn valid_call(random: &mut Random, own: RemoteAddress) -> (Kind, u16, Vec<u8>) {
    if random.below(4) > 0 {
        let handler = random.of(&[ECHO, ECHO, LONG]);
        return (Kind::Request, handler, b"its own".to_vec());
    }
    // A long one: the server fetches it from this peer's memory, and answers in its own.
    let descriptor = Descriptor {
        address: own.address,
        length: random.of(&[5000, 60_000]),
        key: own.key.0,
    };
    (Kind::LongRequest, ECHO, descriptor.encode().to_vec())
}

/// A session of datagrams.
fn sender<D: Device>(device: &D, door: &Door, preset: Preset, random: &mut Random) -> usize {
    let mut sender = Sender::open(device, door, preset);
    let mut acts = 0;
    while acts < ACTS && sender.stray(random) {
        acts += 1;
        Pair::<D>::rest(random);
    }
    if random.below(2) == 0 {
        sender.message(Kind::Goodbye, 0, &[]);
    }
    acts
}
