//! Our questions to other devices, and the news that one of them is gone.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_verbs::{Access, AsyncEvent, CompletionStatus, EndpointAddress, Transport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::closer::Foreign;
use crate::core::{lock, Core};
use crate::mapping::{file_id, is_memory_file, map_foreign, FileId, Mapping};
use crate::port::{Geometry, Outbound, PortMap};
use crate::queue_pair::{Mail, PeerRegion, Shared, Target};
use crate::region_table::PeerTable;

use super::folder;
use super::message::{Message, VERSION};
use super::socket::{address, handle_ready, user_of, Broken, Socket, MESSAGES_PER_ROUND};
use super::wakes::Wakers;
use super::Confirmation;

/// Questions whether a queue pair is its own that a peer may leave without an answer.
const CONFIRMING_MAX: usize = 64;

/// Sessions to other devices.
#[derive(Debug)]
pub(super) struct Client {
    core: Arc<Core>,
    sessions: Vec<Session>,
}

#[derive(Debug)]
struct Session {
    uid: [u8; 16],
    /// Whose process it is, as the kernel says.
    user: u32,
    socket: Socket,
    requests: HashMap<u32, Request>,
    /// Questions whether a queue pair is the peer's own, and who waits for the answers.
    confirming: HashMap<u32, SyncSender<Confirmation>>,
    next: u32,
    /// Ports that our datagram queue pairs have there.
    datagrams: Vec<DatagramPort>,
    table: Option<PeerTable>,
    wakers: Wakers,
    /// The peer's regions that are mapped, by file and whether writable: queue pairs share them.
    regions: HashMap<(FileId, bool), Weak<Mapping>>,
}

/// A port for datagrams at a peer: the request by which we got it, our queue pair, and the peer's.
#[derive(Clone, Copy, Debug)]
struct DatagramPort {
    request: u32,
    ours: u32,
    its: u32,
}

#[derive(Debug)]
struct Request {
    pair: Weak<Shared>,
    incarnation: u32,
    wish: Wish,
    /// When the peer's silence is an error. None for a port: the answer waits for the peer's queue pair, whose owner
    /// may take his time, and the connection's own timeout bounds what is posted meanwhile.
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Port,
    Region(u32),
    Datagram(Target),
}

impl Request {
    fn refuse(self) {
        self.refuse_with(CompletionStatus::RemoteAccess);
    }

    /// What was posted for it fails with `status`, where anything can fail.
    fn refuse_with(self, status: CompletionStatus) {
        let mail = match self.wish {
            Wish::Port => Mail::Port(None),
            Wish::Region(key) => Mail::Region(key, Err(status)),
            Wish::Datagram(target) => Mail::Datagram(target, None),
        };
        self.answer(mail);
    }

    fn answer(self, mail: Mail) {
        if let Some(pair) = self.pair.upgrade() {
            pair.deliver(self.incarnation, mail);
        }
    }

    /// Gives up waiting, and leaves behind what takes a late answer, for nobody.
    fn expire(&mut self) {
        let nobody = Self {
            pair: Weak::new(),
            deadline: None,
            ..*self
        };
        std::mem::replace(self, nobody).refuse_with(CompletionStatus::RetryExceeded);
    }
}

impl Client {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            sessions: Vec::new(),
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.sessions.iter().map(|session| &session.socket)
    }

    pub(super) fn attach(
        &mut self,
        pair: Weak<Shared>,
        incarnation: u32,
        remote: &EndpointAddress,
    ) {
        let target = remote.queue_pair;
        self.ask(
            pair,
            incarnation,
            remote.gid,
            Wish::Port,
            |pair, request| Message::AttachPort {
                request,
                requester: pair.number,
                token: pair.token,
                target,
            },
        );
    }

    pub(super) fn map(
        &mut self,
        pair: Weak<Shared>,
        incarnation: u32,
        remote: &EndpointAddress,
        key: u32,
    ) {
        let target = remote.queue_pair;
        let wish = Wish::Region(key);
        self.ask(pair, incarnation, remote.gid, wish, |pair, request| {
            Message::MapRegion {
                request,
                requester: pair.number,
                token: pair.token,
                target,
                key,
            }
        });
    }

    pub(super) fn datagram(&mut self, pair: Weak<Shared>, incarnation: u32, target: Target) {
        let wish = Wish::Datagram(target);
        self.ask(pair, incarnation, target.gid, wish, |pair, request| {
            Message::AttachDatagram {
                request,
                requester: pair.number,
                target: target.number,
                queue_key: target.queue_key,
            }
        });
    }

    /// Asks the device of an address whether the queue pair is its own. Whoever asks waits no longer than he likes.
    pub(super) fn confirm(&mut self, remote: &EndpointAddress, answer: SyncSender<Confirmation>) {
        // Nobody waits for an answer any more when it cannot be sent.
        let say = |what| {
            let _ = answer.try_send(what);
        };
        let index = match self.session(remote.gid) {
            Ok(index) => index,
            Err(errno) => return say(Confirmation::Unknown(errno)),
        };
        let session = &mut self.sessions[index];
        if session.confirming.len() >= CONFIRMING_MAX {
            return say(Confirmation::Silent);
        }
        let number = session.next;
        session.next = number.wrapping_add(1);
        let question = Message::Confirm {
            request: number,
            target: remote.queue_pair,
            token: remote.token,
        };
        session.confirming.insert(number, answer);
        if session.socket.send(&question, Vec::new()).is_err() {
            let session = self.sessions.swap_remove(index);
            self.lose(session);
        }
    }

    fn ask(
        &mut self,
        pair: Weak<Shared>,
        incarnation: u32,
        uid: [u8; 16],
        wish: Wish,
        message: impl FnOnce(&Shared, u32) -> Message,
    ) {
        let Some(asking) = pair.upgrade() else { return };
        let patience = self.core.config.control_timeout;
        let request = Request {
            pair,
            incarnation,
            wish,
            deadline: (!matches!(wish, Wish::Port)).then(|| Instant::now() + patience),
        };
        let index = match self.session(uid) {
            Ok(index) => index,
            Err(errno) => {
                tracing::debug!(%errno, "no session to the peer");
                if is_gone(errno) && !matches!(request.wish, Wish::Datagram(_)) {
                    asking.enter_error();
                }
                if matches!(request.wish, Wish::Port) {
                    // It will not come back.
                    self.core.push_event(AsyncEvent::PeerGone(uid));
                }
                if is_gone(errno) {
                    self.gone(uid);
                }
                return request.refuse();
            }
        };
        let session = &mut self.sessions[index];
        let number = session.next;
        session.next = number.wrapping_add(1);
        session.requests.insert(number, request);
        let message = message(&asking, number);
        if session.socket.send(&message, Vec::new()).is_err() {
            let session = self.sessions.swap_remove(index);
            self.lose(session);
        }
    }

    /// Has a session to a device, which ends when its process does.
    pub(super) fn meet(&mut self, uid: [u8; 16]) {
        // When it cannot be opened for another reason, a datagram tries again.
        if self.session(uid).is_err_and(is_gone) {
            self.gone(uid);
        }
    }

    /// A device that datagrams may go to is no more: whoever waits for answers from there looks.
    fn gone(&self, uid: [u8; 16]) {
        self.core.destinations.are_gone(uid, None);
        for pair in self.core.all_queue_pairs() {
            if pair.transport == Transport::UnreliableDatagram {
                hear_of_end(&pair, uid, None);
            }
        }
    }

    /// The session to a device, opened if need be.
    fn session(&mut self, uid: [u8; 16]) -> Result<usize, Errno> {
        if let Some(index) = self.sessions.iter().position(|s| s.uid == uid) {
            return Ok(index);
        }
        let (file, user) = self.find(uid)?;
        let mut socket = Socket::new(file);
        let hello = Message::Hello {
            version: VERSION,
            uid: self.core.uid,
        };
        socket
            .send(&hello, Vec::new())
            .map_err(|Broken| Errno::CONNRESET)?;
        self.sessions.push(Session {
            uid,
            user,
            socket,
            requests: HashMap::new(),
            confirming: HashMap::new(),
            next: 0,
            datagrams: Vec::new(),
            table: None,
            wakers: Wakers::default(),
            regions: HashMap::new(),
        });
        Ok(self.sessions.len() - 1)
    }

    /// A connection to a device, and the user of its process: by the folder if it is there, which its owner lets us by
    /// whoever we are, and else by its name, which is for our own user.
    fn find(&self, uid: [u8; 16]) -> Result<(Foreign, u32), Errno> {
        let Some(folder) = &self.core.config.folder else {
            return self.connect(&address(uid)?, false);
        };
        let in_folder = match self.connect(&folder::address(folder, uid)?, true) {
            Err(errno) => errno,
            connected => return connected,
        };
        self.connect(&address(uid)?, false).map_err(|errno| {
            // Nobody has the name. What is in the way in the folder tells more, if anything is there.
            let is_there = errno == Errno::CONNREFUSED && in_folder != Errno::NOENT;
            if is_there {
                in_folder
            } else {
                errno
            }
        })
    }

    fn connect(&self, to: &SocketAddrUnix, by_folder: bool) -> Result<(Foreign, u32), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        let file = Foreign::from(socket);
        rustix::net::connect(&file, to)?;
        let user = user_of(file.as_fd(), by_folder)?;
        Ok((file, user))
    }

    /// Deals with the sessions whose sockets are ready.
    pub(super) fn handle(&mut self, ready: &[bool]) {
        let core = Arc::clone(&self.core);
        for lost in handle_ready(&mut self.sessions, ready, |session| session.handle(&core)) {
            self.lose(lost);
        }
        if ready.contains(&true) {
            self.tidy();
        }
    }

    /// Gives up what no queue pair uses any more.
    pub(super) fn tidy(&mut self) {
        for session in &mut self.sessions {
            let mut requests = session.requests.values();
            if requests.all(|request| matches!(request.wish, Wish::Region(_))) {
                session.wakers.tidy();
            }
        }
    }

    /// When the next question has waited too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let requests = self.sessions.iter().flat_map(|s| s.requests.values());
        requests.filter_map(|request| request.deadline).min()
    }

    /// Gives up the questions that have waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        for session in &mut self.sessions {
            for request in session.requests.values_mut() {
                if request.deadline.is_some_and(|deadline| deadline <= now) {
                    tracing::debug!(wish = ?request.wish, "a peer's control thread is silent");
                    request.expire();
                }
            }
        }
    }

    /// The peer is gone: so are its queue pairs.
    fn lose(&mut self, session: Session) {
        self.core.push_event(AsyncEvent::PeerGone(session.uid));
        self.gone(session.uid);
        for pair in self.core.all_queue_pairs() {
            let connected = lock(&pair.link)
                .remote
                .is_some_and(|remote| remote.gid == session.uid);
            if connected {
                pair.enter_error();
            }
        }
        for request in session.requests.into_values() {
            request.refuse();
        }
        for asked in session.confirming.into_values() {
            let _ = asked.try_send(Confirmation::Unknown(Errno::CONNRESET));
        }
    }
}

impl Session {
    fn handle(&mut self, core: &Core) -> Result<(), Broken> {
        self.socket.flush()?;
        for _ in 0..MESSAGES_PER_ROUND {
            let Some((message, files)) = self.socket.receive_with_files()? else {
                break;
            };
            self.take(core, message, files)?;
        }
        Ok(())
    }

    fn take(&mut self, core: &Core, message: Message, files: Vec<Foreign>) -> Result<(), Broken> {
        if let Message::Confirmed { request } | Message::Refused { request } = message {
            if let Some(asked) = self.confirming.remove(&request) {
                let what = match message {
                    Message::Confirmed { .. } => Confirmation::Confirmed(self.user),
                    _ => Confirmation::Denied,
                };
                let _ = asked.try_send(what);
                return Ok(());
            }
        }
        let number = match message {
            Message::Port { request, .. }
            | Message::Region { request, .. }
            | Message::Refused { request } => request,
            Message::Closed { request, requester } => {
                self.peer_closed(core, request, requester);
                self.datagram_port_closed(core, request, requester);
                return Ok(());
            }
            _ => return Err(Broken),
        };
        let request = self.requests.remove(&number).ok_or(Broken)?;
        match (message, request.wish) {
            (
                Message::Port {
                    lengths,
                    data_bytes,
                    shared_receive,
                    waker,
                    ..
                },
                Wish::Port | Wish::Datagram(_),
            ) => {
                let geometry = Geometry {
                    lengths,
                    data_bytes,
                    shared_receive,
                };
                match self.outbound(geometry, waker, files) {
                    Ok(outbound) => {
                        self.note_datagram_port(&request, number);
                        attached(request, number, outbound);
                    }
                    Err(errno) => {
                        tracing::debug!(%errno, "a peer's port cannot be mapped");
                        request.refuse();
                    }
                }
            }
            (
                Message::Region {
                    access,
                    base,
                    length,
                    ..
                },
                Wish::Region(key),
            ) => {
                let access = Access::from_bits_truncate(access);
                let region = self.region(key, access, base, length, files);
                request.answer(Mail::Region(
                    key,
                    region.ok_or(CompletionStatus::RemoteAccess),
                ));
            }
            _ => request.refuse(),
        }
        Ok(())
    }

    /// Remembers by which request a datagram queue pair has its port, to understand the word that the peer's is gone.
    fn note_datagram_port(&mut self, request: &Request, number: u32) {
        let (Wish::Datagram(target), Some(pair)) = (request.wish, request.pair.upgrade()) else {
            return;
        };
        let port = DatagramPort {
            request: number,
            ours: pair.number,
            its: target.number,
        };
        // One that asked again has lost its earlier port.
        self.datagrams
            .retain(|other| (other.ours, other.its) != (port.ours, port.its));
        self.datagrams.push(port);
    }

    fn outbound(
        &mut self,
        geometry: Geometry,
        waker: u32,
        files: Vec<Foreign>,
    ) -> Result<Outbound, Errno> {
        let mut files = files.into_iter();
        let (Some(port_file), Some(table_file)) = (files.next(), files.next()) else {
            return Err(Errno::INVAL);
        };
        let table = match &self.table {
            Some(table) => table.clone(),
            None => {
                let table = PeerTable::map(table_file.as_fd())?;
                self.table.insert(table).clone()
            }
        };
        let port = PortMap::map(port_file.as_fd(), geometry)?;
        for file in [port_file, table_file] {
            close_memory_file(file);
        }
        let waker = self.wakers.find(waker, files.next())?;
        Ok(Outbound::new(Arc::new(port), table, waker))
    }

    /// Maps a region, or finds its file mapped.
    fn region(
        &mut self,
        key: u32,
        access: Access,
        base: u64,
        length: u64,
        files: Vec<Foreign>,
    ) -> Option<PeerRegion> {
        let writable = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let bytes = usize::try_from(length).ok()?;
        let whole = files.into_iter().next()?;
        let file = whole.as_fd();
        let id = file_id(file).ok()?;
        let known = self.regions.get(&(id, writable)).and_then(Weak::upgrade);
        let mapping = match known.filter(|mapping| mapping.length() >= bytes) {
            Some(mapping) => mapping,
            None => {
                let mapping = map_foreign(file, bytes, writable)
                    .inspect_err(
                        |errno| tracing::debug!(%errno, key, "a peer's region cannot be mapped"),
                    )
                    .ok()?;
                let mapping = Arc::new(mapping);
                self.regions.retain(|_, mapping| mapping.strong_count() > 0);
                self.regions
                    .insert((id, writable), Arc::downgrade(&mapping));
                mapping
            }
        };
        close_memory_file(whole);
        Some(PeerRegion::new(key, access, base, length, mapping))
    }

    /// A queue pair of the peer is gone to which ours may send datagrams.
    fn datagram_port_closed(&mut self, core: &Core, request: u32, requester: u32) {
        let closed = |port: &DatagramPort| (port.request, port.ours) == (request, requester);
        let Some(at) = self.datagrams.iter().position(closed) else {
            return;
        };
        let its = self.datagrams.swap_remove(at).its;
        core.destinations.are_gone(self.uid, Some(its));
        if let Some(pair) = core.queue_pair(requester) {
            hear_of_end(&pair, self.uid, Some(its));
        }
    }

    /// A queue pair of the peer is gone; ours that was connected to it has no use any more.
    fn peer_closed(&self, core: &Core, request: u32, requester: u32) {
        let Some(pair) = core.queue_pair(requester) else {
            return;
        };
        let connected = {
            let link = lock(&pair.link);
            link.attach_request == Some(request)
                && link.remote.is_some_and(|remote| remote.gid == self.uid)
        };
        if connected {
            pair.enter_error();
        }
    }
}

/// Whether a session cannot be opened because its device is no more: nobody listens under its name, which is random and
/// was given out by a device that lived, or it ended between our connection and the first message.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::CONNREFUSED | Errno::CONNRESET)
}

/// Closes what a peer sent here and now, if that is known to take no time.
fn close_memory_file(file: Foreign) {
    if is_memory_file(file.as_fd()) {
        drop(file.into_inner());
    }
}

/// Tells a datagram queue pair that a device that it may send to is no more, or, with a number, one of its queue pairs.
fn hear_of_end(pair: &Shared, uid: [u8; 16], number: Option<u32>) {
    pair.deliver(pair.incarnation(), Mail::Gone(uid, number));
    pair.has_gone.store(true, Ordering::Release);
    pair.receive_cq.signal(true);
}

/// The answer to an attach. The request's number is kept, to tell a late word about an earlier life of the queue pair.
fn attached(request: Request, number: u32, outbound: Outbound) {
    if let Wish::Datagram(target) = request.wish {
        return request.answer(Mail::Datagram(target, Some(outbound)));
    }
    if let Some(pair) = request.pair.upgrade() {
        let mut link = lock(&pair.link);
        if pair.incarnation() == request.incarnation {
            link.attach_request = Some(number);
        }
    }
    request.answer(Mail::Port(Some(outbound)));
}
