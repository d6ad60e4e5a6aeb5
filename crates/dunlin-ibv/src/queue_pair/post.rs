//! Posting sends: requests are checked, translated, chained, and passed to the provider with one doorbell for each
//! batch.

use std::sync::Arc;

use dunlin_verbs::{
    CompletionOpcode, ConnectAttributes, DeviceAttributes, Operation, Payload, PostError,
    PostErrorKind, SendFlags, SendRequest, Transport, Verbs,
};

use super::batch::{check_segments, prepare_all, BATCH};
use super::calls::Calls;
use crate::address::IbvAddressHandle;
use crate::device::Domain;
use crate::region::IbvRegion;
use crate::sys::constants as c;
use crate::sys::types::{Atomic, Datagram, PostSend, Qp, Rdma, Remote, SendWr, Sge};
use crate::work_table::WorkTable;

type Request<'a> = SendRequest<'a, IbvRegion, IbvAddressHandle>;

/// Address handles of requests that may be in flight.
pub(super) type Handles = Box<[Option<IbvAddressHandle>]>;

/// How requests are passed to the provider.
pub(super) enum Way {
    /// As a list.
    List(PostSend),
    /// By extended calls.
    Calls(Calls),
}

/// The send queue of a queue pair: its limits and space for a batch, so that posting allocates nothing.
pub(crate) struct Sender {
    table: Arc<WorkTable>,
    domain: Arc<Domain>,
    way: Way,
    transport: Transport,
    verbs: Verbs,
    segments: usize,
    inline_bytes: usize,
    message_bytes: usize,
    wrs: Box<[SendWr; BATCH]>,
    sges: Box<[Sge]>,
    /// Address handles by the index of the request's entry: a handle may be used until the datagram completes.
    handles: Handles,
    /// Remembered from ReadyToReceive for ReadyToSend.
    pub(super) connect: ConnectAttributes,
    pub(super) peer_answers: u8,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

// SAFETY: the pointers in `wrs` and `sges` are leftovers of the last batch, written anew before they are used; the one
// in `way` is the queue pair, which may be posted to from any thread.
unsafe impl Send for Sender {}

impl Sender {
    pub(super) fn new(
        (table, domain): (Arc<WorkTable>, &Arc<Domain>),
        way: Way,
        transport: Transport,
        attributes: &DeviceAttributes,
        segments: usize,
        inline_bytes: usize,
    ) -> Self {
        let handles = match transport {
            Transport::UnreliableDatagram => table.places(),
            _ => 0,
        };
        Self {
            table,
            domain: Arc::clone(domain),
            way,
            transport,
            verbs: attributes.transports.verbs(transport),
            segments,
            inline_bytes,
            message_bytes: match transport {
                Transport::UnreliableDatagram => attributes.mtu_bytes,
                _ => attributes.max_message_bytes,
            },
            wrs: Box::new([SendWr::EMPTY; BATCH]),
            sges: vec![Sge::EMPTY; BATCH * segments].into_boxed_slice(),
            handles: vec![None; handles].into_boxed_slice(),
            connect: ConnectAttributes::default(),
            peer_answers: 1,
        }
    }

    /// Takes what must live as long as the queue pair.
    pub(super) fn take_handles(&mut self) -> Handles {
        std::mem::take(&mut self.handles)
    }

    pub(super) fn post(
        &mut self,
        pair: *mut Qp,
        requests: &[Request<'_>],
    ) -> Result<(), PostError> {
        for (at, batch) in requests.chunks(BATCH).enumerate() {
            let error = |(index, kind)| PostError {
                index: at * BATCH + index,
                kind,
            };
            let (count, prepared) = prepare_all(batch, |at, request| self.prepare(at, request));
            self.hand_over(pair, count).map_err(error)?;
            prepared.map_err(|kind| error((count, kind)))?;
        }
        Ok(())
    }

    /// Writes request `at` of the batch.
    fn prepare(&mut self, at: usize, request: &Request<'_>) -> Result<(), PostErrorKind> {
        let (opcode, completes_as, verb) = verb(&request.operation);
        let length = self.check(request, verb)?;
        let sges = &mut self.sges[at * self.segments..][..self.segments];
        let (sge_count, mut flags) = match request.payload {
            Payload::Inline([]) => (0, 0),
            Payload::Inline(bytes) => {
                sges[0] = Sge {
                    address: bytes.as_ptr() as u64,
                    length: bytes.len() as u32,
                    lkey: 0,
                };
                (1, c::SEND_INLINE)
            }
            Payload::Segments(segments) => {
                for (sge, segment) in sges.iter_mut().zip(segments) {
                    *sge = Sge::of(segment);
                }
                (segments.len(), 0)
            }
        };
        let lkey = if sge_count > 0 { sges[0].lkey } else { 0 };
        let first = sges.as_mut_ptr();
        for (flag, bit) in [
            (SendFlags::SIGNALED, c::SEND_SIGNALED),
            (SendFlags::SOLICITED, c::SEND_SOLICITED),
            (SendFlags::FENCE, c::SEND_FENCE),
        ] {
            if request.flags.contains(flag) {
                flags |= bit;
            }
        }
        let (remote, immediate) = remote(request);
        let full = PostErrorKind::Full {
            limit: self.table.limit(),
        };
        let id = self
            .table
            .push(request.id, completes_as, length, lkey)
            .ok_or(full)?;
        if let Some(to) = &request.destination {
            let held = &mut self.handles[self.table.place(id)];
            if !held.as_ref().is_some_and(|held| held.is(to.handle)) {
                *held = Some(to.handle.clone());
            }
        }
        let wr = &mut self.wrs[at];
        wr.id = id;
        wr.sges = first;
        wr.sge_count = sge_count as i32;
        wr.opcode = opcode;
        wr.flags = flags;
        wr.immediate = immediate.unwrap_or(0).to_be();
        wr.remote = remote;
        Ok(())
    }

    /// Checks that the request may be posted, and returns its length.
    fn check(&self, request: &Request<'_>, verb: Verbs) -> Result<usize, PostErrorKind> {
        let unfit = PostErrorKind::Verb(self.transport);
        let datagram = self.transport == Transport::UnreliableDatagram;
        if !self.verbs.contains(verb) || request.destination.is_some() != datagram {
            return Err(unfit);
        }
        if let Some(to) = &request.destination {
            if !to.handle.belongs_to(&self.domain) {
                return Err(unfit);
            }
        }
        let fetches = verb.intersects(Verbs::READ | Verbs::ATOMIC);
        let length = match request.payload {
            Payload::Inline(bytes) => {
                if fetches {
                    return Err(unfit);
                }
                if bytes.len() > self.inline_bytes {
                    return Err(PostErrorKind::Inline {
                        bytes: bytes.len(),
                        limit: self.inline_bytes,
                    });
                }
                bytes.len()
            }
            Payload::Segments(segments) => {
                let sum = check_segments(segments, self.segments, &self.domain, fetches)?;
                if verb == Verbs::ATOMIC && !(segments.len() == 1 && sum == 8) {
                    return Err(unfit);
                }
                sum
            }
        };
        // This also keeps the length of each segment within the library's 32 bits.
        if length > self.message_bytes {
            return Err(PostErrorKind::Length {
                bytes: length,
                limit: self.message_bytes,
            });
        }
        Ok(length)
    }

    /// Chains the first `count` requests and rings the doorbell; the error contains the index of the first that was
    /// refused.
    fn hand_over(&mut self, pair: *mut Qp, count: usize) -> Result<(), (usize, PostErrorKind)> {
        if count == 0 {
            return Ok(());
        }
        if let Way::Calls(calls) = &self.way {
            // SAFETY: the queue pair is alive and this value alone posts to it. The segments are valid for the call;
            // the regions were checked.
            let errno = unsafe { calls.post(&self.wrs[..count]) };
            if errno == 0 {
                return Ok(());
            }
            // All or nothing.
            self.table
                .withdraw(self.wrs[..count].iter().map(|wr| wr.id));
            return Err((0, kind(errno, self.table.limit(), self.transport)));
        }
        let first = self.wrs.as_mut_ptr();
        for at in 0..count {
            self.wrs[at].next = if at + 1 < count {
                first.wrapping_add(at + 1)
            } else {
                std::ptr::null_mut()
            };
        }
        let mut bad = std::ptr::null_mut();
        let Way::List(post) = self.way else {
            return Ok(());
        };
        // SAFETY: the queue pair is alive and this value alone posts to it. The list and its segments are valid for the
        // call, after which the provider does not access them; the regions were checked.
        let errno = unsafe { post(pair, first, &mut bad) };
        if errno == 0 {
            return Ok(());
        }
        let refused = (bad as usize).wrapping_sub(first as usize) / size_of::<SendWr>();
        let refused = refused.min(count - 1);
        let ids = self.wrs[refused..count].iter().map(|wr| wr.id);
        self.table.withdraw(ids);
        Err((refused, kind(errno, self.table.limit(), self.transport)))
    }
}

/// Why a provider refused a request that passed our checks.
pub(super) fn kind(errno: i32, limit: usize, transport: Transport) -> PostErrorKind {
    const ENOMEM: i32 = 12;
    const EAGAIN: i32 = 11;
    match errno.abs() {
        ENOMEM | EAGAIN | 1 => PostErrorKind::Full { limit },
        _ => PostErrorKind::Verb(transport),
    }
}

fn verb(operation: &Operation) -> (u32, CompletionOpcode, Verbs) {
    use CompletionOpcode as O;
    match operation {
        Operation::Send { immediate: None } => (c::WR_SEND, O::Send, Verbs::SEND),
        Operation::Send { .. } => (c::WR_SEND_WITH_IMMEDIATE, O::Send, Verbs::SEND),
        Operation::Write {
            immediate: None, ..
        } => (c::WR_WRITE, O::Write, Verbs::WRITE),
        Operation::Write { .. } => (
            c::WR_WRITE_WITH_IMMEDIATE,
            O::Write,
            Verbs::WRITE_WITH_IMMEDIATE,
        ),
        Operation::Read { .. } => (c::WR_READ, O::Read, Verbs::READ),
        Operation::CompareAndSwap { .. } => {
            (c::WR_COMPARE_AND_SWAP, O::CompareAndSwap, Verbs::ATOMIC)
        }
        Operation::FetchAndAdd { .. } => (c::WR_FETCH_AND_ADD, O::FetchAndAdd, Verbs::ATOMIC),
    }
}

fn remote(request: &Request<'_>) -> (Remote, Option<u32>) {
    let rdma = |remote: dunlin_verbs::RemoteAddress| Remote {
        rdma: Rdma {
            address: remote.address,
            rkey: remote.key.0,
        },
    };
    let atomic = |remote: dunlin_verbs::RemoteAddress, compare_add, swap| Remote {
        atomic: Atomic {
            address: remote.address,
            compare_add,
            swap,
            rkey: remote.key.0,
        },
    };
    match request.operation {
        Operation::Send { immediate } => {
            let remote = match &request.destination {
                Some(to) => Remote {
                    datagram: Datagram {
                        ah: to.handle.raw(),
                        queue_pair: to.queue_pair,
                        queue_key: to.queue_key,
                    },
                },
                None => SendWr::EMPTY.remote,
            };
            (remote, immediate)
        }
        Operation::Write { remote, immediate } => (rdma(remote), immediate),
        Operation::Read { remote } => (rdma(remote), None),
        Operation::CompareAndSwap {
            remote,
            compare,
            swap,
        } => (atomic(remote, compare, swap), None),
        Operation::FetchAndAdd { remote, add } => (atomic(remote, add, 0), None),
    }
}
