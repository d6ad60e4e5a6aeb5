//! Requests from other devices.

mod datagrams;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use dunlin_verbs::{Access, QueuePairState, Transport};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::closer::Foreign;
use crate::core::{lock, Core};
use crate::port::Geometry;
use crate::queue_pair::{Link, Shared};

use self::datagrams::{close_datagram_port, DatagramPort};
use super::message::{Message, VERSION};
use super::refusals::Refusals;
use super::socket::{handle_ready, user_of, Broken, Socket, MESSAGES_PER_ROUND};
use super::wakes::Admitted;

/// Maximum number of requests of a session that wait for a queue pair to be connected.
const PARKED_MAX: usize = 4096;
/// Maximum number of sessions accepted or refused before the open ones get their turn.
const SESSIONS_PER_ROUND: usize = 32;

/// Sessions that other devices opened.
#[derive(Debug)]
pub(super) struct Server {
    core: Arc<Core>,
    sessions: Vec<Session>,
    refused: Refused,
}

#[derive(Debug, Default)]
struct Refused {
    sessions: Refusals,
    senders: Refusals,
}

#[derive(Debug)]
struct Session {
    socket: Socket,
    uid: Option<[u8; 16]>,
    opened: Instant,
    parked: Vec<Message>,
    attached: Vec<Attached>,
    datagrams: Vec<DatagramPort>,
    admitted: Admitted,
}

/// A connected queue pair of ours whose port this peer has.
#[derive(Clone, Copy, Debug)]
struct Attached {
    ours: u32,
    incarnation: u32,
    its: u32,
    /// The number of its request.
    request: u32,
}

/// The result of a request.
enum Answer {
    Say(Message, Vec<OwnedFd>),
    Park,
}

impl Server {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            sessions: Vec::new(),
            refused: Refused::default(),
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.sessions.iter().map(|session| &session.socket)
    }

    /// Accepts waiting sessions; `by_folder`: on the socket in the folder. An error means that some are waiting for
    /// which there is no descriptor or memory now.
    pub(super) fn accept(&mut self, listener: &Foreign, by_folder: bool) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..SESSIONS_PER_ROUND {
            let file = match rustix::net::accept_with(listener, flags) {
                Ok(file) => file,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            let file = Foreign::from(file);
            let now = Instant::now();
            let has_room = self.sessions.len() < self.core.config.max_sessions;
            if !has_room || user_of(file.as_fd(), by_folder).is_err() {
                if let Some(count) = self.refused.sessions.count(now) {
                    tracing::warn!(count, "sessions were rejected");
                }
                continue;
            }
            self.sessions.push(Session {
                socket: Socket::new(file),
                uid: None,
                opened: now,
                parked: Vec::new(),
                attached: Vec::new(),
                datagrams: Vec::new(),
                admitted: Admitted::default(),
            });
        }
        Ok(())
    }

    /// Handles the sessions whose sockets are ready.
    pub(super) fn handle(&mut self, ready: &[bool]) {
        let (core, refused) = (&self.core, &mut self.refused);
        let handle = |session: &mut Session| session.handle(core, refused);
        for lost in handle_ready(&mut self.sessions, ready, handle) {
            lost.end(core);
        }
    }

    /// When the next session times out because it has not identified itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.sessions.iter().filter(|session| session.uid.is_none());
        let opened = silent.map(|session| session.opened).min()?;
        Some(opened + self.core.config.control_timeout)
    }

    /// Closes the sessions that do not identify themselves, since each takes the place of another.
    pub(super) fn expire(&mut self, now: Instant) {
        let patience = self.core.config.control_timeout;
        self.sessions.retain(|session| {
            session.uid.is_some() || now.duration_since(session.opened) < patience
        });
    }

    /// Answers requests that waited for a queue pair to be connected.
    pub(super) fn ready(&mut self, number: u32) {
        for session in &mut self.sessions {
            let (now, later) = std::mem::take(&mut session.parked)
                .into_iter()
                .partition(|message| {
                    matches!(message, Message::AttachPort { target, .. } if *target == number)
                });
            session.parked = later;
            for message in Vec::from_iter::<Vec<Message>>(now) {
                // A broken socket is detected again by the next poll.
                let _ = session.answer(&self.core, &mut self.refused, message);
            }
        }
    }

    /// Informs those that were connected to a queue pair that is gone.
    pub(super) fn closed(&mut self, number: u32) {
        self.ready(number);
        for session in &mut self.sessions {
            let gone: Vec<_> = session
                .attached
                .iter()
                .filter(|attached| attached.ours == number)
                .copied()
                .collect();
            session.attached.retain(|attached| attached.ours != number);
            let senders = session.datagrams.extract_if(.., |port| port.ours == number);
            let told: Vec<_> = senders.map(|port| (port.request, port.its)).collect();
            let gone = gone.iter().map(|attached| (attached.request, attached.its));
            for (request, requester) in gone.chain(told) {
                let closed = Message::Closed { request, requester };
                let _ = session.socket.send(&closed, Vec::new());
            }
        }
    }
}

impl Session {
    fn handle(&mut self, core: &Core, refused: &mut Refused) -> Result<(), Broken> {
        self.socket.flush()?;
        for _ in 0..MESSAGES_PER_ROUND {
            let Some(message) = self.socket.receive()? else {
                break;
            };
            match (message, self.uid) {
                (Message::Hello { version, uid }, None) if version == VERSION => {
                    self.uid = Some(uid);
                }
                (
                    Message::AttachPort { .. }
                    | Message::AttachDatagram { .. }
                    | Message::MapRegion { .. }
                    | Message::Confirm { .. },
                    Some(_),
                ) => self.answer(core, refused, message)?,
                _ => return Err(Broken),
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        core: &Core,
        refused: &mut Refused,
        message: Message,
    ) -> Result<(), Broken> {
        let uid = self.uid.ok_or(Broken)?;
        let (request, answer) = match message {
            Message::AttachPort {
                request,
                requester,
                token,
                target,
            } => {
                let asking = (uid, requester, token);
                let answer = attach_port(core, &mut self.admitted, asking, request, target);
                if let (Some(Answer::Say(..)), Some(pair)) = (&answer, core.queue_pair(target)) {
                    self.attached.retain(|attached| attached.ours != target);
                    self.attached.push(Attached {
                        ours: target,
                        incarnation: pair.incarnation(),
                        its: requester,
                        request,
                    });
                }
                (request, answer)
            }
            Message::AttachDatagram {
                request,
                requester,
                target,
                queue_key,
            } => {
                let asking = (request, requester);
                let answer = self.attach_datagram(core, refused, asking, target, queue_key);
                (request, answer)
            }
            Message::MapRegion {
                request,
                requester,
                token,
                target,
                key,
            } => {
                let asking = (uid, requester, token);
                (request, map_region(core, asking, request, target, key))
            }
            Message::Confirm {
                request,
                target,
                token,
            } => {
                let pair = core.queue_pair(target);
                let ours = pair.is_some_and(|pair| pair.token == token);
                let confirmed = Message::Confirmed { request };
                (request, ours.then(|| Answer::Say(confirmed, Vec::new())))
            }
            _ => return Err(Broken),
        };
        match answer {
            Some(Answer::Say(message, files)) => self.socket.send(&message, files),
            Some(Answer::Park) if self.parked.len() < PARKED_MAX => {
                self.parked.push(message);
                Ok(())
            }
            _ => self.socket.send(&Message::Refused { request }, Vec::new()),
        }
    }

    /// Ends the session of a peer that is gone, and with it the queue pairs that were attached to ours.
    fn end(self, core: &Core) {
        for attached in &self.attached {
            if let Some(pair) = core.queue_pair(attached.ours) {
                if pair.incarnation() == attached.incarnation {
                    pair.enter_error();
                }
            }
        }
        for sender in &self.datagrams {
            close_datagram_port(core, sender);
        }
    }
}

fn receives(state: QueuePairState) -> bool {
    matches!(
        state,
        QueuePairState::ReadyToReceive
            | QueuePairState::ReadyToSend
            | QueuePairState::SendQueueDrained
            | QueuePairState::SendQueueError
    )
}

/// Whether the requesting queue pair is the one that ours was connected to.
fn is_peer(link: &Link, (uid, requester, token): ([u8; 16], u32, u64)) -> bool {
    link.remote.is_some_and(|remote| {
        remote.gid == uid && remote.queue_pair == requester && remote.token == token
    })
}

fn attach_port(
    core: &Core,
    admitted: &mut Admitted,
    asking: ([u8; 16], u32, u64),
    request: u32,
    target: u32,
) -> Option<Answer> {
    let pair = core.queue_pair(target)?;
    let link = lock(&pair.link);
    if pair.transport == Transport::UnreliableDatagram {
        return None;
    }
    if matches!(pair.state(), QueuePairState::Reset | QueuePairState::Init) {
        return Some(Answer::Park);
    }
    let (file, port) = link.own.as_ref()?;
    // The peer may ask again if it was reset before it received the answer, but not once it has sent something.
    let fresh = port.tail().load(Ordering::Relaxed) == 0;
    if !is_peer(&link, asking) || !fresh || !receives(pair.state()) {
        tracing::debug!(
            queue_pair = target,
            "rejected a request for a port: not from the connected peer, or too late"
        );
        return None;
    }
    say_port(core, admitted, &pair, request, file, port.geometry())
}

fn say_port(
    core: &Core,
    admitted: &mut Admitted,
    pair: &Shared,
    request: u32,
    file: &OwnedFd,
    geometry: Geometry,
) -> Option<Answer> {
    let mut files = vec![file.try_clone().ok()?];
    files.push(core.table.file().try_clone_to_owned().ok()?);
    let mut waker = 0;
    if let Some(channel) = pair.receive_cq.channel() {
        let (number, end) = admitted.end(channel).ok()?;
        files.extend(end);
        waker = number;
    }
    let message = Message::Port {
        request,
        lengths: geometry.lengths,
        data_bytes: geometry.data_bytes,
        shared_receive: geometry.shared_receive,
        waker,
    };
    Some(Answer::Say(message, files))
}

fn map_region(
    core: &Core,
    asking: ([u8; 16], u32, u64),
    request: u32,
    target: u32,
    key: u32,
) -> Option<Answer> {
    let pair = core.queue_pair(target)?;
    let granted = {
        let link = lock(&pair.link);
        if !is_peer(&link, asking) {
            return None;
        }
        link.access
    };
    let region = core.region(key)?;
    if region.domain != pair.domain || region.ended() {
        return None;
    }
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let granted = granted & region.access & remote;
    if granted.is_empty() {
        return None;
    }
    let file = region.file.as_ref()?;
    let writable = granted.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let file = if writable {
        file.try_clone().ok()?
    } else {
        read_only(file).ok()?
    };
    let message = Message::Region {
        request,
        access: granted.bits(),
        base: region.base,
        length: region.memory.len() as u64,
    };
    Some(Answer::Say(message, vec![file]))
}

/// A read-only descriptor of the same file.
fn read_only(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(all(test, not(loom)))]
mod tests;
