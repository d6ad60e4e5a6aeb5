//! Setting up a message pool between a client and a server: the objects of each side, the parameters that it sends, and
//! how it interprets those of the peer.

use dunlin_verbs::{Access, Device, EndpointAddress, Region, VerbsError};

use super::batch::Batch;
use super::block::{Blocks, Draft, Seals};
use super::client::{Pool, State};
use super::scan::Scan;
use super::server::{Theirs, TurnLoad};
use super::turn::Turn;
use super::{
    block_bytes, capacity, zone_bytes, Mapping, PoolChannel, ServedPool, ANSWERS_AT, BLOCKS,
    BUNDLE, CALLS, ENTRY_BYTES, EVENT, NOTIFICATIONS, SLOT_BYTES,
};
use crate::channel::carrier::{Inlet, Peer, Receiving, UnconnectedCarrier};
use crate::channel::opening::Opening;
use crate::channel::parameters::{named, named_place, Parameters, PeerParameters};
use crate::config::{ChannelConfig, MAX_MESSAGE_BYTES};

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const REQUESTS: (&str, &str) = ("requests-address", "requests-key");
    pub(super) const ZONES: (&str, &str) = ("pool-address", "pool-key");
    pub(super) const PLACES: &str = "pool-zones";
    /// One: the zone belongs to the client for as long as it is connected.
    pub(super) const FIXED: &str = "pool-fixed";
    /// The number that identifies a client received by completions.
    pub(super) const NOTIFICATIONS: &str = "pool-notifications";
    pub(super) const SECRET: &str = "pool-secret";
    /// The other half of a key: messages are sealed by a MAC.
    pub(super) const SECRET_HIGH: &str = "pool-secret-high";
}

/// Offset of the only zone in memory that belongs to one client: on the page after that of its entry.
const OWN_ZONE_AT: usize = 4096;
/// The highest number of a client: it shares the immediate with a block.
const CLIENTS_MAX: usize = 0xffff;

/// For error messages about the peer's parameters.
const WHAT: &str = "a message pool";

/// Reads what each side states.
fn read(said: PeerParameters<'_>) -> Result<(Peer, Seals), VerbsError> {
    let secret = said.word(parameter::SECRET)?;
    let seals = match said.get(parameter::SECRET_HIGH) {
        None => Seals::sum(secret),
        Some(high) => Seals::mac([secret, high]),
    };
    Ok((Peer::read(said, MAX_MESSAGE_BYTES)?, seals))
}

/// How messages to this side are to be sealed.
#[derive(Clone, Copy, Debug)]
enum Secret {
    /// For memory that only the peer writes: a seal shows that a message is complete.
    OfSum(u64),
    /// For memory that others write as well: it also shows that the message comes from the peer.
    OfMac([u64; 2]),
}

impl Secret {
    fn of_sum<D: Device>(device: &D) -> Result<Self, VerbsError> {
        Ok(Self::OfSum(crate::random::random(device)?))
    }

    fn of_mac<D: Device>(device: &D) -> Result<Self, VerbsError> {
        let half = || crate::random::random(device);
        Ok(Self::OfMac([half()?, half()?]))
    }

    fn seals(self) -> Seals {
        match self {
            Self::OfSum(secret) => Seals::sum(secret),
            Self::OfMac(key) => Seals::mac(key),
        }
    }

    /// Adds it to the parameters that this side states.
    fn tell(self, parameters: &mut Parameters) {
        let (low, high) = match self {
            Self::OfSum(secret) => (secret, None),
            Self::OfMac([low, high]) => (low, Some(high)),
        };
        parameters.insert(parameter::SECRET.to_owned(), low);
        parameters.extend(high.map(|high| (parameter::SECRET_HIGH.to_owned(), high)));
    }
}

impl<D: Device> PoolChannel<D> {
    /// Creates the objects of a client's side. `wake` is raised when the server wakes it.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        let eager = config.eager_bytes;
        let requests = (block_bytes(eager), 1);
        let carrier = UnconnectedCarrier::new(device, wake, config, requests, &Receiving::WakeUps)?;
        let answers = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let answers_bytes = ANSWERS_AT + (EVENT + 1) * block_bytes(eager);
        let region = device.allocate_region(&carrier.domain, answers_bytes, answers)?;
        let requests_bytes = zone_bytes(eager) + BLOCKS * SLOT_BYTES;
        let requests =
            device.allocate_region(&carrier.domain, requests_bytes, Access::REMOTE_READ)?;
        let secret = Secret::of_sum(device)?;
        let mut parameters = carrier.parameters(region.remote());
        parameters.extend(named_place(parameter::REQUESTS, requests.remote()));
        secret.tell(&mut parameters);
        let inlet = Inlet { region, at: 0 };
        Ok(
            carrier.opening(parameters, move |carrier, peer, parameters| {
                Self::join(carrier, (inlet, requests, secret), peer, parameters)
            }),
        )
    }

    /// Connects it to the server, which is connected already.
    fn join(
        carrier: UnconnectedCarrier<D>,
        (inlet, requests, secret): (Inlet<D>, D::Region, Secret),
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Self, VerbsError> {
        let said = PeerParameters::new(WHAT, parameters);
        let (server, writes) = read(said)?;
        let fixed = said.is_set(parameter::FIXED);
        let rings = said.optional(parameter::NOTIFICATIONS, 0..=CLIENTS_MAX)?;
        let pool = Pool {
            zones: said.place(parameter::ZONES)?,
            places: said.number(parameter::PLACES, 1..=1 << 16)?,
            zone_bytes: zone_bytes(server.eager),
            block_bytes: block_bytes(server.eager),
            rings: rings.map(|client| client as u32),
            is_fixed: fixed,
        };
        let carrier = carrier.join(peer, inlet, server)?;
        let eager = carrier.config.eager_bytes;
        let bytes = block_bytes(eager);
        Ok(Self {
            carrier,
            pool,
            peer_zones: None,
            requests,
            request_blocks: Blocks { start: 0, bytes },
            bundle_at: zone_bytes(eager),
            answers: Blocks {
                start: ANSWERS_AT,
                bytes,
            },
            capacity: capacity(server.eager).min(capacity(eager)),
            reads: secret.seals(),
            writes,
            state: if fixed { State::Process } else { State::Idle },
            turn: Turn::default(),
            out: 0,
            waiting: 0,
            taken: 0,
            next: 0,
            found: 0,
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

/// The memory of a client's entry and zone at the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolMemory<'a, R, Q> {
    /// Memory of its own, for as long as it is connected (static mapping). With notifications, its messages are
    /// received by completions.
    Own(Option<Notifications<'a, Q>>),
    /// Memory of its own, while it is served by turns: for devices where a client that may write a pool could also read
    /// it ([`dunlin_verbs::DeviceAttributes::grants_are_mappings`]). A zone of the pools is then only the right to be
    /// served; the client's own zone is used in its place.
    OwnByTurns,
    /// Memory that all clients share: its entry, the first of the zones, and their number.
    Shared {
        /// The region of entries and zones.
        region: &'a R,
        /// Offset of the client's entry.
        entry_at: usize,
        /// Offset of the first zone.
        zones_at: usize,
        /// Number of zones.
        places: usize,
    },
}

/// How messages of a client are received by completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notifications<'a, Q> {
    /// The queue for the completions.
    pub(crate) queue: &'a Q,
    /// Their id in the queue.
    pub(crate) id: u64,
    /// The number by which the client identifies itself.
    pub(crate) client: u32,
}

/// A server's side that is not connected to its client yet.
struct UnconnectedServed<D: Device> {
    inlet: Inlet<D>,
    zones_at: usize,
    has_own_zone: bool,
    mapping: Mapping,
    rings: Option<u32>,
    secret: Secret,
}

impl<D: Device> ServedPool<D> {
    /// Creates the objects of a server's side. `wake` is raised when the client wakes it.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        memory: PoolMemory<'_, D::Region, D::CompletionQueue>,
    ) -> Result<Opening<Self>, VerbsError> {
        let eager = config.eager_bytes;
        let (mapping, rings, segments) = match &memory {
            PoolMemory::Own(Some(rings)) => (Mapping::Notified, Some(rings), 1),
            PoolMemory::Own(None) => (Mapping::Polled, None, 1),
            PoolMemory::OwnByTurns | PoolMemory::Shared { .. } => (Mapping::ByTurns, None, BUNDLE),
        };
        let receiving = rings.map_or(Receiving::WakeUps, |rings| Receiving::Notifications {
            queue: rings.queue,
            id: rings.id,
            receives: NOTIFICATIONS,
        });
        let rings = rings.map(|rings| rings.client);
        let requests = (block_bytes(eager), segments);
        let carrier = UnconnectedCarrier::new(device, wake, config, requests, &receiving)?;
        let has_own_zone = !matches!(memory, PoolMemory::Shared { .. });
        // Others can write into a shared pool, so a message has to show which client it comes from.
        let secret = match has_own_zone {
            true => Secret::of_sum(device)?,
            false => Secret::of_mac(device)?,
        };
        let (region, at, zones_at, places) = match memory {
            PoolMemory::Own(_) | PoolMemory::OwnByTurns => {
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
                let own = device.register_again(&carrier.domain, region, region.access())?;
                // Remains of an earlier client.
                own.memory().fill(entry_at, ENTRY_BYTES, 0);
                (own, entry_at, zones_at, places)
            }
        };
        let mut parameters = carrier.parameters(region.remote().plus(at as u64));
        let zones = region.remote().plus(zones_at as u64);
        parameters.extend(named_place(parameter::ZONES, zones));
        parameters.extend(named([
            (parameter::PLACES, places as u64),
            (parameter::FIXED, u64::from(mapping != Mapping::ByTurns)),
        ]));
        secret.tell(&mut parameters);
        if let Some(client) = rings {
            parameters.insert(parameter::NOTIFICATIONS.to_owned(), u64::from(client));
        }
        let unconnected = UnconnectedServed {
            inlet: Inlet { region, at },
            zones_at,
            has_own_zone,
            mapping,
            rings,
            secret,
        };
        Ok(carrier.opening(parameters, |carrier, peer, parameters| {
            unconnected.join(carrier, peer, parameters)
        }))
    }
}

impl<D: Device> UnconnectedServed<D> {
    /// Connects it to the client.
    fn join(
        self,
        carrier: UnconnectedCarrier<D>,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<ServedPool<D>, VerbsError> {
        let said = PeerParameters::new(WHAT, parameters);
        let (client, writes) = read(said)?;
        let theirs = Theirs {
            requests: said.place(parameter::REQUESTS)?,
            request_bytes: block_bytes(client.eager),
            bundle_at: zone_bytes(client.eager),
            answers: client.inlet.plus(ANSWERS_AT as u64),
            answer_bytes: block_bytes(client.eager),
        };
        let (entry_at, mapping) = (self.inlet.at, self.mapping);
        let fixed = mapping != Mapping::ByTurns;
        let carrier = carrier.join(peer, self.inlet, client)?;
        let eager = carrier.config.eager_bytes;
        let bytes = block_bytes(eager);
        let device_segments = carrier.device.attributes().max_segments.min(BUNDLE);
        Ok(ServedPool {
            carrier,
            theirs,
            peer_answers: None,
            usual: 0,
            entry_at,
            zones_at: self.zones_at,
            has_own_zone: self.has_own_zone,
            zone_bytes: zone_bytes(eager),
            block_bytes: bytes,
            capacity: capacity(client.eager).min(capacity(eager)),
            reads: self.secret.seals(),
            writes,
            rings: self.rings,
            mapping,
            place: fixed.then_some(0),
            turn: 0,
            active: fixed,
            ending: false,
            patient: false,
            batch: Batch::default(),
            told_over: false,
            event_due: false,
            told: fixed,
            leaving: false,
            served: 0,
            bundle: device_segments,
            fetch: None,
            late: None,
            next: [0; CALLS],
            words: [0; BLOCKS - CALLS],
            held: None,
            working: 0,
            seen: [0; BLOCKS],
            parts: [0; BLOCKS],
            overwritten: false,
            scan: Scan::default(),
            load: TurnLoad::default(),
            draft: Draft::new(bytes),
            scratch: vec![0; bytes].into(),
            staging: None,
            unflushed: false,
        })
    }
}
