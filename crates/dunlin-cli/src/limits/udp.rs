//! UDP over loopback: plain, and with segmentation and receive offload.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};

use super::duel::{duel, rate_per_s, round_trips, Wait};
use crate::histogram::Percentiles;

const MESSAGE: usize = 64;
const BUFFER: usize = 64 << 10;
/// Number of empty polls after which a datagram counts as lost.
const LOST_AFTER: u32 = 200_000;

struct Endpoint {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    buffer: Vec<u8>,
}

/// What one receive brought: bytes, and how long each segment of them is.
struct Received {
    length: usize,
    stride: usize,
}

fn endpoints() -> io::Result<(Endpoint, Endpoint)> {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (to_server, to_client) = (server.local_addr()?, client.local_addr()?);
    Ok((
        Endpoint::new(client, to_server)?,
        Endpoint::new(server, to_client)?,
    ))
}

impl Endpoint {
    fn new(socket: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        socket.set_nonblocking(true)?;
        socket.connect(peer)?;
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), 4 << 20);
        Ok(Self {
            socket,
            state,
            peer,
            buffer: vec![0; BUFFER],
        })
    }

    /// Plain: one datagram, one system call.
    fn receive_plain(&mut self, wait: &mut Wait<'_>) -> Option<usize> {
        for _ in 0..LOST_AFTER {
            match self.socket.recv(&mut self.buffer) {
                Ok(length) => return Some(length),
                Err(_) if !wait.again() => return None,
                Err(_) => {}
            }
        }
        None
    }

    /// Sends `length` bytes of the buffer in segments of `stride`, by one system call where the kernel can.
    fn send_segments(&mut self, length: usize, stride: usize, wait: &mut Wait<'_>) {
        let most = self.state.max_gso_segments() * stride;
        for contents in self.buffer[..length].chunks(most) {
            let transmit = Transmit {
                destination: self.peer,
                ecn: None,
                contents,
                segment_size: (contents.len() > stride).then_some(stride),
                src_ip: None,
            };
            while let Err(error) = self
                .state
                .try_send(UdpSockRef::from(&self.socket), &transmit)
            {
                if error.kind() != ErrorKind::WouldBlock || !wait.again() {
                    break;
                }
            }
        }
    }

    fn receive_segments(&mut self, wait: &mut Wait<'_>) -> Option<Received> {
        let mut meta = [RecvMeta::default()];
        for _ in 0..LOST_AFTER {
            let mut buffers = [IoSliceMut::new(&mut self.buffer)];
            match self
                .state
                .recv(UdpSockRef::from(&self.socket), &mut buffers, &mut meta)
            {
                Ok(_) => {
                    let [RecvMeta {
                        len: length,
                        stride,
                        ..
                    }] = meta;
                    return Some(Received {
                        length,
                        stride: stride.max(1),
                    });
                }
                Err(_) if !wait.again() => return None,
                Err(_) => {}
            }
        }
        None
    }
}

fn echo_plain(server: &mut Endpoint, wait: &mut Wait<'_>) {
    loop {
        match server.receive_plain(wait) {
            Some(length) => {
                let _ = server.socket.send(&server.buffer[..length]);
            }
            None if !wait.goes_on() => return,
            None => {}
        }
    }
}

/// The round trip of 64 B, both sides spinning.
pub fn round_trip(duration: Duration) -> io::Result<Percentiles> {
    let (mut client, mut server) = endpoints()?;
    Ok(duel(
        |wait| {
            round_trips(duration, || {
                let _ = client.socket.send(&[0; MESSAGE]);
                client.receive_plain(wait);
            })
        },
        |wait| echo_plain(&mut server, wait),
    ))
}

/// Requests of 64 B a second, one datagram and one system call each.
pub fn plain(outstanding: usize, duration: Duration) -> io::Result<f64> {
    let (mut client, mut server) = endpoints()?;
    Ok(duel(
        |wait| {
            let mut under_way = 0;
            rate_per_s(duration, || {
                while under_way < outstanding {
                    let _ = client.socket.send(&[0; MESSAGE]);
                    under_way += 1;
                }
                match client.receive_plain(wait) {
                    Some(_) => {
                        under_way -= 1;
                        1
                    }
                    None => {
                        under_way = 0;
                        0
                    }
                }
            })
        },
        |wait| echo_plain(&mut server, wait),
    ))
}

/// Requests of 64 B a second, segmented and coalesced by the kernel.
pub fn offloaded(outstanding: usize, duration: Duration) -> io::Result<f64> {
    let (mut client, mut server) = endpoints()?;
    Ok(duel(
        |wait| {
            let mut under_way = 0;
            rate_per_s(duration, || {
                let room = outstanding - under_way;
                if room >= outstanding.div_ceil(2) {
                    client.send_segments(room * MESSAGE, MESSAGE, wait);
                    under_way = outstanding;
                }
                let answered = client
                    .receive_segments(wait)
                    .map(|got| got.length.div_ceil(got.stride));
                // Nothing for long: the rest was lost, start afresh.
                under_way = under_way.saturating_sub(answered.unwrap_or(under_way));
                answered.unwrap_or(0) as u64
            })
        },
        |wait| loop {
            match server.receive_segments(wait) {
                Some(got) => server.send_segments(got.length, got.stride, wait),
                None if !wait.goes_on() => return,
                None => {}
            }
        },
    ))
}

/// Bytes a second received in one direction, in segments of `stride` with both offloads.
pub fn one_way_bytes_per_s(stride: usize, duration: Duration) -> io::Result<f64> {
    let (mut client, mut server) = endpoints()?;
    let received = AtomicU64::new(0);
    let started = Instant::now();
    duel(
        |wait| {
            rate_per_s(duration, || {
                client.send_segments(BUFFER / 2 / stride * stride, stride, wait);
                u64::from(received.load(Relaxed) > 0)
            })
        },
        |wait| loop {
            match server.receive_segments(wait) {
                Some(got) => {
                    received.fetch_add(got.length as u64, Relaxed);
                }
                None if !wait.goes_on() => return,
                None => {}
            }
        },
    );
    let seconds = started.elapsed().as_secs_f64();
    Ok(received.into_inner() as f64 / seconds.max(1e-9))
}
