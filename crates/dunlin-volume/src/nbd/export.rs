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

/// Clients at a time; who comes beyond them is hung up on.
const MOST_CLIENTS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that a client's requests and answers may take before it is not listened to any more.
const MOST_BYTES: usize = 16 << 20;
/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 256 << 10;
/// Room that is kept for the next requests; what a long one needed beyond it is given back.
const MOST_KEPT_BYTES: usize = 1 << 20;
/// Turns between two looks for new clients, while there is work.
const TURNS_PER_ACCEPT: u32 = 64;
/// Longest sleep: the loop looks whether it is over.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// An export could not begin, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The address cannot be listened on.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: NbdAddress,
        /// What the system said.
        source: io::Error,
    },
    /// The system cannot wait.
    #[error("the system: {0}")]
    System(#[from] io::Error),
    /// The volume is of no more use.
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
            // Whoever has removed it before has done the same.
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
    /// What of the input has come, and is not over.
    from: usize,
    to: usize,
    /// Sent of what the session has to send.
    sent: usize,
    /// Requests that are out, and the bytes that they stand for.
    out: usize,
    bytes_out: usize,
    /// It sends nothing more; what is out is answered still.
    over: bool,
}

/// A request that is out.
#[derive(Debug)]
struct Pending {
    client: usize,
    cookie: u64,
    bytes: usize,
}

/// A volume, exported.
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
            // An ordinary file refuses, too, and is somebody's.
            let is_socket = fs::symlink_metadata(path).is_ok_and(|of| of.file_type().is_socket());
            if is_socket && UnixStream::connect(path).is_err_and(refused) {
                // It was left behind: nobody listens.
                fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Unix(listener, path.clone()))
        }
    }
}

impl Export {
    /// Exports a volume there.
    ///
    /// # Errors
    /// When the address cannot be listened on.
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

    /// Where it listens: with the port that the system has chosen.
    ///
    /// # Errors
    /// When the system does not say.
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

    /// Serves until `is_over`, which is asked every 20 ms at least.
    ///
    /// # Errors
    /// When the volume can be used no more: somebody else has opened it, or too few copies answer.
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
            // New clients may be what has woken it.
            turns = 0;
        }
        Ok(())
    }

    /// One look at everything; whether something was done.
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
            // Nobody, or somebody who has gone again.
            return false;
        };
        if self.clients.len() >= MOST_CLIENTS {
            tracing::warn!(
                MOST_CLIENTS,
                "an NBD client was refused: there are as many as may be"
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

    /// Takes what a client has sent.
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

    /// Sends a client what there is for it; one that is over goes when it has all.
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
                    // It has gone: nobody hears the rest.
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

    /// Until a lane or a socket has something.
    fn sleep(&mut self) -> io::Result<()> {
        let mut descriptors = vec![(
            match &self.listener {
                Listener::Unix(listener, _) => listener.as_fd(),
                Listener::Tcp(listener) => listener.as_fd(),
            },
            PollFlags::IN,
        )];
        // While there is no room in the volume, what comes from sockets has to wait.
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

/// Begins a request of a client; the bytes that it stands for, or none where as many are out as may be.
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
    /// Whether it has so much out that it is not listened to.
    fn is_full(&self) -> bool {
        let waiting = self.session.out.len() - self.sent;
        self.bytes_out + waiting > MOST_BYTES
    }

    /// Reads what there is, with room for a request of so many bytes. Nothing where there is nothing now; an error at
    /// the end.
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
            // It grows as far as bytes come, and not as far as a client says that some will.
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

/// Room for short requests: below it what has come is moved to the front.
const REQUEST_ROOM: usize = 8 << 10;
