//! The device, its context, protection domains and memory.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;

use super::completions::{create_cq_ex, poll_cq, request_notify};
use super::post::{post_receive, post_send, post_shared_receive};
use super::queue_pair::create_qp_ex;
use super::script::scripted;
use super::{eventfd, fail, free, make};
use crate::sys::extended::*;
use crate::sys::types::*;

thread_local! {
    static CONTEXT: RefCell<*mut Context> = const { RefCell::new(null_mut()) };
}

/// The context that was opened last.
pub(super) fn current() -> *mut Context {
    CONTEXT.with_borrow(|context| *context)
}

pub(super) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut Device {
    let devices = scripted(|s| s.devices);
    // SAFETY: the caller's place for the count.
    unsafe { *count = devices as c_int };
    make::<[*mut Device; 2]>(|list| {
        for place in &mut list[..devices] {
            *place = make::<Device>(|device| {
                for (to, from) in device.name.iter_mut().zip(b"fake0\0") {
                    *to = *from as c_char;
                }
            });
        }
    })
    .cast()
}

pub(super) unsafe extern "C" fn free_device_list(list: *mut *mut Device) {
    let list = list.cast::<[*mut Device; 2]>();
    // SAFETY: made by `get_device_list`.
    for device in unsafe { *list } {
        if !device.is_null() {
            free(device);
        }
    }
    free(list);
}

pub(super) unsafe extern "C" fn get_device_name(device: *mut Device) -> *const c_char {
    // SAFETY: of the list.
    unsafe { (*device).name.as_ptr() }
}

pub(super) unsafe extern "C" fn open_device(_: *mut Device) -> *mut Context {
    if let Some(errno) = scripted(|s| s.open) {
        return fail(errno);
    }
    let silent = eventfd();
    let fill = |context: &mut Context| {
        context.operations.poll_cq = Some(poll_cq);
        context.operations.request_notify = Some(request_notify);
        context.operations.post_send = Some(post_send);
        context.operations.post_receive = Some(post_receive);
        context.operations.post_shared_receive = Some(post_shared_receive);
        context.async_descriptor = silent.into_raw_fd();
        context.completion_vectors = 1;
    };
    if !scripted(|s| s.extended) {
        let whole = make::<WholeContext>(|context| fill(&mut context.known));
        CONTEXT.set(whole.cast());
        return whole.cast();
    }
    let table = make::<Table>(|table| {
        table.create_cq_ex = Some(create_cq_ex);
        table.create_qp_ex = Some(create_qp_ex);
        table.query_device = Some(query_device_ex);
        table.size = size_of::<Table>();
        table.context.mark = usize::MAX as *mut c_void;
        fill(&mut table.context.known);
    });
    // SAFETY: just made.
    let context = unsafe { std::ptr::addr_of_mut!((*table).context).cast() };
    CONTEXT.set(context);
    context
}

pub(super) unsafe extern "C" fn close_device(context: *mut Context) -> c_int {
    // SAFETY: made by `open_device`, and so is its descriptor.
    let (mark, bell) = unsafe {
        let whole = &*context.cast::<WholeContext>();
        (
            whole.mark,
            OwnedFd::from_raw_fd(whole.known.async_descriptor),
        )
    };
    drop(bell);
    if mark.is_null() {
        return free(context.cast::<WholeContext>());
    }
    let table = context
        .cast::<u8>()
        .wrapping_sub(offset_of!(Table, context));
    free(table.cast::<Table>())
}

pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    _: *const c_void,
    device: *mut ExtendedDeviceAttributes,
    _: usize,
) -> c_int {
    // SAFETY: the caller's place.
    let device = unsafe { &mut *device };
    (device.timestamp_mask, device.clock_khz) = scripted(|s| s.clock);
    // SAFETY: as the caller's.
    unsafe { query_device(context, &mut device.plain) }
}

pub(super) unsafe extern "C" fn query_device(
    _: *mut Context,
    device: *mut DeviceAttributes,
) -> c_int {
    // SAFETY: the caller's place.
    let device = unsafe { &mut *device };
    device.max_mr_size = u64::MAX;
    device.vendor_id = 0x02c9;
    (device.max_qp, device.max_qp_wr, device.max_sge) = (1000, 1000, 30);
    (device.max_cqe, device.max_mr, device.atomics) = (1000, 1000, 1);
    (device.max_qp_reads, device.max_qp_initiated_reads) = (16, 16);
    device.ports = 1;
    (device.max_srq, device.max_srq_wr) = (1, scripted(|s| s.shared));
    0
}

pub(super) unsafe extern "C" fn query_port(
    _: *mut Context,
    _: u8,
    port: *mut PortAttributes,
) -> c_int {
    // SAFETY: the caller's place.
    let port = unsafe { &mut *port };
    port.state = scripted(|s| s.port_state);
    (port.max_mtu, port.active_mtu) = (5, 3);
    port.gids = 4;
    port.max_message = 1 << 30;
    port.link_layer = 2;
    0
}

pub(super) unsafe extern "C" fn query_gid(
    _: *mut Context,
    _: u8,
    index: c_int,
    gid: *mut Gid,
) -> c_int {
    let entry = scripted(|s| s.gids.get(index as usize).copied());
    // SAFETY: the caller's place.
    unsafe { *gid = Gid(entry.unwrap_or_default()) };
    0
}

pub(super) unsafe extern "C" fn alloc_pd(_: *mut Context) -> *mut Pd {
    make::<Pd>(|_| {})
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    free(pd)
}

pub(super) unsafe extern "C" fn reg_mr(_: *mut Pd, _: *mut c_void, _: usize, _: c_int) -> *mut Mr {
    match scripted(|s| s.register) {
        Some(errno) => fail(errno),
        None => make::<Mr>(|mr| (mr.lkey, mr.rkey) = (7, 9)),
    }
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut Mr) -> c_int {
    free(mr)
}
