//! Setting up a message pool between a client and a server: the objects of each side, what it tells the other, and what it makes of the
//! answer.

use dunlin_verbs::{Access, Device, EndpointAddress, Region, RemoteAddress, VerbsError};

use super::batch::Batch;
use super::block::{Blocks, Draft, Seals};
use super::client::{Pool, State};
use super::scan::Scan;
use super::server::{Theirs, TurnLoad};
use super::turn::Turn;
use super::{
    block_bytes, capacity, zone_bytes, Mapping, PoolChannel, ServedPool, ANSWERS_AT, BLOCKS,
    BUNDLE, CALLS, ENTRY_BYTES, EVENT, RINGS, SLOT_BYTES,
};
use crate::channel::carrier::{self, Arrivals, Inlet, Peer, UnconnectedCarrier};
use crate::channel::message::DESCRIPTOR_BYTES;
use crate::channel::Parameters;
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const INLET: (&str, &str) = ("inlet-address", "inlet-key");
    pub(super) const REQUESTS: (&str, &str) = ("requests-address", "requests-key");
    pub(super) const ZONES: (&str, &str) = ("pool-address", "pool-key");
    pub(super) const PLACES: &str = "pool-zones";
    /// One: the zone is the client's for as long as it is connected.
    pub(super) const FIXED: &str = "pool-fixed";
    /// What a client that is heard by completions is known by.
    pub(super) const RINGS: &str = "pool-rings";
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
    pub(super) const SECRET: &str = "pool-secret";
}

/// Where the only zone begins in memory that is one client's: on the page after that of its entry.
const OWN_ZONE_AT: usize = 4096;
/// The highest number that a client is known by: it shares the immediate with a block.
const CLIENTS_MAX: usize = 0xffff;

/// For messages about what a peer said.
const WHAT: &str = "a message pool";

/// What each side says of itself.
struct Said {
    inlet: RemoteAddress,
    eager: usize,
    longest: usize,
    seals: Seals,
}

impl Said {
    fn read(parameters: &Parameters) -> Result<Self, VerbsError> {
        let number = |name, most| carrier::number(parameters, WHAT, name, most);
        let eager = number(parameter::EAGER, 1 << 30)?;
        if eager < DESCRIPTOR_BYTES {
            return Err(VerbsError::Peer(format!(
                "its eager-bytes is {eager}: not even a descriptor fits"
            )));
        }
        let longest = number(parameter::LONGEST, 1 << 30)?;
        if longest < eager {
            return Err(VerbsError::Peer(format!(
                "its max-message-bytes is {longest}, less than its eager-bytes, {eager}"
            )));
        }
        Ok(Self {
            inlet: carrier::place(parameters, WHAT, parameter::INLET)?,
            eager,
            longest,
            seals: Seals::new(number(parameter::SECRET, usize::MAX)? as u64),
        })
    }
}

fn told(
    config: &ChannelConfig,
    secret: u64,
    places: &[((&str, &str), RemoteAddress)],
) -> Parameters {
    let mut parameters: Parameters = [
        (parameter::EAGER, config.eager_bytes as u64),
        (parameter::LONGEST, config.max_message_bytes as u64),
        (parameter::SECRET, secret),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into();
    for ((address, key), place) in places {
        parameters.insert((*address).to_string(), place.address);
        parameters.insert((*key).to_string(), u64::from(place.key.0));
    }
    parameters
}

/// A client's side whose server is not known yet.
#[derive(Debug)]
pub(crate) struct UnconnectedPool<D: Device> {
    carrier: UnconnectedCarrier<D>,
    inlet: D::Region,
    requests: D::Region,
    secret: u64,
}

impl<D: Device> UnconnectedPool<D> {
    /// Makes the objects of one side. `wake` is raised when the server wakes it.
    pub(crate) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Self, VerbsError> {
        let eager = config.eager_bytes;
        let carrier = UnconnectedCarrier::new(device, wake, config, block_bytes(eager))?;
        let answers = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let answers_bytes = ANSWERS_AT + (EVENT + 1) * block_bytes(eager);
        let inlet = device.allocate_region(&carrier.domain, answers_bytes, answers)?;
        let requests_bytes = zone_bytes(eager) + BLOCKS * SLOT_BYTES;
        let requests =
            device.allocate_region(&carrier.domain, requests_bytes, Access::REMOTE_READ)?;
        Ok(Self {
            carrier,
            inlet,
            requests,
            secret: crate::fabric::random(device)?,
        })
    }

    /// Where the server reaches this side.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.carrier.address()
    }

    /// What the server must know beyond the address.
    pub(crate) fn parameters(&self) -> Parameters {
        let places = [
            (parameter::INLET, self.inlet.remote()),
            (parameter::REQUESTS, self.requests.remote()),
        ];
        told(&self.carrier.config, self.secret, &places)
    }

    /// Joins it to the server, which is joined already.
    pub(crate) fn connect(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<PoolChannel<D>, VerbsError> {
        let said = Said::read(parameters)?;
        let places = carrier::number(parameters, WHAT, parameter::PLACES, 1 << 16)?;
        let fixed = parameters.get(parameter::FIXED) == Some(&1);
        let rings = parameters.contains_key(parameter::RINGS);
        let rings = rings.then(|| carrier::number(parameters, WHAT, parameter::RINGS, CLIENTS_MAX));
        let pool = Pool {
            zones: carrier::place(parameters, WHAT, parameter::ZONES)?,
            places,
            zone_bytes: zone_bytes(said.eager),
            block_bytes: block_bytes(said.eager),
            rings: rings.transpose()?.map(|client| client as u32),
        };
        let theirs = Peer {
            inlet: said.inlet,
            longest: said.longest,
        };
        let inlet = Inlet {
            region: self.inlet,
            at: 0,
        };
        let mut carrier = self.carrier.join(peer, inlet, theirs)?;
        carrier.greet()?;
        let eager = carrier.config.eager_bytes;
        let bytes = block_bytes(eager);
        Ok(PoolChannel {
            carrier,
            pool,
            requests: self.requests,
            request_blocks: Blocks { start: 0, bytes },
            bundle_at: zone_bytes(eager),
            answers: Blocks {
                start: ANSWERS_AT,
                bytes,
            },
            capacity: capacity(said.eager).min(capacity(eager)),
            reads: Seals::new(self.secret),
            writes: said.seals,
            state: if fixed { State::Process } else { State::Idle },
            turn: Turn::default(),
            out: 0,
            waiting: 0,
            taken: 0,
            next: 0,
            lengths: [0; EVENT],
            seen: [0; EVENT + 1],
            words: [0; EVENT - CALLS],
            serial: 0,
            draft: Draft::new(bytes),
            scratch: vec![0; bytes].into(),
            unflushed: false,
            said_leaving: false,
        })
    }
}

/// Where a client's entry and zone are, at the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolMemory<'a, R, Q> {
    /// In memory of its own, for as long as it is connected (static mapping). With rings: its messages are heard by completions.
    Own(Option<Rings<'a, Q>>),
    /// In memory that all clients share: its entry, the first of the zones, and how many they are.
    Shared {
        /// Entries and zones.
        region: &'a R,
        /// Offset of the client's entry.
        entry_at: usize,
        /// Offset of the first zone.
        zones_at: usize,
        /// Zones.
        places: usize,
    },
}

/// How messages of a client are heard by completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings<'a, Q> {
    /// Where the completions go.
    pub(crate) queue: &'a Q,
    /// The id that they have there.
    pub(crate) id: u64,
    /// What the client says that it is.
    pub(crate) client: u32,
}

/// A server's side that is not joined to its client yet.
#[derive(Debug)]
pub(crate) struct UnconnectedServedPool<D: Device> {
    carrier: UnconnectedCarrier<D>,
    inlet: D::Region,
    entry_at: usize,
    zones_at: usize,
    places: usize,
    fixed: bool,
    rings: Option<u32>,
    secret: u64,
}

impl<D: Device> UnconnectedServedPool<D> {
    /// Makes the objects of one side. `wake` is raised when the client wakes it.
    pub(crate) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        memory: PoolMemory<'_, D::Region, D::CompletionQueue>,
    ) -> Result<Self, VerbsError> {
        let eager = config.eager_bytes;
        let rings = match &memory {
            PoolMemory::Own(rings) => rings.as_ref(),
            PoolMemory::Shared { .. } => None,
        };
        let arrivals = rings.map(|rings| Arrivals {
            queue: rings.queue,
            id: rings.id,
            receives: RINGS,
        });
        let longest = block_bytes(eager);
        let segments = match &memory {
            PoolMemory::Own(_) => 1,
            PoolMemory::Shared { .. } => BUNDLE,
        };
        let carrier =
            UnconnectedCarrier::with_arrivals(device, wake, config, longest, (arrivals, segments))?;
        let fixed = matches!(memory, PoolMemory::Own(_));
        let (inlet, entry_at, zones_at, places) = match memory {
            PoolMemory::Own(_) => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                let zones_at = OWN_ZONE_AT;
                let bytes = zones_at + zone_bytes(eager);
                let region = device.allocate_region(&carrier.domain, bytes, access)?;
                (region, 0, zones_at, 1)
            }
            PoolMemory::Shared {
                region,
                entry_at,
                zones_at,
                places,
            } => {
                let own = device.register_again(&carrier.domain, region)?;
                // What an earlier client has left.
                own.memory().fill(entry_at, ENTRY_BYTES, 0);
                (own, entry_at, zones_at, places)
            }
        };
        Ok(Self {
            carrier,
            inlet,
            entry_at,
            zones_at,
            places,
            fixed,
            rings: rings.map(|rings| rings.client),
            secret: crate::fabric::random(device)?,
        })
    }

    /// Where the client reaches this side.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.carrier.address()
    }

    /// What the client must know beyond the address.
    pub(crate) fn parameters(&self) -> Parameters {
        let region = self.inlet.remote();
        let places = [
            (parameter::INLET, region.plus(self.entry_at as u64)),
            (parameter::ZONES, region.plus(self.zones_at as u64)),
        ];
        let mut parameters = told(&self.carrier.config, self.secret, &places);
        parameters.insert(parameter::PLACES.to_string(), self.places as u64);
        parameters.insert(parameter::FIXED.to_string(), u64::from(self.fixed));
        if let Some(client) = self.rings {
            parameters.insert(parameter::RINGS.to_string(), u64::from(client));
        }
        parameters
    }

    /// Joins it to the client.
    pub(crate) fn join(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<ServedPool<D>, VerbsError> {
        let said = Said::read(parameters)?;
        let theirs = Theirs {
            requests: carrier::place(parameters, WHAT, parameter::REQUESTS)?,
            request_bytes: block_bytes(said.eager),
            bundle_at: zone_bytes(said.eager),
            answers: said.inlet.plus(ANSWERS_AT as u64),
            answer_bytes: block_bytes(said.eager),
        };
        let peer_said = Peer {
            inlet: said.inlet,
            longest: said.longest,
        };
        let inlet = Inlet {
            region: self.inlet,
            at: self.entry_at,
        };
        let carrier = self.carrier.join(peer, inlet, peer_said)?;
        let eager = carrier.config.eager_bytes;
        let bytes = block_bytes(eager);
        let device_segments = carrier.device.attributes().max_segments.min(BUNDLE);
        Ok(ServedPool {
            carrier,
            theirs,
            entry_at: self.entry_at,
            zones_at: self.zones_at,
            zone_bytes: zone_bytes(eager),
            block_bytes: bytes,
            capacity: capacity(said.eager).min(capacity(eager)),
            reads: Seals::new(self.secret),
            writes: said.seals,
            rings: self.rings,
            mapping: match (self.fixed, self.rings) {
                (false, _) => Mapping::ByTurns,
                (true, None) => Mapping::Polled,
                (true, Some(_)) => Mapping::Rung,
            },
            place: self.fixed.then_some(0),
            turn: 0,
            active: self.fixed,
            ending: false,
            patient: false,
            batch: Batch::default(),
            told_over: false,
            event_due: false,
            told: self.fixed,
            leaving: false,
            served: 0,
            bundle: device_segments,
            fetch: None,
            next: [0; CALLS],
            words: [0; BLOCKS - CALLS],
            working: 0,
            seen: [0; BLOCKS],
            parts: [0; BLOCKS],
            spoilt: false,
            scan: Scan::default(),
            load: TurnLoad::default(),
            draft: Draft::new(bytes),
            scratch: vec![0; bytes].into(),
            staging: None,
            unflushed: false,
        })
    }
}
