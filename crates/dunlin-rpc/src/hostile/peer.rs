//! A hostile peer of a preset, on any device: on one connection after the other it does what no honest client does,
//! driven by a seed.

use dunlin_verbs::{Device, QueuePair, Region};

use super::datagram::Sender;
use super::pair::{Grant, Pair};
use super::pool::Guest;
use super::rb2::Rb2;
use super::ring::Ring;
use super::sent::Sent;
use super::{Door, Random, ECHO, LONG};
use crate::admission::{FEW_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER};
use crate::channel::batch::Form;
use crate::channel::call_id::call_id;
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
            acts += match preset.channel() {
                ChannelKind::Ring => ring(&device, &door, preset, &mut random, &mut gone),
                ChannelKind::Pool(_) => guest(&device, &door, preset, &mut random, &mut gone),
                ChannelKind::Sent => sent(&device, &door, preset, &mut random, &mut gone),
                ChannelKind::Rb2 => rb2(&device, &door, preset, &mut random, &mut gone),
                ChannelKind::Datagram(_) => sender(&device, &door, preset, &mut random),
            };
            let old = gone.len().saturating_sub(KEPT);
            gone.drain(..old);
        }
        println!("hostile peer {seed:#x}: {acts} acts on {CONNECTIONS} connections");
    })
}

/// A connection over rings; returns the number of acts on it.
fn ring<D: Device>(
    device: &D,
    door: &Door,
    preset: Preset,
    random: &mut Random,
    gone: &mut Vec<Grant>,
) -> usize {
    let form = random.of(&[Form::Twice, Form::Sealed]);
    let receives = random.of(&[0, 1, 64, 64]);
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
    let grant = ring.grant.expect("it is connected");
    let mut acts = 0;
    let daring = random.of(&DARING);
    // Half of them announce themselves, as honest clients do.
    let mut goes_on = random.below(2) == 0 || ring.post(0, &[], Some(0));
    while goes_on && acts < ACTS && ring.is_alive() {
        acts += 1;
        goes_on = match random.below(5) {
            _ if random.below(daring) > 0 => honest(&mut ring, random, acts as u64),
            0 | 1 => {
                let degree = random.of(&[0, 1, 48, 49, (1 << 29) - 1]);
                let word = random.of(&[1 << 31 | degree, 1 << 30 | degree, 0]);
                ring.stray(random, &[grant], gone, word)
            }
            _ => ring.misbehave(random, &[0, 1, 2, 3]),
        };
        Pair::<D>::rest(random);
    }
    ring.saw_nothing();
    gone.push(grant);
    acts
}

/// A valid call.
fn honest<D: Device>(ring: &mut Ring<D>, random: &mut Random, call: u64) -> bool {
    if random.below(4) > 0 {
        let handler = random.of(&[ECHO, ECHO, LONG]);
        return ring.honest(Kind::Request, handler, call, b"its own");
    }
    // A long one: the server fetches it from this peer's memory, and answers in its own.
    let own = ring.inlet.remote();
    let descriptor = Descriptor {
        address: own.address,
        length: random.of(&[5000, 60_000]),
        key: own.key.0,
    };
    ring.honest(Kind::LongRequest, ECHO, call, &descriptor.encode())
}

/// A connection over message pools.
fn guest<D: Device>(
    device: &D,
    door: &Door,
    preset: Preset,
    random: &mut Random,
    gone: &mut Vec<Grant>,
) -> usize {
    let mut guest = Guest::open(device, door, preset);
    let grants = [guest.inlet, guest.zone];
    let mut acts = 0;
    let daring = random.of(&DARING);
    let mut goes_on = random.below(2) == 0 || guest.write(guest.inlet.at, &[], Some(0));
    while goes_on && acts < ACTS && guest.pair.is_alive() {
        acts += 1;
        let block = random.below(24);
        let told = guest.ring(block as u32);
        goes_on = match random.below(5) {
            _ if random.below(daring) > 0 => {
                guest.call(block, call_id(block as u32, acts as u32), told)
            }
            0 | 1 => guest.pair.stray(random, &grants, gone, told.unwrap_or(0)),
            _ => guest.misbehave(random),
        };
        Pair::<D>::rest(random);
    }
    guest.pair.saw_nothing();
    gone.extend(grants);
    acts
}

/// A connection of SENDs.
fn sent<D: Device>(
    device: &D,
    door: &Door,
    preset: Preset,
    random: &mut Random,
    gone: &mut Vec<Grant>,
) -> usize {
    let receives = random.of(&[0, 1, 64, 64]);
    let mut sent = Sent::open(device, door, preset.name(), receives);
    let grant = sent.inlet;
    let mut acts = 0;
    let daring = random.of(&DARING);
    let mut goes_on = random.below(2) == 0 || sent.pair.write_at(grant.at, &[], Some(0));
    while goes_on && acts < ACTS && sent.pair.is_alive() {
        acts += 1;
        goes_on = match random.below(5) {
            _ if random.below(daring) > 0 => sent.honest(random, acts as u64),
            0 | 1 => sent.pair.stray(random, &[grant], gone, 0),
            _ => sent.misbehave(random),
        };
        Pair::<D>::rest(random);
    }
    sent.pair.saw_nothing();
    gone.push(grant);
    acts
}

/// A connection over RB²'s rings.
fn rb2<D: Device>(
    device: &D,
    door: &Door,
    preset: Preset,
    random: &mut Random,
    gone: &mut Vec<Grant>,
) -> usize {
    let receives = random.of(&[0, 1, 64, 64]);
    let mut rings = Rb2::open(device, door, preset.name(), receives);
    let grants = rings.grants;
    let mut acts = 0;
    let daring = random.of(&DARING);
    let mut goes_on = random.below(2) == 0 || rings.pair.write_at(grants[0].at, &[], Some(0));
    while goes_on && acts < ACTS && rings.pair.is_alive() {
        acts += 1;
        goes_on = match random.below(5) {
            _ if random.below(daring) > 0 => rings.honest(random, acts as u64),
            0 | 1 => rings.pair.stray(random, &grants, gone, 0),
            _ => rings.misbehave(random),
        };
        Pair::<D>::rest(random);
    }
    rings.pair.saw_nothing();
    gone.extend(grants);
    acts
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
