//! The extended part of the ABI: completion queues with more fields, and posting by calls instead of lists.
//!
//! A provider that supports it puts a table in front of the `ibv_context` that it returns. The table grows at its
//! front, so the position of a function is counted from the end, and the table's size shows whether it is present.
#![allow(missing_docs, missing_debug_implementations)]

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

use super::types::{
    Ah, CompletionChannel, Context, Cq, DeviceAttributes, Number, Pd, Qp, QpCapacity, Sge, Srq,
};

pub const WC_BYTES: u64 = 1 << 0;
pub const WC_IMMEDIATE: u64 = 1 << 1;
pub const WC_QUEUE_PAIR: u64 = 1 << 2;
pub const WC_SOURCE: u64 = 1 << 3;
pub const WC_TIMESTAMP: u64 = 1 << 7;
/// The fields that every completion needs.
pub const WC_STANDARD: u64 = WC_BYTES | WC_IMMEDIATE | WC_QUEUE_PAIR | WC_SOURCE;

pub const QP_INIT_PD: u32 = 1 << 0;
pub const QP_INIT_SEND_OPERATIONS: u32 = 1 << 6;

pub const WITH_WRITE: u64 = 1 << 0;
pub const WITH_WRITE_WITH_IMMEDIATE: u64 = 1 << 1;
pub const WITH_SEND: u64 = 1 << 2;
pub const WITH_SEND_WITH_IMMEDIATE: u64 = 1 << 3;
pub const WITH_READ: u64 = 1 << 4;
pub const WITH_COMPARE_AND_SWAP: u64 = 1 << 5;
pub const WITH_FETCH_AND_ADD: u64 = 1 << 6;

/// The whole `ibv_context`: the mark at its end shows whether the table is in front of it.
#[repr(C)]
pub struct WholeContext {
    pub known: Context,
    mutex: libc::pthread_mutex_t,
    pub mark: *mut c_void,
}

pub type CreateCqEx = unsafe extern "C" fn(*mut Context, *mut CqInit) -> *mut CqEx;
pub type CreateQpEx = unsafe extern "C" fn(*mut Context, *mut QpInitEx) -> *mut Qp;
pub type QueryDeviceEx = unsafe extern "C" fn(
    *mut Context,
    *const c_void,
    *mut ExtendedDeviceAttributes,
    usize,
) -> c_int;

/// The end of `verbs_context`, from the first function that is used here.
#[repr(C)]
pub struct Table {
    pub create_cq_ex: Option<CreateCqEx>,
    _private: *mut c_void,
    pub query_device: Option<QueryDeviceEx>,
    _flows: [*mut c_void; 4],
    _open_qp: *mut c_void,
    pub create_qp_ex: Option<CreateQpEx>,
    _others: [*mut c_void; 4],
    _placeholder: u64,
    pub size: usize,
    pub context: WholeContext,
}

/// The extended functions of an open device.
#[derive(Clone, Copy, Debug)]
pub struct Extended {
    table: *const Table,
}

// SAFETY: the table belongs to the context, whose functions may be called from any thread.
unsafe impl Send for Extended {}
// SAFETY: as above.
unsafe impl Sync for Extended {}

impl Extended {
    /// The table of a context, if its provider has one.
    ///
    /// # Safety
    /// The context must be open, and stay so as long as the value is used.
    pub unsafe fn of(context: *mut Context) -> Option<Self> {
        // SAFETY: every context is complete, even where only its first fields are used.
        let mark = unsafe { (*context.cast::<WholeContext>()).mark };
        // The header's __VERBS_ABI_IS_EXTENDED.
        if mark as usize != usize::MAX {
            return None;
        }
        let start = context
            .cast::<u8>()
            .wrapping_sub(offset_of!(Table, context));
        Some(Self {
            table: start.cast::<Table>(),
        })
    }

    /// The function at `place` of the table, if the table is long enough and the function is present.
    ///
    /// # Safety
    /// `F` must be the type of the function at `place`.
    unsafe fn function<F: Copy>(self, place: usize) -> Option<F> {
        let from_end = size_of::<Table>() - place;
        // SAFETY: the size is directly before the context, in every table.
        let size = unsafe { std::ptr::addr_of!((*self.table).size).read() };
        if size < from_end {
            return None;
        }
        // SAFETY: the table extends from before `place` to its end, and the type is what the caller says.
        unsafe { self.table.byte_add(place).cast::<Option<F>>().read() }
    }

    pub fn create_cq_ex(self) -> Option<CreateCqEx> {
        // SAFETY: the field's type.
        unsafe { self.function(offset_of!(Table, create_cq_ex)) }
    }

    pub fn create_qp_ex(self) -> Option<CreateQpEx> {
        // SAFETY: the field's type.
        unsafe { self.function(offset_of!(Table, create_qp_ex)) }
    }

    /// Mask and frequency (kHz) of the clock that completions are stamped with; zero without one.
    ///
    /// # Safety
    /// As for [`Extended::of`]; `context` must be the one that it was made from.
    pub unsafe fn clock(self, context: *mut Context) -> (u64, u64) {
        let place = offset_of!(Table, query_device);
        // SAFETY: the field's type.
        let Some(query) = (unsafe { self.function::<QueryDeviceEx>(place) }) else {
            return (0, 0);
        };
        // SAFETY: plain numbers, for which zero is a valid value.
        let mut device: ExtendedDeviceAttributes = unsafe { std::mem::zeroed() };
        let size = size_of::<ExtendedDeviceAttributes>();
        // SAFETY: the context is open, there is no input, and the answer is at most as long as said.
        let errno = unsafe { query(context, std::ptr::null(), &mut device, size) };
        if errno != 0 {
            return (0, 0);
        }
        (device.timestamp_mask, device.clock_khz)
    }
}

#[repr(C)]
pub struct ExtendedDeviceAttributes {
    pub plain: DeviceAttributes,
    _mask: u32,
    _paging: [u64; 3],
    pub timestamp_mask: u64,
    pub clock_khz: u64,
    /// More than any version of the structure has so far.
    _rest: [u64; 64],
}

#[repr(C)]
pub struct CqInit {
    pub entries: u32,
    pub user: *mut c_void,
    pub channel: *mut CompletionChannel,
    pub vector: u32,
    pub fields: u64,
    pub mask: u32,
    pub flags: u32,
    pub parent: *mut Pd,
}

#[repr(C)]
pub struct PollAttributes {
    pub mask: u32,
}

pub type ReadU32 = unsafe extern "C" fn(*mut CqEx) -> u32;

#[repr(C)]
pub struct CqEx {
    /// The first fields are those of a plain queue.
    pub cq: Cq,
    mutex: libc::pthread_mutex_t,
    condition: libc::pthread_cond_t,
    _events: [u32; 2],
    _mask: u32,
    pub status: Number,
    pub id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut CqEx, *mut PollAttributes) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut CqEx) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut CqEx)>,
    pub read_opcode: Option<ReadU32>,
    pub read_vendor_error: Option<ReadU32>,
    pub read_bytes: Option<ReadU32>,
    pub read_immediate: Option<ReadU32>,
    pub read_queue_pair: Option<ReadU32>,
    pub read_source: Option<ReadU32>,
    pub read_flags: Option<ReadU32>,
    _lid: Option<ReadU32>,
    _service_level: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    _path_bits: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub read_timestamp: Option<unsafe extern "C" fn(*mut CqEx) -> u64>,
}

#[repr(C)]
pub struct QpInitEx {
    pub user: *mut c_void,
    pub send_cq: *mut Cq,
    pub receive_cq: *mut Cq,
    pub srq: *mut Srq,
    pub capacity: QpCapacity,
    pub kind: Number,
    pub signal_all: c_int,
    pub mask: u32,
    pub pd: *mut Pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub receive_table: *mut c_void,
    pub hash_function: u8,
    pub hash_key_length: u8,
    pub hash_key: *mut u8,
    pub hash_fields: u64,
    pub source_number: u32,
    pub send_operations: u64,
}

type WithRemote = unsafe extern "C" fn(*mut QpEx, u32, u64);

#[repr(C)]
pub struct QpEx {
    pub qp: Qp,
    mutex: libc::pthread_mutex_t,
    condition: libc::pthread_cond_t,
    _events: u32,
    _mask: u64,
    pub id: u64,
    pub flags: c_uint,
    pub compare_and_swap: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub fetch_and_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    _bind: *mut c_void,
    _invalidate: *mut c_void,
    pub read: Option<WithRemote>,
    pub write: Option<WithRemote>,
    pub write_with_immediate: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub send: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub send_with_immediate: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    _send_invalidate: *mut c_void,
    _send_segmented: *mut c_void,
    pub set_datagram: Option<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
    _set_xrc: *mut c_void,
    pub set_inline: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
    _set_inline_list: *mut c_void,
    _set_sge: *mut c_void,
    pub set_sges: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub start: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
    pub abort: Option<unsafe extern "C" fn(*mut QpEx)>,
}
