//! The logical connection over a device: drives a [`Connection`] with queue pairs, memory and completions.
//!
//! Data are sent over a primary queue pair and its backups, UC or RC, which share one completion queue for sends and
//! one for receives. Acknowledgements of UC have a separate UD queue pair and completion queue, polled first (Flor
//! §4.1), and a separate traffic class, from which networks and NICs derive a priority if they are set up for it. A
//! single owner polls; nothing here waits, reads a clock or starts a thread.

mod acks;
mod actions;
mod arrivals;
mod config;
mod memory;
mod paths;
mod shared_acks;

use std::collections::{HashMap, VecDeque};

use dunlin_verbs::{
    thread, Completion, CompletionQueue, Device, EndpointAddress, Notify, Transport, VerbsError,
};

pub use config::{LinkConfig, LinkError, LinkEvent};
pub use memory::{Landing, Source};

use crate::connection::{Connection, MessageId, Modules, SubmitError};
use crate::ledger::Ledger;
use crate::round_trip::{ClockCounts, ClockSource, ClockSync};
use acks::AckEnd;
use memory::{Fronts, Landings};
use paths::PathEnd;
use shared_acks::SharedAcks;

/// Number of completions taken at a time.
const BATCH: usize = 32;
/// Time between attempts to renew a queue pair, or to connect it.
const RENEW_AGAIN_NS: u64 = 10_000_000;
/// In addition, this multiple of the time that the last attempt took.
const TAKEN_AGAIN_AFTER: u64 = 11;

/// See the module.
#[derive(Debug)]
pub struct LogicalConnection<D: Device> {
    device: D,
    domain: D::ProtectionDomain,
    config: LinkConfig,
    connection: Connection,
    sends: D::CompletionQueue,
    receives: D::CompletionQueue,
    paths: Vec<PathEnd<D>>,
    /// `None` where the device acknowledges.
    acks: Option<AckEnd<D>>,
    /// Used instead where [`LinkConfig::shares_acks`] says so.
    shared_acks: Option<SharedAcks<D::Region>>,
    fronts: Fronts<D::Region>,
    /// For work requests that have not completed, by global number: the slot of the header in front, if any. For
    /// messages that are not finished: where they are.
    posted: Ledger<Option<usize>>,
    sources: Ledger<Source<D::Region>>,
    landings: Landings<D>,
    landed: HashMap<u32, (u32, Landing<D::Region>)>,
    assembled: HashMap<u32, Vec<u8>>,
    /// Paths by their queue pair numbers on the device.
    numbers: HashMap<u32, usize>,
    events: VecDeque<LinkEvent<D>>,
    /// Work requests that the device did not accept: treated as failed.
    refused: VecDeque<u64>,
    /// When to try again to renew a queue pair that the device could not renew.
    renew_again_ns: Option<u64>,
    clock: ClockSync,
    /// The address of the peer's first queue pair.
    peer: Option<EndpointAddress>,
    /// Whether the peer has been told the other addresses.
    introduced: bool,
    /// The time of the last poll.
    now_ns: u64,
    /// Buffer for polled completions, so that none has to be initialized for each poll.
    polled: Vec<Completion>,
}

impl<D: Device> LogicalConnection<D> {
    /// Creates a connection that is not connected yet.
    ///
    /// # Errors
    /// When the device or the configuration does not allow it.
    pub fn new(device: D, config: LinkConfig) -> Result<Self, LinkError> {
        let modules = config.deployment.modules(&config.network)?;
        Self::with_modules(device, config, modules)
    }

    /// The same with the caller's modules. They have to fit the service of the queue pairs: on UC they must retransmit
    /// what is lost.
    ///
    /// # Errors
    /// When the device or the configuration does not allow it.
    pub fn with_modules(
        device: D,
        config: LinkConfig,
        modules: Modules,
    ) -> Result<Self, LinkError> {
        let domain = device.create_protection_domain()?;
        Self::in_domain(device, domain, config, modules, None)
    }

    /// The same in the caller's protection domain, whose regions can then be submitted. With a channel,
    /// [`LogicalConnection::request_notify`] can be used.
    ///
    /// # Errors
    /// When the device or the configuration does not allow it.
    pub fn in_domain(
        device: D,
        domain: D::ProtectionDomain,
        config: LinkConfig,
        modules: Modules,
        channel: Option<&D::CompletionChannel>,
    ) -> Result<Self, LinkError> {
        let connection = Connection::new(config.connection, modules)?;
        let count = config.connection.paths;
        let entries = count * config.connection.send_queue;
        let transport = config.deployment.transport();
        let shares = config.shares_acks && transport == Transport::UnreliableConnection;
        let shared = if shares {
            count * shared_acks::SLOTS
        } else {
            0
        };
        let sends = device.create_completion_queue((entries + shared).max(1), channel)?;
        let buffers = count * config.receives;
        let receives = device.create_completion_queue(buffers.max(1), channel)?;
        let mut paths = Vec::with_capacity(count);
        let mut numbers = HashMap::new();
        for path in 0..count {
            let end = PathEnd::new(&device, &domain, &config, (&sends, &receives), path)?;
            numbers.insert(end.number(), path);
            paths.push(end);
        }
        Ok(Self {
            acks: match transport {
                Transport::ReliableConnection => None,
                _ if shares => None,
                _ => {
                    let class = config.ack_traffic_class;
                    Some(AckEnd::new(&device, &domain, channel, class)?)
                }
            },
            shared_acks: match shares {
                true => Some(SharedAcks::new(&device, &domain)?),
                false => None,
            },
            fronts: Fronts::new(&device, &domain, entries)?,
            landings: Landings::new(config.max_landing_bytes),
            posted: Ledger::new(),
            sources: Ledger::new(),
            landed: HashMap::new(),
            assembled: HashMap::new(),
            events: VecDeque::new(),
            refused: VecDeque::new(),
            renew_again_ns: None,
            clock: ClockSync::new(),
            peer: None,
            introduced: false,
            now_ns: 0,
            polled: vec![Completion::EMPTY; BATCH],
            device,
            domain,
            config,
            connection,
            sends,
            receives,
            paths,
            numbers,
        })
    }

    /// What the peer needs to reach it: the address of its first queue pair. Those of the others are sent over that
    /// one.
    pub fn address(&self) -> EndpointAddress {
        self.paths[0].address()
    }

    /// Allocates memory for messages to be submitted.
    ///
    /// # Errors
    /// As for the device.
    pub fn allocate(&self, bytes: usize) -> Result<D::Region, LinkError> {
        let access = dunlin_verbs::Access::LOCAL_WRITE;
        Ok(self.device.allocate_region(&self.domain, bytes, access)?)
    }

    /// Sets the traffic class of the data, and gives acknowledgements the next priority (§4.1) if there is one: the
    /// upper three bits are the priority. Existing connections keep their own.
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        const PRIORITY: u8 = 1 << 5;
        for path in &mut self.paths {
            path.traffic_class = traffic_class;
        }
        let acks = traffic_class.checked_add(PRIORITY).unwrap_or(traffic_class);
        if let Some(end) = &mut self.acks {
            end.traffic_class = acks;
        }
    }

    /// Connects it to the peer at this address. Over RC the first queue pair waits at least `timeout_ns` for an answer
    /// before it retries, and retries at least `retries` times: there is no backup before the peer has answered, so the
    /// connection ends with it.
    ///
    /// # Errors
    /// When the address is not valid.
    pub fn connect(
        &mut self,
        peer: &EndpointAddress,
        timeout_ns: u64,
        retries: u8,
    ) -> Result<(), LinkError> {
        self.paths[0].connect(peer, timeout_ns, retries)?;
        // Each side's first queue pair names the connection.
        let own = self.paths[0].number();
        self.connection.name(own, peer.queue_pair);
        self.peer = Some(*peer);
        Ok(())
    }

    /// Sends the peer the addresses of the other queue pairs, with the first message: a side that has something to send
    /// knows that the peer is connected.
    fn introduce(&mut self) {
        let Some(peer) = self.peer.filter(|_| !self.introduced) else {
            return;
        };
        self.introduced = true;
        if let Some(acks) = &self.acks {
            let address = self.device.address_for(acks.address(), &peer);
            self.connection.acknowledged_at(address);
        }
        for path in self.config.connection.connected_paths..self.paths.len() {
            let address = self.device.address_for(self.paths[path].address(), &peer);
            self.connection.renewed(path, address);
        }
    }

    /// Submits a message. Its bytes must not change before it is finished; the region is held until then.
    ///
    /// # Errors
    /// When the message is too long or there are too many.
    pub fn submit(
        &mut self,
        now_ns: u64,
        source: Source<D::Region>,
    ) -> Result<MessageId, SubmitError> {
        self.submit_tagged(now_ns, source, 0)
    }

    /// The same with a tag; unless that is zero, the message is written however short it is, and the peer's user
    /// receives the tag with the announcement.
    ///
    /// # Errors
    /// When the message is too long or there are too many.
    pub fn submit_tagged(
        &mut self,
        now_ns: u64,
        source: Source<D::Region>,
        tag: u32,
    ) -> Result<MessageId, SubmitError> {
        self.introduce();
        let id = self.connection.submit(now_ns, source.bytes, tag)?;
        // Both count from zero.
        let place = self.sources.push(source);
        debug_assert_eq!(place, id.0);
        Ok(id)
    }

    /// Gives up those of these messages that are not finished, as [`Connection::abandon`] does.
    pub fn abandon(&mut self, which: impl Fn(MessageId) -> bool) {
        self.connection.abandon(which);
    }

    /// Returns the memory of a received message.
    pub fn release(&mut self, landing: Landing<D::Region>) {
        self.landings.release(self.now_ns, landing);
    }

    /// Memory of the connection for a message that was announced; `None` while there is none. `beyond`: even if the
    /// limit is reached.
    pub fn landing(&mut self, bytes: u32, beyond: bool) -> Option<Landing<D::Region>> {
        self.landings
            .take(&self.device, &self.domain, bytes, beyond)
    }

    /// Accepts a message that was announced.
    pub fn grant(&mut self, message: u32, tag: u32, landing: Landing<D::Region>) {
        self.connection.provide(message, landing.remote());
        self.landed.insert(message, (tag, landing));
    }

    /// Refuses a message that was announced.
    pub fn refuse(&mut self, message: u32) {
        self.connection.refuse(message);
    }

    /// Requests an event on the channel when something arrives at the device. Poll once more afterwards.
    ///
    /// # Errors
    /// When it was created without a channel.
    pub fn request_notify(&mut self) -> Result<(), VerbsError> {
        if let Some(acks) = &mut self.acks {
            acks.request_notify()?;
        }
        self.sends.request_notify(Notify::Next)?;
        self.receives.request_notify(Notify::Next)
    }

    /// Probes the peer, unless something is in flight that does so anyway.
    pub fn probe(&mut self) {
        self.introduce();
        self.connection.probe();
    }

    /// Does what can be done now, and returns the next event. `None`: nothing more for the time being.
    ///
    /// # Errors
    /// When the device fails in a way that a backup cannot help.
    pub fn poll(&mut self, now_ns: u64) -> Result<Option<LinkEvent<D>>, LinkError> {
        if self.peer.is_none() {
            return Ok(None);
        }
        self.now_ns = now_ns;
        if self.events.is_empty() {
            self.landings.rested(now_ns);
            self.poll_acks(now_ns)?;
            self.poll_sends(now_ns)?;
            self.poll_receives(now_ns)?;
            self.renew(now_ns);
            self.act(now_ns)?;
            if self.connect_again(now_ns) {
                self.act(now_ns)?;
            }
        }
        Ok(self.events.pop_front())
    }

    /// Posts what may be sent, without polling for arrivals.
    ///
    /// # Errors
    /// As for [`LogicalConnection::poll`].
    pub fn flush(&mut self, now_ns: u64) -> Result<(), LinkError> {
        match self.peer {
            Some(_) => self.act(now_ns),
            None => Ok(()),
        }
    }

    /// When to poll next if there is no event before.
    pub fn next_deadline(&self, now_ns: u64) -> Option<u64> {
        let unconnected = self.paths.iter().filter_map(PathEnd::unconnected);
        let times = [
            self.connection.next_deadline(now_ns),
            self.renew_again_ns,
            unconnected.map(|(_, again_ns)| again_ns).min(),
            self.landings.rested_ns(),
        ];
        times.into_iter().flatten().min()
    }

    /// The state machine, for inspection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The clock by which round trips are measured.
    pub fn clock_source(&self) -> ClockSource {
        if self.device.attributes().timestamps {
            ClockSource::Hardware
        } else {
            ClockSource::Software
        }
    }

    /// How often the NIC's clock was queried, and how often its offset was corrected.
    pub fn clock_counts(&self) -> ClockCounts {
        self.clock.counts()
    }

    /// Moves a queue pair to Error, as a failure of the device would.
    pub fn fail_path(&mut self, path: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.fence();
        }
    }

    fn connect_backup(&mut self, now_ns: u64, path: usize, peer: &EndpointAddress) {
        // A device may ask the kernel for a neighbour and block meanwhile: then leave the primary time before the next
        // attempt.
        let began = thread::now();
        let is_connected = self.paths[path].connect_backup(peer);
        if is_connected {
            self.connection.connected(path);
            return;
        }
        let took_ns = thread::now().duration_since(began).as_nanos() as u64;
        let pause_ns = RENEW_AGAIN_NS + took_ns.saturating_mul(TAKEN_AGAIN_AFTER);
        self.paths[path].try_again_at(now_ns.saturating_add(pause_ns));
    }

    /// Retries connections that the device could not make, after everything that had to be fenced is. Returns whether
    /// there were any.
    fn connect_again(&mut self, now_ns: u64) -> bool {
        let mut tried = false;
        for path in 0..self.paths.len() {
            if let Some((peer, again_ns)) = self.paths[path].unconnected() {
                if again_ns <= now_ns {
                    self.connect_backup(now_ns, path, &peer);
                    tried = true;
                }
            }
        }
        tried
    }

    /// Renews queue pairs for which the device has completed everything. They are backups: if the device has none for
    /// now, the primary continues meanwhile.
    fn renew(&mut self, now_ns: u64) {
        if self.renew_again_ns.is_some_and(|again| now_ns < again) {
            return;
        }
        self.renew_again_ns = None;
        if self.connection.is_lost() {
            return;
        }
        for path in 0..self.paths.len() {
            if !self.paths[path].can_renew() {
                continue;
            }
            let former = self.paths[path].number();
            // After a failed attempt the number may already be another's.
            if self.numbers.get(&former) == Some(&path) {
                self.numbers.remove(&former);
            }
            let ends = (&self.sends, &self.receives);
            let renewed = self.paths[path].renew(&self.device, &self.domain, &self.config, ends);
            if renewed.is_err() {
                self.renew_again_ns = Some(now_ns.saturating_add(RENEW_AGAIN_NS));
                continue;
            }
            self.numbers.insert(self.paths[path].number(), path);
            let own = self.paths[path].address();
            let address = match &self.peer {
                Some(peer) => self.device.address_for(own, peer),
                None => own,
            };
            self.connection.renewed(path, address);
        }
    }
}
