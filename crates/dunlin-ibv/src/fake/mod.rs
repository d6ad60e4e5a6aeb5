//! A fake library: functions of our own in the table of [`Api`], for tests that soft-RoCE does not allow.
//!
//! It has one device, `fake0`, with one port, whose behaviour [`script::Script`] determines. Objects are heap blocks
//! that the functions allocate and free, so that a leak or a double free is detected by the allocator or by [`live`].

mod completions;
mod device;
mod events;
mod post;
mod queue_pair;
mod script;

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

use crate::sys::Api;

pub(crate) use completions::complete;
pub(crate) use events::raise;
pub(crate) use post::{calls, posted, receives};
pub(crate) use queue_pair::modified;
pub(crate) use script::script;

use completions::*;
use device::*;
use events::*;
use queue_pair::*;

/// The table.
pub(crate) fn api() -> Api {
    Api {
        query_data_in_order: Some(query_data_in_order),
        qp_to_qp_ex: Some(qp_to_qp_ex),
        get_device_list,
        free_device_list,
        get_device_name,
        open_device,
        close_device,
        query_device,
        query_port,
        query_gid,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        dereg_mr,
        create_channel,
        destroy_channel,
        create_cq,
        destroy_cq,
        get_cq_event,
        ack_cq_events,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        create_srq,
        destroy_srq,
        create_ah,
        destroy_ah,
        get_async_event,
        ack_async_event,
    }
}

/// Marks objects that were made by extended calls.
const EXTENDED: u32 = 0xe;

thread_local! {
    static LIVE: RefCell<i64> = const { RefCell::new(0) };
}

/// Number of objects that were created and not destroyed, on this thread.
pub(crate) fn live() -> i64 {
    LIVE.with_borrow(|live| *live)
}

pub(super) fn fail<T>(errno: i32) -> *mut T {
    extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: glibc's and musl's place of this thread's errno.
    unsafe { *__errno_location() = errno };
    null_mut()
}

pub(super) fn make<T>(fill: impl FnOnce(&mut T)) -> *mut T {
    // SAFETY: all these structures are numbers, pointers and options of function pointers, for which zero is a valid
    // value.
    let mut value: Box<T> = Box::new(unsafe { std::mem::zeroed() });
    fill(&mut value);
    LIVE.with_borrow_mut(|live| *live += 1);
    Box::into_raw(value)
}

pub(super) fn free<T>(value: *mut T) -> c_int {
    LIVE.with_borrow_mut(|live| *live -= 1);
    // SAFETY: made by `make`, freed once.
    drop(unsafe { Box::from_raw(value) });
    0
}

fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd")
}
