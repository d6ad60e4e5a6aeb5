//! The UDP socket: sends trains of packets and receives datagrams, with the kernel's segmentation (GSO) and coalescing
//! (GRO).

// System calls that are in the C library but not in our dependencies.
#[allow(unsafe_code)]
mod parts;
#[allow(unsafe_code)]
mod receive;
#[allow(unsafe_code)]
mod route;
mod statistics;
mod train;

pub(crate) use receive::ReceiveBuffer;
pub(crate) use route::{link_of_interface, Link, Route};
pub(crate) use statistics::Statistics;
pub use statistics::{Count, COUNTS};
pub(crate) use train::{envelope, Path, Train, LONG_PAYLOAD_BYTES};

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use dunlin_verbs::VerbsError;
use parts::Parts;
use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::config::RoceConfig;
use crate::sync::{lock, system};

/// Maximum number of bytes queued for a socket that is full; what exceeds it is lost, as in a switch.
const MAX_BACKLOG_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    port: u16,
    is_v6: bool,
    receive_buffer_bytes: usize,
    /// Set for each train, since that overrides the socket's setting.
    ecn: Option<EcnCodepoint>,
    backlog: Mutex<Backlog>,
    has_backlog: AtomicBool,
    trains: AtomicU64,
    pub(crate) statistics: Statistics,
}

/// Everything that the socket has not accepted.
#[derive(Debug, Default)]
struct Backlog {
    unsent: VecDeque<Unsent>,
    bytes: usize,
}

/// A train that the socket has not accepted.
#[derive(Debug)]
struct Unsent {
    destination: SocketAddr,
    segment_bytes: Option<usize>,
    bytes: Vec<u8>,
}

impl Socket {
    /// Binds the socket.
    ///
    /// # Errors
    /// When a system call fails: the port is in use, or the address does not belong to this host.
    pub(crate) fn bind(config: &RoceConfig) -> Result<Self, VerbsError> {
        let socket = match config.local_address {
            Some(address) => open(SocketAddr::new(address, config.port), config),
            // Both families on one socket; IPv4 only where the host has no IPv6.
            None => open(
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), config.port),
                config,
            )
            .or_else(|_| {
                open(
                    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), config.port),
                    config,
                )
            }),
        };
        let socket = socket.map_err(system("binding the UDP socket"))?;
        let state = UdpSocketState::new((&socket).into())
            .map_err(system("setting options of the UDP socket"))?;
        route::never_fragment(socket.as_fd());
        route::receive_plainly(socket.as_fd(), config.congestion_marks);
        let address = socket
            .local_addr()
            .map_err(system("getsockname of the UDP socket"))?;
        // The kernel also counts its own bookkeeping, and reports twice what was requested.
        let receive_buffer_bytes = state
            .recv_buffer_size((&socket).into())
            .map_err(system("getsockopt of the UDP socket"))?
            / 2;
        Ok(Self {
            state,
            port: address.port(),
            is_v6: address.is_ipv6(),
            socket,
            receive_buffer_bytes,
            ecn: config.congestion_marks.then_some(EcnCodepoint::Ect0),
            backlog: Mutex::default(),
            has_backlog: AtomicBool::new(false),
            trains: AtomicU64::new(0),
            statistics: Statistics::default(),
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Maximum number of packets in a train; 1 where the system cannot segment.
    fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// The address in the form of this socket's family.
    fn destination(&self, address: IpAddr, port: u16) -> SocketAddr {
        let address = match address {
            IpAddr::V4(v4) if self.is_v6 => v4.to_ipv6_mapped().into(),
            other => other,
        };
        SocketAddr::new(address, port)
    }

    /// For a packet that is sent alone, the plain system call is enough.
    #[inline]
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if transmit.segment_size.is_some() {
            self.trains.fetch_add(1, Ordering::Relaxed);
            return self.state.try_send((&self.socket).into(), transmit);
        }
        let sent = self.socket.send_to(transmit.contents, transmit.destination);
        sent.map(|_| ())
    }

    /// Sends a train, or queues it if the socket is full. Any other failure is a loss, from which the protocol
    /// recovers; it is counted.
    fn send(&self, bytes: &[u8], destination: SocketAddr, segment_bytes: Option<usize>) {
        if !self.has_backlog() {
            let sent = self.try_send(&self.transmit(bytes, destination, segment_bytes));
            match sent {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return self.statistics.failed_to_send(&error),
            }
        }
        self.keep(bytes.to_vec(), destination, segment_bytes);
    }

    /// Sends a train of which some payload is in a region. If its registration has ended, the train is not sent, as if
    /// it had been lost.
    fn send_parts(
        &self,
        destination: SocketAddr,
        buffer: &[u8],
        parts: &Parts,
        segment_bytes: Option<usize>,
    ) {
        if !self.has_backlog() {
            self.trains.fetch_add(1, Ordering::Relaxed);
            match parts.send(self.as_fd(), buffer, destination, segment_bytes) {
                None | Some(Ok(())) => return,
                // The socket is full, or cannot segment on this path: the library handles that.
                Some(Err(_)) => {}
            }
        }
        if let Some(bytes) = parts.to_vec(buffer) {
            self.send(&bytes, destination, segment_bytes);
        }
    }

    fn transmit<'a>(
        &self,
        contents: &'a [u8],
        destination: SocketAddr,
        segment_size: Option<usize>,
    ) -> Transmit<'a> {
        Transmit {
            destination,
            ecn: self.ecn,
            contents,
            segment_size,
            // The kernel selects the source address for which the path was determined: by its routing table, or the one
            // that the socket is bound to.
            src_ip: None,
        }
    }

    /// Queues what the socket does not accept now.
    #[cold]
    fn keep(&self, bytes: Vec<u8>, destination: SocketAddr, segment_bytes: Option<usize>) {
        let mut backlog = lock(&self.backlog);
        if backlog.bytes + bytes.len() > MAX_BACKLOG_BYTES {
            return self.statistics.count(Count::SendBufferFull);
        }
        backlog.bytes += bytes.len();
        backlog.unsent.push_back(Unsent {
            destination,
            segment_bytes,
            bytes,
        });
        self.has_backlog.store(true, Ordering::Relaxed);
    }

    /// Whether something is waiting for space in the socket.
    pub(crate) fn has_backlog(&self) -> bool {
        self.has_backlog.load(Ordering::Relaxed)
    }

    /// Sends what the socket did not accept before.
    pub(crate) fn send_backlog(&self) {
        if !self.has_backlog() {
            return;
        }
        let mut backlog = lock(&self.backlog);
        while let Some(unsent) = backlog.unsent.front() {
            let transmit = self.transmit(&unsent.bytes, unsent.destination, unsent.segment_bytes);
            match self.try_send(&transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.statistics.failed_to_send(&error),
                Ok(()) => {}
            }
            let sent = backlog.unsent.pop_front();
            backlog.bytes -= sent.map_or(0, |sent| sent.bytes.len());
        }
        self.has_backlog.store(false, Ordering::Relaxed);
    }

    /// Receives a train; `false` if there is none.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut ReceiveBuffer) -> bool {
        let filled = buffer.fill(self.socket.as_fd());
        if filled && buffer.promises_more() {
            self.trains.fetch_add(1, Ordering::Relaxed);
        }
        filled
    }

    /// Number of trains of several packets sent or received, modulo 2^64.
    pub(crate) fn trains(&self) -> u64 {
        self.trains.load(Ordering::Relaxed)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(address: SocketAddr, config: &RoceConfig) -> io::Result<UdpSocket> {
    let socket = socket2::Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    route::grow_buffers(
        socket.as_fd(),
        config.receive_buffer_bytes,
        config.send_buffer_bytes,
    );
    if address.is_ipv6() {
        route::take_packets_without_checksum(socket.as_fd());
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket.into())
}
