//! How the ranks of a job find each other: rank 0 is the rendezvous, and tells each rank the addresses of the others.
//!
//! Every rank listens at a port. Rank 0's is known to all: each rank connects to it and sends it its own address; when
//! all have, rank 0 sends the list to everybody, and each rank connects to those of lower numbers. So each pair of
//! ranks connects once, at the start: later calls need neither a port nor a thread, and a rank that is unreachable is
//! reported by the call that joins rather than by some later one. The price is the memory of two rings for each pair.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use dunlin_bootstrap::{dial, look_up, Address, BootstrapError, DialConfig, OpenRequest, Refusal};

use crate::error::{JoinError, MpiError};
use crate::link::{capabilities, from_numbers, open, to_numbers};
use crate::port::{introduction, nowhere, Port, KIND};
use crate::selection::{Source, Tag};
use crate::settings::Settings;
use crate::wire::Context;
use crate::world::World;

/// Maximum number of ranks: each rank has two rings and two queue pairs for each other one.
pub const SIZE_MAX: usize = 256;

/// Interval between two attempts to reach a rank that cannot be reached at present.
const RETRY: Duration = Duration::from_millis(20);
/// Maximum length of an address as text, in bytes.
const ADDRESS_BYTES: usize = 300;
/// The tag of a rank's own address, and of the list of all.
const ADDRESS: u32 = 1;
const LIST: u32 = 2;

/// The port of rank 0, at which the other ranks join.
#[derive(Debug)]
pub struct Rendezvous {
    port: Option<Port>,
    address: Address,
    size: usize,
    settings: Settings,
}

impl Rendezvous {
    /// Binds the port of rank 0 of a job of `size` ranks; with port 0 the system chooses one. Ranks that connect before
    /// [`Rendezvous::join`] are admitted already.
    ///
    /// # Errors
    /// When the port is not available, no device can be used, or the size or a setting is out of range.
    pub fn bind(address: &str, size: usize, settings: &Settings) -> Result<Self, JoinError> {
        check_size(0, size)?;
        let address: Address = address.parse()?;
        let port = match size {
            1 => None,
            _ => Some(Port::bind(&address, 0, size, settings)?),
        };
        Ok(Self {
            address: port.as_ref().map_or(address, Port::address),
            port,
            size,
            settings: settings.clone(),
        })
    }

    /// The address at which the other ranks join, with the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for all ranks, for at most [`Settings::join_timeout`], and becomes rank 0.
    ///
    /// # Errors
    /// When not all ranks join in time, or one is lost.
    pub fn join(self) -> Result<World, JoinError> {
        let deadline = Instant::now() + self.settings.join_timeout;
        let mut world = World::new(0, self.size, &self.settings);
        let Some(port) = self.port else {
            return Ok(world);
        };
        port.wait_for_all(&mut world, deadline, &self.settings)?;
        let mut list = vec![self.address.to_string()];
        for rank in 1..self.size {
            let address = receive_text(&mut world, rank, ADDRESS, deadline, &self.settings)?;
            // What is passed on was parsed.
            list.push(address.parse::<Address>()?.to_string());
        }
        let list = list.join("\n");
        for rank in 1..self.size {
            send_text(&mut world, rank, (LIST, &list), deadline, &self.settings)?;
        }
        Ok(world)
    }
}

impl World {
    /// Joins a job of `size` ranks as rank `rank`. `root` is the address of rank 0, `dunlin://host:port`, at which rank
    /// 0 listens and the others connect, for at most [`Settings::join_timeout`], in any order of starting.
    ///
    /// # Errors
    /// When not all ranks join in time or one is lost, the secrets or settings differ, a port is not available, or no
    /// device can be used.
    pub fn join(
        rank: usize,
        size: usize,
        root: &str,
        settings: &Settings,
    ) -> Result<Self, JoinError> {
        check_size(rank, size)?;
        if rank == 0 {
            return Rendezvous::bind(root, size, settings)?.join();
        }
        let deadline = Instant::now() + settings.join_timeout;
        let root: Address = root.parse()?;
        let listen = match settings.listen {
            Some(address) => address,
            None => local_address(&root, settings)?,
        };
        let listen: Address = SocketAddr::new(listen, 0).into();
        let port = Port::bind(&listen, rank, size, settings)?;
        let own = port.address().to_string();
        let mut world = Self::new(rank, size, settings);
        connect(&mut world, 0, &root, settings, deadline)?;
        send_text(&mut world, 0, (ADDRESS, &own), deadline, settings)?;
        let list = receive_text(&mut world, 0, LIST, deadline, settings)?;
        let list: Vec<&str> = list.lines().collect();
        if list.len() != size {
            let why = "its list of addresses has another length";
            return Err(JoinError::Answer { rank: 0, why });
        }
        for (lower, address) in list.iter().enumerate().take(rank).skip(1) {
            connect(&mut world, lower, &address.parse()?, settings, deadline)?;
        }
        port.wait_for_all(&mut world, deadline, settings)?;
        Ok(world)
    }
}

fn check_size(rank: usize, size: usize) -> Result<(), JoinError> {
    let range = |what, value: usize, range| {
        Err(JoinError::Range {
            what,
            value: value as u64,
            range,
        })
    };
    match size {
        1..=SIZE_MAX if rank < size => Ok(()),
        1..=SIZE_MAX => range("the rank", rank, "from 0 to less than the number of ranks"),
        _ => range("the number of ranks", size, "from 1 to 256"),
    }
}

/// The address of this host from which it reaches rank 0.
fn local_address(root: &Address, settings: &Settings) -> Result<IpAddr, JoinError> {
    let io = |call| move |source| JoinError::Io { call, source };
    let remotes = look_up(root, settings.join_timeout)?;
    let any: SocketAddr = match remotes.first() {
        Some(SocketAddr::V6(_)) => ([0_u16; 8], 0).into(),
        _ => ([0, 0, 0, 0], 0).into(),
    };
    // Connecting a datagram socket sends nothing: it only asks the routing table.
    let socket = UdpSocket::bind(any).map_err(io("making a socket"))?;
    socket
        .connect(&*remotes)
        .map_err(io("finding the way to rank 0"))?;
    let local = socket
        .local_addr()
        .map_err(io("finding this host's address"))?;
    Ok(local.ip())
}

/// Connects to a rank that listens, or will within the time limit.
fn connect(
    world: &mut World,
    rank: usize,
    address: &Address,
    settings: &Settings,
    deadline: Instant,
) -> Result<(), JoinError> {
    let mut config = DialConfig {
        secret: settings.secret.clone(),
        capabilities: capabilities(settings.device.as_deref(), Some(address))?,
        device: settings.device.clone(),
        ..DialConfig::default()
    };
    let mut last = None;
    loop {
        config.timeout = deadline.saturating_duration_since(Instant::now());
        if config.timeout.is_zero() {
            let limit = settings.join_timeout;
            let missing = missing(world);
            return Err(JoinError::Timeout {
                limit,
                missing,
                last,
            });
        }
        match attempt(world, rank, address, settings, &config) {
            Err(JoinError::Bootstrap(error)) if may_pass(&error) => last = Some(Box::new(error)),
            outcome => return outcome,
        }
        std::thread::sleep(RETRY.min(config.timeout));
    }
}

/// Connects to a rank that listens.
fn attempt(
    world: &mut World,
    rank: usize,
    address: &Address,
    settings: &Settings,
    config: &DialConfig,
) -> Result<(), JoinError> {
    let dialed = dial(address, config)?;
    let device = dialed.device().to_owned();
    let (rings, offers) = open(&device, Some(address), &settings.rings()?)?;
    let mut parameters = to_numbers(&offers);
    parameters.extend(introduction(world.rank, world.size(), settings));
    let reply = dialed.open(OpenRequest {
        device: String::new(),
        preset: KIND.to_owned(),
        endpoint: nowhere(),
        parameters,
    })?;
    let theirs = from_numbers(&reply.parameters);
    let theirs = theirs.map_err(|why| JoinError::Answer { rank, why })?;
    let peer = &mut world.peers[rank];
    peer.link = Some(rings.connect(&theirs)?);
    peer.device = Some(device);
    Ok(())
}

/// Whether a rank may be reached a moment later: it has not begun to listen, is starting again or has no time or memory
/// at present. What the two sides disagree about (job, version, secret, devices) does not change by waiting.
fn may_pass(error: &BootstrapError) -> bool {
    use std::io::ErrorKind;
    match error {
        BootstrapError::ConnectionRefused { .. }
        | BootstrapError::Closed { .. }
        | BootstrapError::Busy { .. }
        | BootstrapError::Timeout { .. } => true,
        BootstrapError::Refused { refusal, .. } => matches!(
            refusal,
            Refusal::Unconfirmed
                | Refusal::ShuttingDown
                | Refusal::TooSlow
                | Refusal::Exhausted { .. }
        ),
        BootstrapError::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
        ),
        _ => false,
    }
}

fn send_text(
    world: &mut World,
    rank: usize,
    (tag, text): (u32, &str),
    deadline: Instant,
    settings: &Settings,
) -> Result<(), JoinError> {
    let send = Some((rank, tag, text.as_bytes()));
    let sent = world.exchange(Context::Join, send, None, Some(deadline));
    sent.map(drop)
        .map_err(|error| failed(world, settings, error))
}

fn receive_text(
    world: &mut World,
    rank: usize,
    tag: u32,
    deadline: Instant,
    settings: &Settings,
) -> Result<String, JoinError> {
    let mut text = vec![0; ADDRESS_BYTES * world.size()];
    let receive = (Source::Rank(rank), Tag::Is(tag), &mut text[..]);
    let status = world.exchange_one(Context::Join, None, receive, Some(deadline));
    let status = status.map_err(|error| failed(world, settings, error))?;
    text.truncate(status.bytes);
    let why = "an address that is not text";
    String::from_utf8(text).map_err(|_| JoinError::Answer { rank, why })
}

fn failed(world: &World, settings: &Settings, error: MpiError) -> JoinError {
    match error {
        MpiError::Timeout => late(world, settings),
        error => error.into(),
    }
}

fn late(world: &World, settings: &Settings) -> JoinError {
    JoinError::Timeout {
        limit: settings.join_timeout,
        missing: missing(world),
        last: None,
    }
}

/// The ranks to which this one has no connection yet.
fn missing(world: &World) -> Vec<usize> {
    let is_missing = |rank: &usize| *rank != world.rank && world.peers[*rank].link.is_none();
    (0..world.size()).filter(is_missing).collect()
}
