//! Posting by the extended calls: a request is built in the provider's queue by a few calls, without a list to read.

use crate::context::Core;
use crate::sys::constants as c;
use crate::sys::extended::{self as x, QpEx};
use crate::sys::types::{Ah, Qp, SendWr, Sge};

use dunlin_verbs::Transport;

/// The operation is none of those that the queue pair was made for.
const EOPNOTSUPP: i32 = 95;

type Remote = unsafe extern "C" fn(*mut QpEx, u32, u64);

/// The calls of one queue pair.
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

/// What a queue pair of `transport` is made for.
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
    /// Those of a queue pair that was made for them; `None` where the provider leaves one out that is needed.
    pub(super) fn of(core: &Core, raw: *mut Qp, transport: Transport) -> Option<Self> {
        // SAFETY: the queue pair is alive, and the library knows whether it was made for calls.
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

    /// Builds all requests and rings once; an errno when none was taken.
    ///
    /// # Safety
    /// The queue pair is alive and nobody else posts to it; the requests' segments are valid for the call, and what
    /// they name was checked.
    pub(super) unsafe fn post(&self, requests: &[SendWr]) -> i32 {
        let pair = self.pair;
        // SAFETY: the calls are the queue pair's own, in the order that the library's manual asks for.
        unsafe {
            (self.start)(pair);
            for request in requests {
                (*pair).id = request.id;
                // With the flag for inline data, which the call implies: soft-RoCE wants to be told.
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

    /// The call of the operation; `None` where there is none.
    ///
    /// # Safety
    /// Between `start` and `complete`.
    unsafe fn build(&self, request: &SendWr) -> Option<()> {
        let pair = self.pair;
        // SAFETY: as for the caller; of the union that field is read which `opcode` was written with.
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
