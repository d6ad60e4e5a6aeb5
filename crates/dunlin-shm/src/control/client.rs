//! Requests to other devices, and the detection that one of them is gone.

mod session;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_verbs::{AsyncEvent, EndpointAddress, Transport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::closer::Foreign;
use crate::core::{lock, Core};
use crate::queue_pair::{Shared, Target};

use super::folder;
use super::message::{Message, VERSION};
use super::socket::{address, handle_ready, user_of, Broken, Socket};
use super::wakes::Wakers;
use super::Confirmation;
use session::{hear_of_end, is_gone, DatagramPort, Request, Session, Wish};

/// Maximum number of confirmation requests that a peer may leave without an answer.
const CONFIRMING_MAX: usize = 64;

/// Number of sessions below which unused ones are not looked for.
const FEW: usize = 64;

/// Sessions to other devices.
#[derive(Debug)]
pub(super) struct Client {
    core: Arc<Core>,
    sessions: Vec<Session>,
    /// Number of sessions at which unused ones are closed.
    full: usize,
}

impl Client {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            sessions: Vec::new(),
            full: FEW,
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

    /// Asks the device of an address whether the queue pair is its own. The caller decides how long it waits.
    pub(super) fn confirm(&mut self, remote: &EndpointAddress, answer: SyncSender<Confirmation>) {
        // If it cannot be sent, nobody waits for the answer any more.
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
        session.confirming.insert(number, (answer, Instant::now()));
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
                tracing::debug!(%errno, "cannot open a session to the peer");
                if is_gone(errno) && !matches!(request.wish, Wish::Datagram(_)) {
                    asking.enter_error();
                }
                if matches!(request.wish, Wish::Port) {
                    // It will not come back.
                    self.core.push_event(AsyncEvent::PeerGone(uid));
                }
                if is_gone(errno) {
                    self.gone(uid, &[]);
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

    /// Ensures that there is a session to a device; the session ends when the device's process does.
    pub(super) fn meet(&mut self, uid: [u8; 16]) {
        // If it cannot be opened for another reason, a datagram tries again.
        if self.session(uid).is_err_and(is_gone) {
            self.gone(uid, &[]);
        }
    }

    /// Handles the end of a device that datagrams may be sent to: threads that wait for answers from it are woken, and
    /// queue pairs that have one of `ports` there release it. Other queue pairs get no mail about it, because they may
    /// never send anything, and so never read it.
    fn gone(&self, uid: [u8; 16], ports: &[DatagramPort]) {
        self.core.destinations.are_gone(uid, None);
        for pair in self.core.all_queue_pairs() {
            if ports.iter().any(|port| port.ours == pair.number) {
                hear_of_end(&pair, uid, None);
            } else if pair.transport == Transport::UnreliableDatagram {
                pair.receive_cq.signal(true);
            }
        }
    }

    /// Returns the session to a device, opening it if necessary.
    fn session(&mut self, uid: [u8; 16]) -> Result<usize, Errno> {
        if let Some(index) = self.sessions.iter().position(|s| s.uid == uid) {
            return Ok(index);
        }
        self.make_room()?;
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
            ports: Vec::new(),
        });
        Ok(self.sessions.len() - 1)
    }

    /// Closes unused sessions from time to time: a peer can name as many devices as it likes, and each session takes a
    /// descriptor for as long as somebody listens at the other end.
    fn make_room(&mut self) -> Result<(), Errno> {
        let most = self.core.config.max_sessions;
        if self.sessions.len() < self.full.min(most) {
            return Ok(());
        }
        let core = &self.core;
        let remotes = core.all_queue_pairs().into_iter();
        let connected: HashSet<_> = remotes
            .filter_map(|pair| Some(lock(&pair.link).remote?.gid))
            .collect();
        self.sessions.retain(|session| {
            connected.contains(&session.uid)
                || session.is_busy(core)
                || core.destinations.knows(session.uid)
        });
        self.full = (2 * self.sessions.len()).max(FEW);
        match self.sessions.len() < most {
            true => Ok(()),
            false => Err(Errno::MFILE),
        }
    }

    /// Connects to a device, and returns the user of its process: through the folder if it has a socket there, which is
    /// open to whatever users the folder's owner admits, otherwise by its name, which is for our own user only.
    fn find(&self, uid: [u8; 16]) -> Result<(Foreign, u32), Errno> {
        let Some(folder) = &self.core.config.folder else {
            return self.connect(&address(uid)?, false);
        };
        let in_folder = match self.connect(&folder::address(folder, uid)?, true) {
            Err(errno) => errno,
            connected => return connected,
        };
        self.connect(&address(uid)?, false).map_err(|errno| {
            // Nobody has the name. The error from the folder tells more, if there is a socket.
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

    /// Handles the sessions whose sockets are ready.
    pub(super) fn handle(&mut self, ready: &[bool]) {
        let core = Arc::clone(&self.core);
        for lost in handle_ready(&mut self.sessions, ready, |session| session.handle(&core)) {
            self.lose(lost);
        }
        if ready.contains(&true) {
            self.tidy();
        }
    }

    /// Releases what no queue pair uses any more.
    pub(super) fn tidy(&mut self) {
        for session in &mut self.sessions {
            let mut requests = session.requests.values();
            if requests.all(|request| matches!(request.wish, Wish::Region(_))) {
                session.wakers.tidy();
            }
        }
    }

    /// When the next request times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let requests = self.sessions.iter().flat_map(|s| s.requests.values());
        requests.filter_map(|request| request.deadline).min()
    }

    /// Gives up the requests that have timed out.
    pub(super) fn expire(&mut self, now: Instant) {
        for session in &mut self.sessions {
            for request in session.requests.values_mut() {
                if request.deadline.is_some_and(|deadline| deadline <= now) {
                    tracing::debug!(wish = ?request.wish, "a peer's control thread does not respond");
                    request.expire();
                }
            }
        }
    }

    /// Ends the session with a peer that is gone, and with it the peer's queue pairs.
    fn lose(&mut self, session: Session) {
        self.core.push_event(AsyncEvent::PeerGone(session.uid));
        self.gone(session.uid, &session.datagrams);
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
        for (asked, _) in session.confirming.into_values() {
            let _ = asked.try_send(Confirmation::Unknown(Errno::CONNRESET));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use dunlin_verbs::QueuePair;

    use super::*;
    use crate::fuzzing::Side;
    use crate::{ShmConfig, ShmDevice};

    /// A device that never answers.
    fn silent() -> ([u8; 16], Foreign) {
        let mut uid = [0; 16];
        dunlin_verbs::random::fill(&mut uid).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        rustix::net::bind(&listener, &address(uid).unwrap()).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        (uid, listener.into())
    }

    #[test]
    fn sessions_that_nobody_uses_end_where_there_are_many() {
        let config = ShmConfig {
            control_timeout: Duration::from_nanos(1),
            max_sessions: 70,
            ..ShmConfig::default()
        };
        let device = ShmDevice::open(config).unwrap();
        let side = Side::on(device.clone(), Transport::UnreliableDatagram, None);
        let mut client = Client::new(Arc::clone(device.core()));
        let (answer, answers) = std::sync::mpsc::sync_channel(1000);
        let confirm = |client: &mut Client, uid| {
            let mut remote = side.pair.address();
            remote.gid = uid;
            client.confirm(&remote, answer.clone());
        };
        // Those for which there are handles remain, and can take all places.
        let mut held = Vec::new();
        for used in [false, true] {
            for _ in 0..200 {
                let (uid, listener) = silent();
                if used {
                    held.push(device.core().destinations.flag(uid, 1));
                }
                confirm(&mut client, uid);
                drop(listener);
                assert!(client.sessions.len() <= 70);
            }
        }
        assert_eq!(client.sessions.len(), 70);
        let unknown = answers
            .try_iter()
            .filter(|answer| matches!(answer, Confirmation::Unknown(Errno::MFILE)));
        assert_eq!(unknown.count(), 130);
    }
    #[test]
    fn who_sends_nothing_there_gets_no_mail_of_an_end() {
        let sender = Side::new(Transport::UnreliableDatagram);
        let mut client = Client::new(Arc::clone(sender.device.core()));
        let number = sender.pair.number();
        let mail = |side: &Side| {
            let pair = side.device.core().queue_pair(side.pair.number());
            pair.unwrap().take_mail().len()
        };
        let beside = Side::on(sender.device.clone(), Transport::UnreliableDatagram, None);
        for ports in [0, 1] {
            let (uid, _listener) = silent();
            client.meet(uid);
            let mut session = client.sessions.pop().unwrap();
            session
                .datagrams
                .extend((0..ports).map(|request| DatagramPort {
                    request,
                    ours: number,
                    its: 7,
                }));
            client.lose(session);
            assert_eq!(mail(&sender), ports as usize);
            assert_eq!(mail(&beside), 0);
        }
    }
}
