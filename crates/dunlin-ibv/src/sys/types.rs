//! The structures of libibverbs' ABI that are used here, field for field.
//!
//! Only what the application may access is declared; a structure that the library allocates may continue after its last
//! field here. `layout_tests.rs` compares sizes and offsets with the C header if that is installed.
#![allow(missing_docs, missing_debug_implementations)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Numbers of C enums; never a Rust enum, because a newer library may send newer numbers.
pub type Number = c_uint;

#[repr(C)]
pub struct Device {
    _operations: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub device_name: [c_char; 64],
    pub device_path: [c_char; 256],
    pub sysfs_path: [c_char; 256],
}

pub type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
pub type RequestNotify = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub type PostSharedReceive =
    unsafe extern "C" fn(*mut Srq, *mut ReceiveWr, *mut *mut ReceiveWr) -> c_int;
pub type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub type PostReceive = unsafe extern "C" fn(*mut Qp, *mut ReceiveWr, *mut *mut ReceiveWr) -> c_int;

/// The functions that the header's inline functions call: the provider's own for the data path.
#[repr(C)]
pub struct Operations {
    _to_poll_cq: [*mut c_void; 11],
    pub poll_cq: Option<PollCq>,
    pub request_notify: Option<RequestNotify>,
    _to_post_srq: [*mut c_void; 7],
    pub post_shared_receive: Option<PostSharedReceive>,
    _to_post_send: [*mut c_void; 4],
    pub post_send: Option<PostSend>,
    pub post_receive: Option<PostReceive>,
    _rest: [*mut c_void; 5],
}

#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub operations: Operations,
    pub command_descriptor: c_int,
    pub async_descriptor: c_int,
    pub completion_vectors: c_int,
}

#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub address: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub descriptor: c_int,
    pub references: c_int,
}

#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompletionChannel,
    pub user: *mut c_void,
    pub handle: u32,
    pub entries: c_int,
}

#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
    pub user: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
}

#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub user: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub receive_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub number: u32,
    pub state: Number,
    pub kind: Number,
}

#[repr(C)]
pub struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttributes {
    pub firmware: [c_char; 64],
    pub node_guid: u64,
    pub system_image_guid: u64,
    pub max_mr_size: u64,
    pub page_sizes: u64,
    pub vendor_id: u32,
    pub vendor_part: u32,
    pub hardware_version: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub capabilities: c_uint,
    pub max_sge: c_int,
    pub max_sge_read: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_reads: c_int,
    pub max_ee_reads: c_int,
    pub max_all_reads: c_int,
    pub max_qp_initiated_reads: c_int,
    pub max_ee_initiated_reads: c_int,
    pub atomics: Number,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethernet_qp: c_int,
    pub max_multicast_groups: c_int,
    pub max_multicast_attached: c_int,
    pub max_all_multicast_attached: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_maps_of_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ack_delay: u8,
    pub ports: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortAttributes {
    pub state: Number,
    pub max_mtu: Number,
    pub active_mtu: Number,
    pub gids: c_int,
    pub capabilities: u32,
    pub max_message: u32,
    pub bad_pkeys: u32,
    pub queue_key_violations: u32,
    pub pkeys: u16,
    pub lid: u16,
    pub subnet_manager_lid: u16,
    pub lid_mask: u8,
    pub max_virtual_lanes: u8,
    pub subnet_manager_level: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub physical_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub capabilities2: u16,
}

/// 16 bytes, aligned like the C union of them with two 64-bit words.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Gid(pub [u8; 16]);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GlobalRoute {
    pub destination: Gid,
    pub flow_label: u32,
    pub source_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AhAttributes {
    pub route: GlobalRoute,
    pub lid: u16,
    pub service_level: u8,
    pub source_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QpCapacity {
    pub send_wr: u32,
    pub receive_wr: u32,
    pub send_sge: u32,
    pub receive_sge: u32,
    pub inline_data: u32,
}

#[repr(C)]
pub struct QpInit {
    pub user: *mut c_void,
    pub send_cq: *mut Cq,
    pub receive_cq: *mut Cq,
    pub srq: *mut Srq,
    pub capacity: QpCapacity,
    pub kind: Number,
    pub signal_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QpAttributes {
    pub state: Number,
    pub current_state: Number,
    pub path_mtu: Number,
    pub migration: Number,
    pub queue_key: u32,
    pub receive_psn: u32,
    pub send_psn: u32,
    pub destination: u32,
    pub access: c_uint,
    pub capacity: QpCapacity,
    pub address: AhAttributes,
    pub alternate_address: AhAttributes,
    pub pkey_index: u16,
    pub alternate_pkey_index: u16,
    pub notify_when_drained: u8,
    pub draining: u8,
    pub max_reads_initiated: u8,
    pub max_reads_answered: u8,
    pub receiver_not_ready_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retries: u8,
    pub receiver_not_ready_retries: u8,
    pub alternate_port: u8,
    pub alternate_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SrqAttributes {
    pub wr: u32,
    pub sge: u32,
    pub limit: u32,
}

#[repr(C)]
pub struct SrqInit {
    pub user: *mut c_void,
    pub attributes: SrqAttributes,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sge {
    pub address: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rdma {
    pub address: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Atomic {
    pub address: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Datagram {
    pub ah: *mut Ah,
    pub queue_pair: u32,
    pub queue_key: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Remote {
    pub rdma: Rdma,
    pub atomic: Atomic,
    pub datagram: Datagram,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendWr {
    pub id: u64,
    pub next: *mut SendWr,
    pub sges: *mut Sge,
    pub sge_count: c_int,
    pub opcode: Number,
    pub flags: c_uint,
    /// Big endian.
    pub immediate: u32,
    pub remote: Remote,
    _xrc: u32,
    /// Memory windows and segmentation offload, unused here: 48 bytes, aligned as pointers.
    _others: [u64; 6],
}

impl SendWr {
    /// All zero: a SEND of no bytes.
    pub const EMPTY: Self = Self {
        id: 0,
        next: std::ptr::null_mut(),
        sges: std::ptr::null_mut(),
        sge_count: 0,
        opcode: 0,
        flags: 0,
        immediate: 0,
        remote: Remote {
            atomic: Atomic {
                address: 0,
                compare_add: 0,
                swap: 0,
                rkey: 0,
            },
        },
        _xrc: 0,
        _others: [0; 6],
    };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReceiveWr {
    pub id: u64,
    pub next: *mut ReceiveWr,
    pub sges: *mut Sge,
    pub sge_count: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wc {
    pub id: u64,
    pub status: Number,
    pub opcode: Number,
    pub vendor_error: u32,
    pub bytes: u32,
    /// Big endian.
    pub immediate: u32,
    pub queue_pair: u32,
    pub source: u32,
    pub flags: c_uint,
    pub pkey_index: u16,
    pub source_lid: u16,
    pub service_level: u8,
    pub destination_path_bits: u8,
}

impl Wc {
    /// All zero.
    pub const EMPTY: Self = Self {
        id: 0,
        status: 0,
        opcode: 0,
        vendor_error: 0,
        bytes: 0,
        immediate: 0,
        queue_pair: 0,
        source: 0,
        flags: 0,
        pkey_index: 0,
        source_lid: 0,
        service_level: 0,
        destination_path_bits: 0,
    };
}

/// The subject of an asynchronous event: a pointer or a port, depending on the event's kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventElement {
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub srq: *mut Srq,
    pub port: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsyncEvent {
    pub element: EventElement,
    pub kind: Number,
}
