//! A hostile client of SENDs.

use dunlin_verbs::{Device, EndpointAddress, Operation, Region};

use super::pair::{Grant, Pair};
use super::peer::{valid_call, Peer};
use super::{Door, Random, ECHO};
use crate::channel::message::{Header, Kind};

/// Size in bytes of the memory that a server grants such a client.
const INLET_BYTES: usize = 4096;

/// See the module.
pub(crate) struct Sent<D: Device> {
    pub(crate) pair: Pair<D>,
    pub(crate) inlet: Grant,
}

impl<D: Device> Sent<D> {
    /// Opens a connection with this many RECEIVEs for answers.
    pub(crate) fn open(device: &D, door: &Door, preset: &str, receives: usize) -> Self {
        let mut pair = Pair::new(device, receives);
        let own = pair.inlet.remote();
        let told = [
            ("inlet-address", own.address),
            ("inlet-key", u64::from(own.key.0)),
            ("sent-receives", 64),
            ("eager-bytes", 4096),
            ("max-message-bytes", 1 << 20),
        ];
        let parameters = told.map(|(name, value)| (name.to_owned(), value)).into();
        let address: EndpointAddress = dunlin_verbs::QueuePair::address(&pair.queue_pair);
        let reply = door.open(preset, address, parameters);
        pair.join(&reply.endpoint);
        let inlet = Grant::told(
            &reply.parameters,
            ("inlet-address", "inlet-key"),
            INLET_BYTES,
        );
        Self { pair, inlet }
    }

    /// SENDs these bytes. Returns `false` if the connection is over.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.pair.staging.memory().write(0, bytes);
        let send = Operation::Send { immediate: None };
        self.pair.operate(send, bytes.len())
    }

    fn message(&mut self, word: u64, header: Header, payload: &[u8]) -> bool {
        let mut bytes = word.to_le_bytes().to_vec();
        bytes.extend(header.encode());
        bytes.extend(payload);
        self.send(&bytes)
    }
}

impl<D: Device> Peer<D> for Sent<D> {
    fn pair(&mut self) -> &mut Pair<D> {
        &mut self.pair
    }

    fn grants(&self) -> Vec<Grant> {
        vec![self.inlet]
    }

    fn honest(&mut self, random: &mut Random, call: u64) -> bool {
        let (kind, handler, payload) = valid_call(random, self.pair.inlet.remote());
        let header = Header::new(kind, handler, call, payload.len());
        self.message(0, header, &payload)
    }

    /// Sends a message that is almost valid, or noise.
    fn misbehave(&mut self, random: &mut Random) -> bool {
        let call = random.next();
        let word = random.of(&[0, 1, u64::from(u32::MAX), call, 1 << 32]);
        let length = random.of(&[0, 1, 24, 700]);
        let payload = random.bytes(length);
        match random.below(4) {
            // It refers to messages that never existed, or has a wrong length or kind.
            0 => {
                let kind = random.of(&[Kind::Request, Kind::Release, Kind::Response, Kind::Turn]);
                let header = Header::new(kind, ECHO, call, length);
                self.message(word, header, &payload)
            }
            1 => {
                let told = random.of(&[0, length + 1, 1 << 20]);
                let header = Header::new(Kind::Request, ECHO, call, told);
                self.message(0, header, &payload)
            }
            2 => self.send(&word.to_le_bytes()),
            _ => {
                let length = random.of(&[0, 7, 9, 23, 24, 4000]);
                let noise = random.bytes(length);
                self.send(&noise)
            }
        }
    }
}
