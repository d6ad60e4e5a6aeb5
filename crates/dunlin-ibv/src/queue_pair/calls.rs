//! Posting by extended calls: a request is built in the provider's queue by a few calls, without a list to read.

use crate::context::Core;
use crate::sys::constants as c;
use crate::sys::extended::{self as x, QpEx};
use crate::sys::types::{Ah, Qp, SendWr, Sge};

use dunlin_verbs::Transport;

/// The operation is not among those that the queue pair was created for.
const EOPNOTSUPP: i32 = 95;

type Remote = unsafe extern "C" fn(*mut QpEx, u32, u64);

/// The extended calls of one queue pair.
#[derive(Debug)]
pub(crate) struct Calls {
    pair: *mut QpEx,
    start: unsafe extern "C" fn(*mut QpEx),
    complete: unsafe extern "C" fn(*mut QpEx) -> i32,
    abort: unsafe extern "C" fn(*mut QpEx),
    send: unsafe extern "C" fn(*mut QpEx),
    send_with_immediate: unsafe extern "C" fn(*mut QpEx, u32),
    set_sges: unsafe extern "C" fn(*mut QpEx, usize, *const Sge),
    set_inline: unsafe extern "C" fn(*mut QpEx, *mut std::ffi::c_void, usize),
    write: Option<Remote>,
    write_with_immediate: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    read: Option<Remote>,
    compare_and_swap: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    fetch_and_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    set_datagram: Option<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
}

/// The operations that a queue pair of `transport` is created for.
pub(super) fn operations(transport: Transport, atomics: bool) -> u64 {
    let sends = x::WITH_SEND | x::WITH_SEND_WITH_IMMEDIATE;
    let writes = x::WITH_WRITE | x::WITH_WRITE_WITH_IMMEDIATE;
    let atomics = if atomics {
        x::WITH_COMPARE_AND_SWAP | x::WITH_FETCH_AND_ADD
    } else {
        0
    };
    match transport {
        Transport::ReliableConnection => sends | writes | x::WITH_READ | atomics,
        Transport::UnreliableConnection => sends | writes,
        Transport::UnreliableDatagram => sends,
    }
}

impl Calls {
    /// The calls of a queue pair that was created for them; `None` if the provider lacks a required one.
    pub(super) fn of(core: &Core, raw: *mut Qp, transport: Transport) -> Option<Self> {
        // SAFETY: the queue pair is alive, and the library knows whether it was created for extended calls.
        let pair = unsafe { (core.api.qp_to_qp_ex?)(raw) };
        if pair.is_null() {
            return None;
        }
        // SAFETY: the provider filled the structure when it made the queue pair.
        let table = unsafe { &*pair };
        let datagrams = transport == Transport::UnreliableDatagram;
        let reliable = transport == Transport::ReliableConnection;
        if datagrams && table.set_datagram.is_none()
            || !datagrams && (table.write.is_none() || table.write_with_immediate.is_none())
            || reliable && table.read.is_none()
        {
            return None;
        }
        Some(Self {
            pair,
            start: table.start?,
            complete: table.complete?,
            abort: table.abort?,
            send: table.send?,
            send_with_immediate: table.send_with_immediate?,
            set_sges: table.set_sges?,
            set_inline: table.set_inline?,
            write: table.write,
            write_with_immediate: table.write_with_immediate,
            read: table.read,
            compare_and_swap: table.compare_and_swap,
            fetch_and_add: table.fetch_and_add,
            set_datagram: table.set_datagram.filter(|_| datagrams),
        })
    }

    /// Builds all requests and rings the doorbell once; returns an errno if none was accepted.
    ///
    /// # Safety
    /// The queue pair must be alive and nobody else may post to it; the requests' segments must be valid for the call,
    /// and what they name must have been checked.
    pub(super) unsafe fn post(&self, requests: &[SendWr]) -> i32 {
        let pair = self.pair;
        // SAFETY: the calls are the queue pair's own, in the order that the library's manual requires.
        unsafe {
            (self.start)(pair);
            for request in requests {
                (*pair).id = request.id;
                // Including the flag for inline data, although the call implies it: soft-RoCE requires it.
                (*pair).flags = request.flags;
                if self.build(request).is_none() {
                    (self.abort)(pair);
                    return EOPNOTSUPP;
                }
                if let Some(set_datagram) = self.set_datagram {
                    let to = request.remote.datagram;
                    set_datagram(pair, to.ah, to.queue_pair, to.queue_key);
                }
                if request.flags & c::SEND_INLINE != 0 {
                    let bytes = *request.sges;
                    (self.set_inline)(pair, bytes.address as *mut _, bytes.length as usize);
                } else {
                    (self.set_sges)(pair, request.sge_count as usize, request.sges);
                }
            }
            (self.complete)(pair)
        }
    }

    /// Makes the call for the operation; `None` if there is none.
    ///
    /// # Safety
    /// Must be called between `start` and `complete`.
    unsafe fn build(&self, request: &SendWr) -> Option<()> {
        let pair = self.pair;
        // SAFETY: as for the caller; of the union, the field that `opcode` determines is read.
        unsafe {
            match request.opcode {
                c::WR_SEND => (self.send)(pair),
                c::WR_SEND_WITH_IMMEDIATE => (self.send_with_immediate)(pair, request.immediate),
                c::WR_WRITE => {
                    let to = request.remote.rdma;
                    (self.write?)(pair, to.rkey, to.address);
                }
                c::WR_WRITE_WITH_IMMEDIATE => {
                    let to = request.remote.rdma;
                    (self.write_with_immediate?)(pair, to.rkey, to.address, request.immediate);
                }
                c::WR_READ => {
                    let from = request.remote.rdma;
                    (self.read?)(pair, from.rkey, from.address);
                }
                c::WR_COMPARE_AND_SWAP => {
                    let to = request.remote.atomic;
                    let call = self.compare_and_swap?;
                    call(pair, to.rkey, to.address, to.compare_add, to.swap);
                }
                c::WR_FETCH_AND_ADD => {
                    let to = request.remote.atomic;
                    (self.fetch_and_add?)(pair, to.rkey, to.address, to.compare_add);
                }
                _ => return None,
            }
        }
        Some(())
    }
}
