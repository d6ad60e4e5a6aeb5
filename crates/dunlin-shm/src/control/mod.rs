//! The control thread, the "firmware" of the device: sessions with other devices, and requests that no polling thread
//! continues.
//!
//! It sleeps in `poll` until a command, a peer, or the timer of a request that was left over wakes it.

mod client;
mod folder;
#[cfg(all(any(feature = "fuzzing", test), not(loom)))]
pub(crate) mod fuzzed;
pub(crate) mod message;
mod refusals;
mod server;
pub(crate) mod socket;
mod wakes;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_verbs::{EndpointAddress, VerbsError};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::channel::{consume, create_event, raise};
use crate::closer::Foreign;
use crate::core::{lock, Core};
use crate::heap::Trim;
use crate::mapping::system;
use crate::queue_pair::{Shared, Target};

use client::Client;
use server::Server;

/// Minimum and maximum interval between attempts to continue requests that were left over.
const TICK_MIN: Duration = Duration::from_micros(50);
const TICK_MAX: Duration = Duration::from_millis(2);
/// Pause before sessions are accepted again after descriptors ran out: until then they would wake the thread in vain.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// A command to the control thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Obtain the port of the peer.
    Attach {
        pair: Weak<Shared>,
        incarnation: u32,
        remote: EndpointAddress,
    },
    /// Obtain the region of a key.
    Map {
        pair: Weak<Shared>,
        incarnation: u32,
        remote: EndpointAddress,
        key: u32,
    },
    /// Obtain a port to a UD queue pair.
    Datagram {
        pair: Weak<Shared>,
        incarnation: u32,
        target: Target,
    },
    /// Keep a session with the device of this identifier, to learn of its end.
    Meet([u8; 16]),
    /// Ask the device of an address whether the queue pair is its own.
    Confirm {
        remote: EndpointAddress,
        answer: SyncSender<Confirmation>,
    },
    /// The queue pair with this number is now connected to its peer.
    Ready(u32),
    /// The queue pair with this number is gone.
    Closed(u32),
    /// Continue what a queue pair left over, until nothing is left.
    Watch(Weak<Shared>),
}

/// The answer to a confirmation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The queue pair belongs to the device, whose process runs as this user.
    Confirmed(u32),
    /// The queue pair does not belong to the device.
    Denied,
    /// There is no such device, or it does not belong to our user.
    Unknown(Errno),
    /// The device does not answer.
    Silent,
}

/// The queue of commands to the control thread.
#[derive(Debug)]
pub(crate) struct ControlQueue {
    commands: Mutex<VecDeque<Command>>,
    event: OwnedFd,
    stopped: AtomicBool,
}

impl ControlQueue {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            commands: Mutex::new(VecDeque::with_capacity(64)),
            event: create_event()?,
            stopped: AtomicBool::new(false),
        })
    }

    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(crate) fn push(&self, command: Command) {
        lock(&self.commands).push_back(command);
        raise(&self.event);
    }

    /// Makes the control thread continue what `pair` left over.
    pub(crate) fn watch(&self, pair: &Arc<Shared>) {
        if !pair.watched.swap(true, Ordering::SeqCst) {
            self.push(Command::Watch(Arc::downgrade(pair)));
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        raise(&self.event);
    }
}

/// Starts the control thread of a device.
pub(crate) fn start(core: &Arc<Core>) -> Result<JoinHandle<()>, VerbsError> {
    let refused = system("listening on the device's socket");
    let listener = socket::address(core.uid)
        .and_then(|address| {
            let socket = new_listener()?;
            rustix::net::bind(&socket, &address)?;
            listen(socket)
        })
        .map_err(&refused)?;
    let in_folder = match &core.config.folder {
        None => None,
        Some(folder) => {
            let socket = new_listener().map_err(&refused)?;
            let name = folder::bind(&socket, folder, core.uid)?;
            Some((listen(socket).map_err(&refused)?, name))
        }
    };
    let core = Arc::clone(core);
    std::thread::Builder::new()
        .name("dunlin-shm".to_owned())
        .spawn(move || {
            Control {
                client: Client::new(Arc::clone(&core)),
                server: Server::new(Arc::clone(&core)),
                core,
                listener,
                in_folder,
                watched: Vec::new(),
                trim: Trim::default(),
                tick: TICK_MIN,
                accepts: true,
            }
            .run();
        })
        .map_err(|source| VerbsError::System {
            call: "spawning the control thread",
            source,
        })
}

fn new_listener() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn listen(bound: OwnedFd) -> Result<Foreign, Errno> {
    rustix::net::listen(&bound, 128)?;
    // Every peer that waits to be accepted holds an end of it.
    Ok(bound.into())
}

struct Control {
    core: Arc<Core>,
    listener: Foreign,
    /// Listens for peers of other network namespaces and users.
    in_folder: Option<(Foreign, folder::Name)>,
    client: Client,
    server: Server,
    watched: Vec<Weak<Shared>>,
    trim: Trim,
    tick: Duration,
    /// Whether waiting sessions are accepted.
    accepts: bool,
}

impl Control {
    fn run(mut self) {
        loop {
            self.obey();
            if self.core.control.stopped.load(Ordering::SeqCst) {
                return;
            }
            self.look_after();
            let now = Instant::now();
            self.client.expire(now);
            self.server.expire(now);
            self.trim.expire(now);
            if let Err(errno) = self.wait() {
                tracing::error!(%errno, "the control thread cannot wait for events");
                std::thread::sleep(TICK_MAX);
            }
        }
    }

    /// Executes the commands that have arrived so far; adding one later raises the event again.
    fn obey(&mut self) {
        let count = lock(&self.core.control.commands).len();
        for _ in 0..count {
            let Some(command) = lock(&self.core.control.commands).pop_front() else {
                return;
            };
            match command {
                Command::Attach {
                    pair,
                    incarnation,
                    remote,
                } => self.client.attach(pair, incarnation, &remote),
                Command::Map {
                    pair,
                    incarnation,
                    remote,
                    key,
                } => self.client.map(pair, incarnation, &remote, key),
                Command::Datagram {
                    pair,
                    incarnation,
                    target,
                } => self.client.datagram(pair, incarnation, target),
                Command::Meet(uid) => self.client.meet(uid),
                Command::Confirm { remote, answer } => self.client.confirm(&remote, answer),
                Command::Ready(number) => self.server.ready(number),
                Command::Closed(number) => {
                    self.server.closed(number);
                    self.trim.queue_pair_ended();
                    self.client.tidy();
                }
                Command::Watch(pair) => {
                    self.watched.push(pair);
                    self.tick = TICK_MIN;
                }
            }
        }
    }

    /// Continues requests that were left over.
    fn look_after(&mut self) {
        self.watched.retain(|pair| {
            let Some(pair) = pair.upgrade() else {
                return false;
            };
            pair.try_progress();
            if pair.send.is_shared() {
                return true;
            }
            pair.watched.store(false, Ordering::SeqCst);
            // Requests left over between the two lines above found the flag set, so keep watching.
            pair.send.is_shared() && !pair.watched.swap(true, Ordering::SeqCst)
        });
        self.tick = (self.tick * 2).min(TICK_MAX);
    }

    /// How long it may sleep: without limit if nothing depends on time.
    fn pause(&self) -> Option<Duration> {
        let tick = (!self.watched.is_empty()).then_some(self.tick);
        let deadlines = [
            self.client.deadline(),
            self.server.deadline(),
            self.trim.deadline(),
        ];
        let next = deadlines.into_iter().flatten().min();
        let silence = next.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let again = (!self.accepts).then_some(ACCEPT_AGAIN);
        tick.into_iter().chain(silence).chain(again).min()
    }

    /// Sleeps until something happens, and handles what arrived from peers.
    fn wait(&mut self) -> Result<(), Errno> {
        let timeout = self.pause().map(|pause| Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        });
        let opening = if self.accepts {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        self.accepts = true;
        let mut descriptors = vec![
            PollFd::new(&self.core.control.event, PollFlags::IN),
            PollFd::new(&self.listener, opening),
        ];
        let in_folder = self.in_folder.iter();
        descriptors.extend(in_folder.map(|(listener, _)| PollFd::new(listener, opening)));
        let first = descriptors.len();
        // No requests are accepted while answers are waiting to be sent, but answers always are: two devices that ask
        // each other a lot must not both wait.
        let servers = self
            .server
            .sockets()
            .map(|socket| (socket, PollFlags::empty()));
        let clients = self.client.sockets().map(|socket| (socket, PollFlags::IN));
        descriptors.extend(servers.chain(clients).map(|(socket, beside)| {
            let flags = match socket.wants_write() {
                true => PollFlags::OUT | beside,
                false => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(socket.file(), flags)
        }));
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<bool> = descriptors
            .iter()
            .map(|descriptor| !descriptor.revents().is_empty())
            .collect();
        drop(descriptors);
        let servers = self.server.sockets().count();
        if ready[0] {
            let _ = consume(&self.core.control.event);
        }
        self.client.handle(&ready[first + servers..]);
        self.server.handle(&ready[first..first + servers]);
        let mut taken = Ok(());
        if ready[1] {
            taken = self.server.accept(&self.listener, false);
        }
        if let Some((listener, _)) = self.in_folder.as_ref().filter(|_| ready[2]) {
            taken = taken.and(self.server.accept(listener, true));
        }
        if let Err(errno) = taken {
            tracing::debug!(%errno, "cannot accept sessions yet: they wait");
            self.accepts = false;
        }
        Ok(())
    }
}
