//! HERD's transport for requests (SIGCOMM'14 §4): a client WRITEs them over UC into a zone of its own, whose blocks the
//! server polls; responses and everything else are datagrams.
//!
//! ```text
//! client: Uplink   --- UC WRITE, one right-aligned block for each call --->   Zone: server
//!                  <-- UD SEND: responses, fates ---------------------------
//! ```
//!
//! UC has no acknowledgements, so a lost WRITE is like a lost datagram: it is not reported, and the client asks for the
//! state of the call. A late or partial WRITE is detected by the seal of its block and by its call's generation, as in
//! the message pool, whose block format is used.

mod client;
#[cfg(feature = "fuzzing")]
mod fuzzed;
mod server;

use dunlin_verbs::{
    Access, ConnectAttributes, Device, EndpointAddress, QueuePair, QueuePairConfig, ReceiveQueue,
    Transport, Verbs, VerbsError, ENDPOINT_ADDRESS_BYTES,
};

use super::sends::ENTRIES;
use crate::channel::parameters::{Parameters, PeerParameters};

pub(crate) use client::{UnconnectedUplink, Uplink};
#[cfg(feature = "fuzzing")]
pub(crate) use fuzzed::FuzzedZone;
pub(crate) use server::Zone;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const ZONE: (&str, &str) = ("zone-address", "zone-key");
    pub(super) const SECRET: &str = "zone-secret";
    pub(super) const EAGER: &str = "zone-eager-bytes";
    /// Words of the address of the UC queue pair.
    pub(super) const UPLINK: [&str; WORDS] = [
        "uplink-0", "uplink-1", "uplink-2", "uplink-3", "uplink-4", "uplink-5",
    ];
    const WORDS: usize = super::ENDPOINT_ADDRESS_BYTES / 8;
}

/// For error messages about the peer's parameters.
const WHAT: &str = "a zone for requests";

/// One side's UC queue pair.
#[derive(Debug)]
struct Pair<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    domain: D::ProtectionDomain,
}

impl<D: Device> Pair<D> {
    /// Creates one through which the peer has this `access`.
    ///
    /// # Errors
    /// When the device has no WRITE over UC, or a limit is reached.
    fn new(device: &D, access: Access, inline_bytes: usize) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        if !attributes.transports.uc.contains(Verbs::WRITE) {
            return Err(VerbsError::Unsupported {
                device: attributes.name.clone(),
                what: "WRITE over UC, which the preset herd requires: use fasst or rawwrite".into(),
            });
        }
        let domain = device.create_protection_domain()?;
        let completions = device.create_completion_queue(ENTRIES + 1, None)?;
        let config = QueuePairConfig {
            transport: Transport::UnreliableConnection,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: ENTRIES,
            receive_queue: ReceiveQueue::Own(1),
            segments: 1,
            inline_bytes,
        };
        let mut queue_pair = device.create_queue_pair(&domain, &config)?;
        queue_pair.to_init(access)?;
        Ok(Self {
            queue_pair,
            completions,
            domain,
        })
    }

    /// Adds its address to the parameters.
    fn tell(&self, parameters: &mut Parameters) {
        let address = self.queue_pair.address().encode();
        for (name, word) in parameter::UPLINK.iter().zip(address.chunks_exact(8)) {
            let word = u64::from_le_bytes(std::array::from_fn(|i| word[i]));
            parameters.insert((*name).to_string(), word);
        }
    }

    /// Connects it to the peer with these parameters.
    fn join(&mut self, said: PeerParameters<'_>) -> Result<(), VerbsError> {
        let mut address = [0; ENDPOINT_ADDRESS_BYTES];
        for (name, word) in parameter::UPLINK.iter().zip(address.chunks_exact_mut(8)) {
            word.copy_from_slice(&said.word(name)?.to_le_bytes());
        }
        let peer = EndpointAddress::decode(&address);
        let attributes = ConnectAttributes::default();
        self.queue_pair
            .to_ready_to_receive(Some(&peer), attributes)?;
        self.queue_pair.to_ready_to_send()
    }
}
