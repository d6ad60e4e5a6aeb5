//! Queue pairs, shared receive queues and address handles.

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr::null_mut;

use super::completions::{clean, end_half};
use super::post::*;
use super::script::scripted;
use super::{fail, free, make, EXTENDED};
use crate::sys::constants::{QPS_ERR, QPS_RESET};
use crate::sys::extended::*;
use crate::sys::types::*;

thread_local! {
    static MADE: RefCell<usize> = const { RefCell::new(0) };
    static MODIFIED: RefCell<Option<QpAttributes>> = const { RefCell::new(None) };
}

/// The attributes last set on a queue pair.
pub(crate) fn modified() -> QpAttributes {
    MODIFIED.take().expect("one was modified")
}

/// Whether one more queue pair can be created, and its number.
fn another(inline_bytes: u32) -> Result<u32, i32> {
    if inline_bytes > scripted(|s| s.inline_bytes) {
        return Err(22);
    }
    let made = MADE.with_borrow_mut(|made| {
        *made += 1;
        *made
    });
    match scripted(|s| s.queue_pairs) {
        Some((most, errno)) if made > most => Err(errno),
        _ => Ok(made as u32),
    }
}

pub(super) unsafe extern "C" fn create_qp(_: *mut Pd, init: *mut QpInit) -> *mut Qp {
    // SAFETY: the caller's place.
    let init = unsafe { &*init };
    match another(init.capacity.inline_data) {
        Err(errno) => fail(errno),
        Ok(number) => make::<Qp>(|qp| (qp.number, qp.kind) = (number, init.kind)),
    }
}

pub(super) unsafe extern "C" fn create_qp_ex(_: *mut Context, init: *mut QpInitEx) -> *mut Qp {
    // SAFETY: the caller's place.
    let init = unsafe { &*init };
    let number = match another(init.capacity.inline_data) {
        Err(errno) => return fail(errno),
        Ok(number) => number,
    };
    make::<QpEx>(|pair| {
        (pair.qp.number, pair.qp.kind, pair.qp.handle) = (number, init.kind, EXTENDED);
        pair.compare_and_swap = Some(wr_compare_and_swap);
        pair.fetch_and_add = Some(wr_fetch_and_add);
        pair.read = Some(wr_read);
        pair.write = Some(wr_write);
        pair.write_with_immediate = Some(wr_write_with_immediate);
        pair.send = Some(wr_send);
        pair.send_with_immediate = Some(wr_send_with_immediate);
        pair.set_datagram = Some(wr_set_datagram);
        pair.set_inline = Some(wr_set_inline);
        pair.set_sges = Some(wr_set_sges);
        pair.start = Some(wr_start);
        pair.complete = Some(wr_complete);
        pair.abort = Some(wr_abort);
    })
    .cast()
}

pub(super) unsafe extern "C" fn qp_to_qp_ex(qp: *mut Qp) -> *mut QpEx {
    // SAFETY: alive.
    match unsafe { (*qp).handle } {
        EXTENDED => qp.cast(),
        _ => null_mut(),
    }
}

pub(super) unsafe extern "C" fn modify_qp(
    qp: *mut Qp,
    attributes: *mut QpAttributes,
    _: c_int,
) -> c_int {
    let errno = scripted(|s| s.modify);
    if errno == 0 {
        // SAFETY: both are the caller's and alive.
        if unsafe { (*attributes).state } == QPS_RESET {
            // SAFETY: as above.
            clean(unsafe { (*qp).number });
        }
        // SAFETY: as above.
        if unsafe { (*attributes).state } == QPS_ERR {
            end_half(qp);
        }
        // SAFETY: both are the caller's and alive.
        unsafe {
            (*qp).state = (*attributes).state;
            MODIFIED.set(Some(*attributes));
        }
    }
    errno
}

pub(super) unsafe extern "C" fn query_qp(
    qp: *mut Qp,
    attributes: *mut QpAttributes,
    _: c_int,
    _: *mut QpInit,
) -> c_int {
    // SAFETY: both are the caller's and alive.
    unsafe { (*attributes).state = (*qp).state };
    0
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: alive until now.
    clean(unsafe { (*qp).number });
    // SAFETY: alive until now.
    match unsafe { (*qp).handle } {
        EXTENDED => free(qp.cast::<QpEx>()),
        _ => free(qp),
    }
}

pub(super) unsafe extern "C" fn query_data_in_order(_: *mut Qp, _: u32, _: u32) -> c_int {
    scripted(|s| s.data_in_order)
}

pub(super) unsafe extern "C" fn create_srq(_: *mut Pd, _: *mut SrqInit) -> *mut Srq {
    match scripted(|s| s.shared) {
        0 => fail(95),
        _ => make::<Srq>(|_| {}),
    }
}

pub(super) unsafe extern "C" fn destroy_srq(srq: *mut Srq) -> c_int {
    free(srq)
}

pub(super) unsafe extern "C" fn create_ah(_: *mut Pd, _: *mut AhAttributes) -> *mut Ah {
    match scripted(|s| s.handles) {
        true => make::<Ah>(|_| {}),
        false => fail(113),
    }
}

pub(super) unsafe extern "C" fn destroy_ah(ah: *mut Ah) -> c_int {
    free(ah)
}
