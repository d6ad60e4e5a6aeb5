//! A hostile client of message pools.

use dunlin_verbs::{Device, QueuePair, Region, RemoteAddress};

use super::pair::{Grant, Pair};
use super::peer::Peer;
use super::{Door, Random, ECHO};
use crate::channel::call_id::call_id;
use crate::channel::message::{Header, Kind};
use crate::channel::pool::block::{Draft, Seals};
use crate::channel::pool::{block_bytes, zone_bytes, ENTRY_BYTES};
use crate::Preset;

/// The bit that notifies of a message, as honest clients set it.
pub(crate) const NOTIFICATIONS: u32 = 1 << 29;
/// The server's default, since it was not told otherwise.
pub(crate) const EAGER: usize = 4096;

/// A hostile client of a pool.
pub(crate) struct Guest<D: Device> {
    pub(crate) pair: Pair<D>,
    pub(crate) zone: Grant,
    /// Its entry. In memory shared with others it only writes there: a client that overwrites the entries of others
    /// makes them reconnect (docs/scalerpc.md, what is not met).
    pub(crate) inlet: Grant,
    /// The number by which it must identify itself, if it notifies by completions.
    pub(crate) number: Option<u32>,
    seals: Seals,
}

impl<D: Device> Guest<D> {
    /// Makes the handshake of a client.
    pub(crate) fn open(device: &D, door: &Door, preset: Preset) -> Self {
        let mut pair = Pair::new(device, 64);
        let inlet = pair.inlet.remote();
        let numbers = [
            ("inlet-address", inlet.address),
            ("inlet-key", u64::from(inlet.key.0)),
            ("requests-address", inlet.address),
            ("requests-key", u64::from(inlet.key.0)),
            ("eager-bytes", 1024),
            ("max-message-bytes", 1 << 20),
            ("pool-secret", 1),
        ];
        let parameters = numbers.map(|(name, value)| (name.to_owned(), value)).into();
        let reply = door.open(preset.name(), pair.queue_pair.address(), parameters);
        pair.join(&reply.endpoint);
        let told = |name: &str| reply.parameters.get(name).copied();
        let secret = told("pool-secret").expect("the secret of a pool");
        let zones = told("pool-zones").expect("the number of zones") as usize;
        Self {
            zone: Grant::told(
                &reply.parameters,
                ("pool-address", "pool-key"),
                zones * zone_bytes(EAGER),
            ),
            inlet: Grant::told(
                &reply.parameters,
                ("inlet-address", "inlet-key"),
                ENTRY_BYTES,
            ),
            number: told("pool-notifications").map(|number| number as u32),
            seals: match told("pool-secret-high") {
                None => Seals::sum(secret),
                Some(high) => Seals::mac([secret, high]),
            },
            pair,
        }
    }

    /// The immediate data that notifies of a message in this block.
    pub(crate) fn ring(&self, block: u32) -> Option<u32> {
        self.number
            .map(|number| NOTIFICATIONS | number << 8 | block)
    }

    pub(crate) fn write(
        &mut self,
        at: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> bool {
        self.pair.write_at(at, bytes, immediate)
    }

    /// Writes a message with a valid seal, and notifies of it in this way.
    pub(crate) fn message(
        &mut self,
        block: usize,
        header: Header,
        payload: &[u8],
        ring: Option<u32>,
    ) -> bool {
        let mut draft = Draft::new(block_bytes(EAGER));
        draft.fill(payload);
        let bytes = draft.finish(header, 0, &self.seals, block).to_vec();
        let end = (block + 1) * block_bytes(EAGER);
        self.write(self.zone.at.plus((end - bytes.len()) as u64), &bytes, ring)
    }

    pub(crate) fn call(&mut self, block: usize, call: u64, ring: Option<u32>) -> bool {
        let payload = b"a request of nobody's";
        let header = Header::new(Kind::Request, ECHO, call, payload.len());
        self.message(block, header, payload, ring)
    }
}

impl<D: Device> Peer<D> for Guest<D> {
    fn pair(&mut self) -> &mut Pair<D> {
        &mut self.pair
    }

    fn grants(&self) -> Vec<Grant> {
        vec![self.inlet, self.zone]
    }

    fn honest(&mut self, random: &mut Random, call: u64) -> bool {
        let block = random.below(24);
        let call = call_id(block as u32, call as u32);
        self.call(block, call, self.ring(block as u32))
    }

    fn immediate(&self, random: &mut Random) -> u32 {
        self.ring(random.below(24) as u32).unwrap_or(0)
    }

    fn misbehave(&mut self, random: &mut Random) -> bool {
        let block = random.below(32);
        let any = random.next() as u32;
        let other = random.of(&[0, 31, 32, 77, 255]);
        let ring = random.of(&[self.ring(block as u32), self.ring(other), None, Some(any)]);
        match random.below(6) {
            0 => {
                let at = random.below(32 * block_bytes(EAGER) - 600);
                let length = random.below(600);
                let noise = random.bytes(length);
                self.write(self.zone.at.plus(at as u64), &noise, ring)
            }
            1 => {
                let word = (random.next() >> random.below(64)).to_le_bytes();
                let at = random.of(&[0, 64]);
                self.write(self.inlet.at.plus(at), &word, ring)
            }
            2 => self.write(self.zone.at, &[], ring),
            3 => {
                let kind = random.of(&[
                    Kind::Response,
                    Kind::LongRequest,
                    Kind::Attach,
                    Kind::Release,
                    Kind::Cancel,
                    Kind::Turn,
                ]);
                let length = random.below(40);
                let payload = random.bytes(length);
                let call = random.of(&[block as u64, 1 << 40, u64::MAX]);
                let header = Header::new(kind, random.of(&[0, ECHO, 999]), call, length);
                self.message(block, header, &payload, ring)
            }
            _ => {
                let generation = random.of(&[0, 1, 2, u32::MAX]);
                self.call(block, call_id(block as u32, generation), ring)
            }
        }
    }
}
