//! The device's limits: the library's attributes, and those that only a trial reveals.

use dunlin_verbs::{DeviceAttributes, Placement, Transport, TransportSet, Verbs, VerbsError};

use crate::clock::Clock;
use crate::completion_queue::create_extended;
use crate::config::IbvConfig;
use crate::context::{Core, Shared};
use crate::error::{last, returned};
use crate::gid::GidKind;
use crate::port::PortReport;
use crate::queue_pair::create;
use crate::sys::constants as c;
use crate::sys::types::{self, QpCapacity};
use crate::sys::Api;
use crate::work_table::MAX_ENTRIES;

/// Inline sizes to try, largest first. Providers have no attribute for it, and differ by generation.
const INLINE_BYTES: [u32; 10] = [1024, 908, 512, 400, 256, 220, 188, 128, 64, 0];

/// Maximum number of READs and atomics in flight: more does not fill the pipe any better, and costs the answering NIC
/// memory.
const MOST_READS: i32 = 16;

/// Queries the library.
pub(crate) fn query(
    api: &Api,
    context: Shared<types::Context>,
    nic: &str,
) -> Result<types::DeviceAttributes, VerbsError> {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut device: types::DeviceAttributes = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, and there is space for the answer.
    let errno = unsafe { (api.query_device)(context.0, &mut device) };
    if errno != 0 {
        return Err(returned("ibv_query_device", errno, nic.to_owned()));
    }
    Ok(device)
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

pub(crate) fn reads(number: i32) -> u8 {
    number.clamp(1, MOST_READS) as u8
}

/// The attributes before the trials: without inline bytes, and with all transports.
pub(crate) fn attributes(
    config: &IbvConfig,
    nic: &str,
    device: &types::DeviceAttributes,
    port: &PortReport,
) -> DeviceAttributes {
    let shared = if device.max_srq > 0 {
        Verbs::SHARED_RECEIVE
    } else {
        Verbs::empty()
    };
    let connected = Verbs::SEND | Verbs::WRITE | Verbs::WRITE_WITH_IMMEDIATE;
    let atomic = if device.atomics == c::ATOMICS_NONE {
        Verbs::empty()
    } else {
        Verbs::ATOMIC
    };
    let requests = size(device.max_qp_wr).min(MAX_ENTRIES);
    DeviceAttributes {
        name: (config.name.clone()).unwrap_or_else(|| format!("ibv:{nic}")),
        transports: TransportSet {
            rc: connected | Verbs::READ | atomic | shared,
            // Hardware has no shared receive queues on UC.
            uc: connected,
            ud: Verbs::SEND | shared,
        },
        placement: Placement::Unordered,
        writes_are_messages: true,
        messages_per_second: known_rate(device.vendor_id, device.vendor_part),
        lossless: !port.ethernet,
        packets_by_software: false,
        max_queue_pairs: size(device.max_qp),
        max_send_requests: requests,
        max_receive_requests: requests,
        max_segments: size(device.max_sge),
        max_inline_bytes: 0,
        max_completions: size(device.max_cqe),
        max_regions: size(device.max_mr),
        max_registered_bytes: config
            .max_registered_bytes
            .min(usize::try_from(device.max_mr_size).unwrap_or(usize::MAX)),
        max_message_bytes: port.max_message_bytes.min(u32::MAX as usize),
        mtu_bytes: port.mtu_bytes,
        max_shared_receive_requests: if device.max_srq > 0 {
            size(device.max_srq_wr).min(MAX_ENTRIES)
        } else {
            0
        },
        timestamps: false,
        page_kind: dunlin_verbs::best_pages(config.huge_pages),
        raw_memory_remote: true,
        grants_are_mappings: false,
        // Old kernels do not say of which version a GID is, and have no other then.
        speaks_roce: port.ethernet && port.gid.kind != GidKind::V1,
    }
}

/// Vendor of the cards in [`RATES`].
const MELLANOX: u32 = 0x02c9;

/// Small messages per second, sent and received together, by part number. Libraries do not report it; these are
/// published measurements of WRITEs on one port (rdma_bench for Connect-IB, ScaleRPC Fig. 1 for ConnectX-3), or the
/// vendor's figures. None was measured by us.
const RATES: [(&[u32], u64); 5] = [
    // ConnectX-3 and its Pro.
    (&[0x1003, 0x1007], 25_000_000),
    // Connect-IB, ConnectX-4.
    (&[0x1011, 0x1013], 105_000_000),
    // ConnectX-4 Lx.
    (&[0x1015], 75_000_000),
    // ConnectX-5 and its Ex.
    (&[0x1017, 0x1019], 90_000_000),
    // ConnectX-6, its Dx, and later ones.
    (&[0x101b, 0x101d, 0x101f, 0x1021, 0x1023], 120_000_000),
];

fn known_rate(vendor: u32, part: u32) -> Option<u64> {
    let known = RATES.iter().find(|(parts, _)| parts.contains(&part));
    known.filter(|_| vendor == MELLANOX).map(|&(_, rate)| rate)
}

/// The results of the trials.
pub(crate) struct Tried {
    /// Number of inline bytes that RC accepts; zero for none.
    pub(crate) inline_bytes: usize,
    /// Transports that are not supported.
    pub(crate) absent: Vec<Transport>,
    /// Whether the provider promises that WRITEs are placed in order.
    pub(crate) in_order: bool,
    /// Whether RC queue pairs support posting by extended calls.
    pub(crate) posts_by_calls: bool,
    /// The clock of timestamps, if a queue with them can be created.
    pub(crate) clock: Option<Clock>,
}

/// Creates queue pairs of each transport, trying the largest inline size first.
pub(crate) fn try_out(core: &Core) -> Result<Tried, VerbsError> {
    let api = &core.api;
    // SAFETY: the context is open.
    let domain = unsafe { (api.alloc_pd)(core.context.0) };
    if domain.is_null() {
        return Err(last(
            "ibv_alloc_pd",
            format!("a protection domain on {}", core.nic),
        ));
    }
    let null = std::ptr::null_mut();
    // SAFETY: the context is open; no channel.
    let queue = unsafe { (api.create_cq)(core.context.0, 1, null, std::ptr::null_mut(), 0) };
    let result = if queue.is_null() {
        Err(last(
            "ibv_create_cq",
            format!("a completion queue on {}", core.nic),
        ))
    } else {
        Ok(with_queue(core, domain, queue))
    };
    if !queue.is_null() {
        // SAFETY: made above, and its queue pairs are gone.
        unsafe { (api.destroy_cq)(queue) };
    }
    // SAFETY: made above, and nothing of it is left.
    unsafe { (api.dealloc_pd)(domain) };
    result
}

/// The clock of completion timestamps, as reported by the device, if a queue with timestamps can be created.
fn clock(core: &Core) -> Option<Clock> {
    let extended = core.extended?;
    // SAFETY: the context is open, and is the one of `extended`.
    let (mask, khz) = unsafe { extended.clock(core.context.0) };
    let clock = Clock::new(mask, khz)?;
    let queue = create_extended(core, 1, std::ptr::null_mut(), true)?;
    // SAFETY: just made, and its first fields are those of a plain queue.
    unsafe { (core.api.destroy_cq)(queue.cast()) };
    Some(clock)
}

fn with_queue(core: &Core, domain: *mut types::Pd, queue: *mut types::Cq) -> Tried {
    let mut tried = Tried {
        inline_bytes: 0,
        absent: Vec::new(),
        in_order: false,
        posts_by_calls: false,
        clock: None,
    };
    tried.clock = clock(core);
    let mut inline_bytes = u32::MAX;
    for transport in [
        Transport::ReliableConnection,
        Transport::UnreliableConnection,
        Transport::UnreliableDatagram,
    ] {
        let mut found = None;
        for inline_data in INLINE_BYTES
            .into_iter()
            .filter(|&bytes| bytes <= inline_bytes)
        {
            let capacity = QpCapacity {
                send_wr: 1,
                receive_wr: 1,
                send_sge: 1,
                receive_sge: 1,
                inline_data,
            };
            let queues = (queue, queue, std::ptr::null_mut());
            let (pair, calls) = create(core, domain, transport, queues, capacity);
            if pair.is_null() {
                continue;
            }
            if transport == Transport::ReliableConnection {
                tried.posts_by_calls = calls.is_some();
                // SAFETY: the queue pair is alive.
                tried.in_order = core
                    .api
                    .query_data_in_order
                    .is_some_and(|query| unsafe { query(pair, c::WR_WRITE, 0) } == 1);
            }
            // SAFETY: just made.
            unsafe { (core.api.destroy_qp)(pair) };
            found = Some(inline_data);
            break;
        }
        match found {
            Some(bytes) => inline_bytes = bytes,
            None => tried.absent.push(transport),
        }
    }
    if tried.absent.len() < 3 {
        tried.inline_bytes = inline_bytes as usize;
    }
    tried
}
