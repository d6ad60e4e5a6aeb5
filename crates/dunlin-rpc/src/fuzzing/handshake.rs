//! The address and the numbers that a peer says in the handshake, as the objects of each kind of channel take them.

use dunlin_shm::ShmDevice;
use dunlin_verbs::{Device, EndpointAddress, ENDPOINT_ADDRESS_BYTES};

use crate::channel::datagram::packet::Head;
use crate::channel::datagram::written::{UnconnectedUplink, Zone};
use crate::channel::datagram::Greeting;
use crate::channel::pool::PoolChannel;
use crate::channel::ring::RingChannel;
use crate::channel::Parameters;
use crate::ChannelConfig;

/// Longest memory that a peer's numbers may make us take for it, by way of the settings that are used here.
const EAGER: usize = 256;

/// A side of each kind that is to be joined to a peer.
#[derive(Debug)]
pub struct FuzzedHandshake {
    device: ShmDevice,
    config: ChannelConfig,
}

impl Default for FuzzedHandshake {
    fn default() -> Self {
        Self::new()
    }
}

impl FuzzedHandshake {
    /// On shared memory.
    ///
    /// # Panics
    /// When this machine gives none.
    pub fn new() -> Self {
        Self {
            device: crate::devices::shared_memory().expect("a device"),
            config: ChannelConfig {
                eager_bytes: EAGER,
                ..ChannelConfig::default()
            },
        }
    }

    /// Joins a side of the kind that the first byte chooses to a peer that said what an honest one says, changed by
    /// what follows: one byte for the number that it is about and eight for its value, 255 for the address.
    ///
    /// # Panics
    /// Never, whatever the peer says.
    pub fn join(&self, bytes: &[u8]) {
        let Some((kind, changes)) = bytes.split_first() else {
            return;
        };
        let (device, config) = (&self.device, &self.config);
        let wake = device.create_completion_channel().expect("a channel");
        let ring = || RingChannel::open(device, &wake, config).expect("a ring");
        let pool = || PoolChannel::open(device, &wake, config).expect("a pool");
        let uplink = || UnconnectedUplink::new(device).expect("an uplink");
        match kind % 5 {
            0 | 1 => {
                let peer = ring();
                let (address, said) = changed((peer.address, peer.parameters), changes);
                // Dropped at once: what a joined channel does is the business of other targets.
                let joined = (ring().join)(&address, &said);
                let _ = joined.map(|mut ring| (kind % 5 == 1).then(|| ring.greet()));
            }
            2 => {
                let peer = pool();
                let (address, said) = changed((peer.address, peer.parameters), changes);
                let _ = (pool().join)(&address, &said).map(|mut pool| pool.greet());
            }
            3 => {
                let mut said = Parameters::new();
                uplink().tell(&mut said);
                let (_, said) = changed((nowhere(), said), changes);
                if let Ok(zone) = Zone::new(device, EAGER, &said) {
                    let mut said = Parameters::new();
                    zone.tell(&mut said);
                    let (_, said) = changed((nowhere(), said), changes);
                    let _ = uplink().join(&said);
                }
            }
            _ => {
                let honest = Greeting {
                    to: Head {
                        cookie: 1,
                        session: 1,
                        ..Head::default()
                    },
                    packet_bytes: 4096,
                    longest: 1 << 20,
                    calls: 8,
                };
                let (_, said) = changed((nowhere(), honest.parameters()), changes);
                if let Ok(greeting) = Greeting::read(&said) {
                    assert!(greeting.capacity(4096) < 4096);
                }
            }
        }
    }
}

/// In place of an address, where there is none.
fn nowhere() -> EndpointAddress {
    EndpointAddress::decode(&[0; ENDPOINT_ADDRESS_BYTES])
}

/// What a peer said, with changes.
fn changed(
    (address, mut said): (EndpointAddress, Parameters),
    changes: &[u8],
) -> (EndpointAddress, Parameters) {
    let names: Vec<String> = said.keys().cloned().collect();
    let mut bytes = address.encode();
    for change in changes.chunks_exact(9) {
        let value: [u8; 8] = std::array::from_fn(|i| change[1 + i]);
        match (change[0], names.len()) {
            (255, _) | (_, 0) => {
                let at = usize::from(value[7]) % (ENDPOINT_ADDRESS_BYTES / 8) * 8;
                bytes[at..at + 8].copy_from_slice(&value);
            }
            (254, count) => {
                said.remove(&names[usize::from(value[0]) % count]);
            }
            (name, count) => {
                let name = names[usize::from(name) % count].clone();
                said.insert(name, u64::from_le_bytes(value));
            }
        }
    }
    (EndpointAddress::decode(&bytes), said)
}
