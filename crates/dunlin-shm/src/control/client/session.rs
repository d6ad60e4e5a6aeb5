//! A session: a connection to another process's control socket, and the requests sent over it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_verbs::{Access, CompletionStatus};
use rustix::io::Errno;

use super::super::message::Message;
use super::super::socket::{Broken, Socket, MESSAGES_PER_ROUND};
use super::super::wakes::Wakers;
use super::super::Confirmation;
use crate::closer::Foreign;
use crate::core::{lock, Core};
use crate::mapping::{file_id, is_memory_file, map_foreign, FileId, Mapping};
use crate::port::{Geometry, Outbound, PortMap};
use crate::queue_pair::{Mail, PeerRegion, Shared, Target};
use crate::region_table::{PeerTable, KEY_INDEX_BITS};

/// Maximum number of a peer's regions that are mapped: files, and those that are mapped twice, for reading and for
/// writing.
const REGIONS_MAX: usize = 2 << KEY_INDEX_BITS;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) uid: [u8; 16],
    /// The user of the peer's process, as reported by the kernel.
    pub(super) user: u32,
    pub(super) socket: Socket,
    pub(super) requests: HashMap<u32, Request>,
    /// Outstanding confirmation requests: the recipients of the answers, and when they were sent.
    pub(super) confirming: HashMap<u32, (SyncSender<Confirmation>, Instant)>,
    pub(super) next: u32,
    /// Ports that our datagram queue pairs have at the peer.
    pub(super) datagrams: Vec<DatagramPort>,
    pub(super) table: Option<PeerTable>,
    pub(super) wakers: Wakers,
    /// The peer's regions that are mapped, by file and whether writable: queue pairs share them.
    pub(super) regions: HashMap<(FileId, bool), Weak<Mapping>>,
    /// The peer's ports that are mapped.
    pub(super) ports: Vec<Weak<PortMap>>,
}

/// A port for datagrams at a peer: the request by which it was obtained, our queue pair, and the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramPort {
    pub(super) request: u32,
    pub(super) ours: u32,
    pub(super) its: u32,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) pair: Weak<Shared>,
    pub(super) incarnation: u32,
    pub(super) wish: Wish,
    /// When the peer's silence becomes an error. `None` for a port: the answer depends on the peer's queue pair, whose
    /// owner may take any time, and the connection's own timeout bounds what is posted meanwhile.
    pub(super) deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Port,
    Region(u32),
    Datagram(Target),
}

impl Request {
    pub(super) fn refuse(self) {
        self.refuse_with(CompletionStatus::RemoteAccess);
    }

    /// Fails with `status` what was posted for it, if anything can fail.
    pub(super) fn refuse_with(self, status: CompletionStatus) {
        let mail = match self.wish {
            Wish::Port => Mail::Port(None),
            Wish::Region(key) => Mail::Region(key, Err(status)),
            Wish::Datagram(target) => Mail::Datagram(target, Err(status)),
        };
        self.answer(mail);
    }

    pub(super) fn answer(self, mail: Mail) {
        if let Some(pair) = self.pair.upgrade() {
            pair.deliver(self.incarnation, mail);
        }
    }

    /// Stops waiting; the request remains as one without a queue pair, which absorbs a late answer.
    pub(super) fn expire(&mut self) {
        let nobody = Self {
            pair: Weak::new(),
            deadline: None,
            ..*self
        };
        std::mem::replace(self, nobody).refuse_with(CompletionStatus::RetryExceeded);
    }
}

impl Session {
    /// Whether an answer is expected that may still arrive in time, or a queue pair of ours may send datagrams over it.
    pub(super) fn is_busy(&self, core: &Core) -> bool {
        let patience = core.config.control_timeout;
        let mut asked = self.requests.values().map(|request| &request.pair);
        let mut confirming = self.confirming.values().map(|(_, since)| since.elapsed());
        let mut senders = self.datagrams.iter().map(|port| port.ours);
        asked.any(|pair| pair.strong_count() > 0)
            || confirming.any(|waited| waited < patience)
            || senders.any(|number| core.queue_pair(number).is_some())
    }

    pub(super) fn handle(&mut self, core: &Core) -> Result<(), Broken> {
        self.socket.flush()?;
        for _ in 0..MESSAGES_PER_ROUND {
            let Some((message, files)) = self.socket.receive_with_files()? else {
                break;
            };
            self.take(core, message, files)?;
        }
        Ok(())
    }

    pub(super) fn take(
        &mut self,
        core: &Core,
        message: Message,
        files: Vec<Foreign>,
    ) -> Result<(), Broken> {
        if let Message::Confirmed { request } | Message::Refused { request } = message {
            if let Some((asked, _)) = self.confirming.remove(&request) {
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
                match self.outbound(geometry, waker, files, core.config.max_mapped_bytes) {
                    Ok(outbound) => {
                        self.note_datagram_port(&request, number);
                        attached(request, number, outbound);
                    }
                    Err(errno) => {
                        tracing::debug!(%errno, "cannot map a peer's port");
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
                let limit = core.config.max_mapped_bytes;
                let region = self.region(key, access, base, length, files, limit);
                request.answer(Mail::Region(
                    key,
                    region.ok_or(CompletionStatus::RemoteAccess),
                ));
            }
            _ => request.refuse(),
        }
        Ok(())
    }

    /// Remembers by which request a datagram queue pair obtained its port, to be able to handle the message that the
    /// peer's queue pair is gone.
    pub(super) fn note_datagram_port(&mut self, request: &Request, number: u32) {
        let (Wish::Datagram(target), Some(pair)) = (request.wish, request.pair.upgrade()) else {
            return;
        };
        let port = DatagramPort {
            request: number,
            ours: pair.number,
            its: target.number,
        };
        // A queue pair that asked again has lost its earlier port.
        self.datagrams
            .retain(|other| (other.ours, other.its) != (port.ours, port.its));
        self.datagrams.push(port);
    }

    pub(super) fn outbound(
        &mut self,
        geometry: Geometry,
        waker: u32,
        files: Vec<Foreign>,
        limit: usize,
    ) -> Result<Outbound, Errno> {
        let bytes = geometry.file_bytes().ok_or(Errno::INVAL)?;
        let mapped = self.mapped();
        if bytes > limit.saturating_sub(mapped) {
            tracing::warn!(
                bytes,
                mapped,
                limit,
                "cannot map a peer's port: max_mapped_bytes would be exceeded"
            );
            return Err(Errno::NOMEM);
        }
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
        let port = Arc::new(PortMap::map(port_file.as_fd(), geometry)?);
        self.ports.push(Arc::downgrade(&port));
        for file in [port_file, table_file] {
            close_memory_file(file);
        }
        let waker = self.wakers.find(waker, files.next())?;
        Ok(Outbound::new(port, table, waker))
    }

    /// Bytes of the peer's regions and ports that are mapped here.
    fn mapped(&mut self) -> usize {
        self.regions.retain(|_, mapping| mapping.strong_count() > 0);
        self.ports.retain(|port| port.strong_count() > 0);
        let regions = self.regions.values().filter_map(Weak::upgrade);
        let ports = self.ports.iter().filter_map(Weak::upgrade);
        let regions: usize = regions.map(|mapping| mapping.length()).sum();
        let ports: usize = ports.map(|port| port.mapped_bytes()).sum();
        regions.saturating_add(ports)
    }

    /// Maps a region, unless its file is already mapped. The mappings of one peer, including its ports, must not exceed
    /// `limit` bytes, nor more regions than a device can have: the peer chooses what is mapped, and the system's
    /// resources for mappings are shared by all.
    pub(super) fn region(
        &mut self,
        key: u32,
        access: Access,
        base: u64,
        length: u64,
        files: Vec<Foreign>,
        limit: usize,
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
                let mapped = self.mapped();
                if bytes > limit.saturating_sub(mapped) || self.regions.len() >= REGIONS_MAX {
                    tracing::warn!(
                        key,
                        bytes,
                        mapped,
                        "cannot map a peer's region: there are too many, or it is too long"
                    );
                    return None;
                }
                let mapping = map_foreign(file, bytes, writable)
                    .inspect_err(|errno| tracing::debug!(%errno, key, "cannot map a peer's region"))
                    .ok()?;
                let mapping = Arc::new(mapping);
                self.regions
                    .insert((id, writable), Arc::downgrade(&mapping));
                mapping
            }
        };
        close_memory_file(whole);
        Some(PeerRegion::new(key, access, base, length, mapping))
    }

    /// Handles the end of a queue pair of the peer to which one of ours may send datagrams.
    pub(super) fn datagram_port_closed(&mut self, core: &Core, request: u32, requester: u32) {
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

    /// Handles the end of a queue pair of the peer; the one of ours that was connected to it is then useless.
    pub(super) fn peer_closed(&self, core: &Core, request: u32, requester: u32) {
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

/// Whether a session cannot be opened because its device no longer exists: nobody listens under its name, which is
/// random and was published by a device that existed, or it ended between our connection and the first message.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::CONNREFUSED | Errno::CONNRESET)
}

/// Closes a descriptor from a peer on this thread, if that is known not to block.
pub(super) fn close_memory_file(file: Foreign) {
    if is_memory_file(file.as_fd()) {
        drop(file.into_inner());
    }
}

/// Informs a datagram queue pair that a device to which it may send no longer exists, or, with a number, one of its
/// queue pairs.
pub(super) fn hear_of_end(pair: &Shared, uid: [u8; 16], number: Option<u32>) {
    pair.deliver(pair.incarnation(), Mail::Gone(uid, number));
    pair.has_gone.store(true, Ordering::Release);
    pair.receive_cq.signal(true);
}

/// Handles the answer to an attach. The request's number is kept, to recognise a late message about an earlier
/// incarnation of the queue pair.
pub(super) fn attached(request: Request, number: u32, outbound: Outbound) {
    if let Wish::Datagram(target) = request.wish {
        return request.answer(Mail::Datagram(target, Ok(outbound.leaving())));
    }
    if let Some(pair) = request.pair.upgrade() {
        let mut link = lock(&pair.link);
        if pair.incarnation() == request.incarnation {
            link.attach_request = Some(number);
        }
    }
    request.answer(Mail::Port(Some(outbound)));
}
