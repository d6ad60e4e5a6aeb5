//! The sockets of an export, and the loop that serves them: one thread polls sockets and lanes.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use slab::Slab;

use super::address::NbdAddress;
use super::session::{Asked, Exported, Next, Session, Want};
use super::wire::errno;
use crate::client::{Done, Operation, Volume, VolumeError};

/// Maximum number of clients; the connections of further ones are closed.
const MOST_CLIENTS: usize = 64;
/// Time that a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that a client's outstanding requests and unsent answers may take before its socket is no longer read.
const MOST_BYTES: usize = 16 << 20;
/// Maximum number of bytes read from a socket at once.
const READ_BYTES: usize = 256 << 10;
/// Buffer space that is kept for later requests; what a long one needed beyond it is freed.
const MOST_KEPT_BYTES: usize = 1 << 20;
/// Rounds between two checks for new clients, while there is work.
const TURNS_PER_ACCEPT: u32 = 64;
/// Longest sleep: the loop checks whether it should end.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// An export could not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Listening on the address failed.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: NbdAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The system cannot wait.
    #[error("system error: {0}")]
    System(#[from] io::Error),
    /// The volume can no longer be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // If another process has removed it already, that is fine.
            let _ = fs::remove_file(path);
        }
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// One client.
#[derive(Debug)]
struct Client {
    socket: Socket,
    session: Session,
    began: Instant,
    input: Vec<u8>,
    /// The part of the input that has been received and not consumed.
    from: usize,
    to: usize,
    /// Bytes sent of the session's output.
    sent: usize,
    /// Number of outstanding requests, and the bytes for which they stand.
    out: usize,
    bytes_out: usize,
    /// It sends no more; outstanding requests are still answered.
    over: bool,
}

/// An outstanding request.
#[derive(Debug)]
struct Pending {
    client: usize,
    cookie: u64,
    bytes: usize,
}

/// An exported volume.
#[derive(Debug)]
pub struct Export {
    volume: Volume,
    listener: Listener,
    exported: Exported,
    clients: Slab<Client>,
    pending: Slab<Pending>,
    ended: Option<VolumeError>,
}

fn listen(address: &NbdAddress) -> io::Result<Listener> {
    match address {
        NbdAddress::Tcp(place) => {
            let listener = TcpListener::bind(place.as_str())?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Tcp(listener))
        }
        NbdAddress::Unix(path) => {
            let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
            // An ordinary file also refuses connections, but must not be removed.
            let is_socket = fs::symlink_metadata(path).is_ok_and(|of| of.file_type().is_socket());
            if is_socket && UnixStream::connect(path).is_err_and(refused) {
                // A leftover socket: nobody listens.
                fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Unix(listener, path.clone()))
        }
    }
}

impl Export {
    /// Exports a volume at this address.
    ///
    /// # Errors
    /// When listening on the address fails.
    pub fn new(volume: Volume, address: &NbdAddress) -> Result<Self, ExportError> {
        let listener = listen(address).map_err(|source| ExportError::Listen {
            address: address.clone(),
            source,
        })?;
        let (name, bytes) = (volume.shape().name.clone(), volume.bytes());
        Ok(Self {
            volume,
            listener,
            exported: Exported { name, bytes },
            clients: Slab::new(),
            pending: Slab::new(),
            ended: None,
        })
    }

    /// The address on which it listens, with the port that the system has chosen.
    ///
    /// # Errors
    /// When the system does not return it.
    pub fn address(&self) -> io::Result<NbdAddress> {
        match &self.listener {
            Listener::Unix(_, path) => Ok(NbdAddress::Unix(path.clone())),
            Listener::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr()?;
                Ok(NbdAddress::Tcp(address.to_string()))
            }
        }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Serves until `is_over` returns true; it is called at least every 20 ms.
    ///
    /// # Errors
    /// When the volume can no longer be used: another client has opened it, or too few copies answer.
    pub fn run(&mut self, is_over: impl Fn() -> bool) -> Result<(), ExportError> {
        let mut turns = 0_u32;
        while !is_over() {
            let is_due = turns % TURNS_PER_ACCEPT == 0;
            turns = turns.wrapping_add(1);
            if self.turn(is_due) {
                continue;
            }
            if let Some(error) = self.ended.take() {
                return Err(error.into());
            }
            self.sleep()?;
            // It may have been woken by new clients.
            turns = 0;
        }
        Ok(())
    }

    /// Polls everything once; returns whether something was done.
    fn turn(&mut self, accepts: bool) -> bool {
        let mut progress = accepts && self.accept();
        let mut number = 0;
        while number < self.clients.capacity() {
            if self.clients.contains(number) {
                progress |= self.listen_to(number);
            }
            number += 1;
        }
        while let Some(done) = self.volume.poll() {
            self.finish(done);
            progress = true;
        }
        let numbers: Vec<usize> = self.clients.iter().map(|(number, _)| number).collect();
        for number in numbers {
            progress |= self.tell(number);
        }
        progress
    }

    fn accept(&mut self) -> bool {
        let accepted = match &self.listener {
            Listener::Unix(listener, _) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Socket::Unix(stream))
            }),
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }),
        };
        let Ok(socket) = accepted else {
            // No client, or one that has already disconnected.
            return false;
        };
        if self.clients.len() >= MOST_CLIENTS {
            tracing::warn!(
                MOST_CLIENTS,
                "refused an NBD client: the limit of clients is reached"
            );
            return true;
        }
        self.clients.insert(Client {
            socket,
            session: Session::new(self.exported.clone()),
            began: Instant::now(),
            input: Vec::new(),
            from: 0,
            to: 0,
            sent: 0,
            out: 0,
            bytes_out: 0,
            over: false,
        });
        true
    }

    /// Receives what a client has sent.
    fn listen_to(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        if !client.session.is_in_transmission() && client.began.elapsed() > HANDSHAKE {
            client.over = true;
        }
        let mut progress = false;
        loop {
            if client.over || client.is_full() {
                return progress;
            }
            let next = client.session.next(&client.input[client.from..client.to]);
            match next {
                Next::Took(bytes) => client.from += bytes,
                Next::End => client.over = true,
                Next::More(bytes) => match client.read(bytes) {
                    Ok(0) => return progress,
                    Ok(_) => {}
                    Err(_) => client.over = true,
                },
                Next::Asked(asked, bytes) => {
                    let pending = &mut self.pending;
                    match begin(&mut self.volume, pending, number, &asked) {
                        Ok(Some(stands_for)) => {
                            client.from += bytes;
                            client.out += 1;
                            client.bytes_out += stands_for;
                        }
                        Ok(None) => return progress,
                        Err(error) => {
                            client.from += bytes;
                            client.session.answer(asked.cookie, error_of(&error), &[]);
                        }
                    }
                }
            }
            progress = true;
        }
    }

    fn finish(&mut self, done: Done) {
        let Some(pending) = self.pending.try_remove(done.tag as usize) else {
            return;
        };
        if let Err(error @ (VolumeError::Replaced | VolumeError::TooFew { .. })) = &done.result {
            self.ended.get_or_insert(error.clone());
        }
        let client = &mut self.clients[pending.client];
        client.out -= 1;
        client.bytes_out -= pending.bytes;
        match done.result {
            Ok(bytes) => client.session.answer(pending.cookie, 0, &bytes),
            Err(error) => {
                tracing::warn!(%error, "an NBD request failed");
                client.session.answer(pending.cookie, error_of(&error), &[]);
            }
        }
    }

    /// Sends a client its pending output; one that is over is removed once it has all of it.
    fn tell(&mut self, number: usize) -> bool {
        let client = &mut self.clients[number];
        let mut progress = false;
        while client.sent < client.session.out.len() {
            match client.socket.write(&client.session.out[client.sent..]) {
                Ok(bytes) if bytes > 0 => {
                    client.sent += bytes;
                    progress = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    // It has disconnected: the rest cannot be delivered.
                    client.over = true;
                    client.session.out.clear();
                    client.sent = 0;
                }
            }
        }
        if client.sent == client.session.out.len() {
            client.session.out.clear();
            client.sent = 0;
            if client.over && client.out == 0 {
                self.clients.remove(number);
                return true;
            }
        }
        progress
    }

    /// Sleeps until a lane or a socket is ready.
    fn sleep(&mut self) -> io::Result<()> {
        let mut descriptors = vec![(
            match &self.listener {
                Listener::Unix(listener, _) => listener.as_fd(),
                Listener::Tcp(listener) => listener.as_fd(),
            },
            PollFlags::IN,
        )];
        // While the volume has no space, input from sockets has to wait.
        let has_room = self.volume.has_room();
        for (_, client) in &self.clients {
            let mut flags = PollFlags::empty();
            if has_room && !client.over && !client.is_full() {
                flags |= PollFlags::IN;
            }
            if client.sent < client.session.out.len() {
                flags |= PollFlags::OUT;
            }
            if !flags.is_empty() {
                descriptors.push((client.socket.as_fd(), flags));
            }
        }
        self.volume.wait(&descriptors, LONGEST_SLEEP)
    }
}

/// Begins a client's request; returns the bytes for which it stands, or `None` if the maximum number of requests is
/// outstanding.
fn begin(
    volume: &mut Volume,
    pending: &mut Slab<Pending>,
    client: usize,
    asked: &Asked<'_>,
) -> Result<Option<usize>, VolumeError> {
    let (operation, bytes) = match asked.want {
        Want::Read(bytes) => (Operation::Read(bytes), bytes as usize),
        Want::Write(bytes) => (Operation::Write(bytes), bytes.len()),
        Want::Zeros(bytes) => (Operation::Trim(bytes), 0),
    };
    let place = pending.vacant_entry();
    let is_begun = volume.begin(operation, asked.offset, place.key() as u64)?;
    if !is_begun {
        return Ok(None);
    }
    place.insert(Pending {
        client,
        cookie: asked.cookie,
        bytes,
    });
    Ok(Some(bytes))
}

fn error_of(error: &VolumeError) -> u32 {
    match error {
        VolumeError::Unaligned(_) | VolumeError::Range { .. } | VolumeError::TooLong { .. } => {
            errno::EINVAL
        }
        VolumeError::Replaced => errno::ESHUTDOWN,
        _ => errno::EIO,
    }
}

impl Client {
    /// Whether so much is outstanding that its socket is not read.
    fn is_full(&self) -> bool {
        let waiting = self.session.out.len() - self.sent;
        self.bytes_out + waiting > MOST_BYTES
    }

    /// Reads available input, with space for a request of this many bytes. Returns `None` if nothing is available; an
    /// error at the end of the stream.
    fn read(&mut self, request: usize) -> io::Result<usize> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.input.len() > MOST_KEPT_BYTES {
                self.input = Vec::new();
            }
        }
        if self.input.len() - self.from < request.max(REQUEST_ROOM) {
            if self.from > 0 {
                self.input.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            // The buffer grows as bytes arrive, not by what a client announces.
            let wanted = request.min(self.to + READ_BYTES).max(READ_BYTES);
            if self.input.len() < wanted {
                self.input.resize(wanted, 0);
            }
        }
        loop {
            match self.socket.read(&mut self.input[self.to..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.to += bytes;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Minimum space for short requests: if there is less, the input is moved to the front.
const REQUEST_ROOM: usize = 8 << 10;
