//! Posting, by lists and by extended calls.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use super::script::scripted;
use crate::sys::extended::*;
use crate::sys::types::*;

thread_local! {
    static POSTED: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
    static RECEIVES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Ids and flags of the sends that were accepted.
pub(crate) fn posted() -> Vec<(u64, u32)> {
    POSTED.with_borrow(Clone::clone)
}

/// Ids of the shared RECEIVEs since the last call.
pub(crate) fn receives() -> Vec<u64> {
    RECEIVES.take()
}

/// Names and arguments of the extended calls so far.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

pub(super) unsafe extern "C" fn post_send(
    _: *mut Qp,
    mut wr: *mut SendWr,
    bad: *mut *mut SendWr,
) -> c_int {
    let mut taken = 0;
    while !wr.is_null() {
        if taken == scripted(|s| s.takes) {
            // SAFETY: the caller's place.
            unsafe { *bad = wr };
            return 12;
        }
        // SAFETY: the caller's list.
        let request = unsafe { &*wr };
        POSTED.with_borrow_mut(|posted| posted.push((request.id, request.flags)));
        taken += 1;
        wr = request.next;
    }
    0
}

pub(super) unsafe extern "C" fn post_receive(
    _: *mut Qp,
    _: *mut ReceiveWr,
    _: *mut *mut ReceiveWr,
) -> c_int {
    0
}

pub(super) unsafe extern "C" fn post_shared_receive(
    _: *mut Srq,
    mut wr: *mut ReceiveWr,
    _: *mut *mut ReceiveWr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: the caller's list.
        let request = unsafe { &*wr };
        RECEIVES.with_borrow_mut(|receives| receives.push(request.id));
        wr = request.next;
    }
    0
}

fn called(pair: *mut QpEx, what: String) {
    // SAFETY: alive, and between `start` and `complete`.
    let (id, flags) = unsafe { ((*pair).id, (*pair).flags) };
    POSTED.with_borrow_mut(|posted| posted.push((id, flags)));
    CALLS.with_borrow_mut(|calls| calls.push(what));
}

fn noted(what: String) {
    CALLS.with_borrow_mut(|calls| calls.push(what));
}

pub(super) unsafe extern "C" fn wr_compare_and_swap(
    p: *mut QpEx,
    key: u32,
    to: u64,
    old: u64,
    new: u64,
) {
    called(p, format!("compare_and_swap {key} {to} {old} {new}"));
}

pub(super) unsafe extern "C" fn wr_fetch_and_add(p: *mut QpEx, key: u32, to: u64, add: u64) {
    called(p, format!("fetch_and_add {key} {to} {add}"));
}

pub(super) unsafe extern "C" fn wr_read(p: *mut QpEx, key: u32, from: u64) {
    called(p, format!("read {key} {from}"));
}

pub(super) unsafe extern "C" fn wr_write(p: *mut QpEx, key: u32, to: u64) {
    called(p, format!("write {key} {to}"));
}

pub(super) unsafe extern "C" fn wr_write_with_immediate(
    p: *mut QpEx,
    key: u32,
    to: u64,
    immediate: u32,
) {
    let immediate = u32::from_be(immediate);
    called(p, format!("write_with_immediate {key} {to} {immediate}"));
}

pub(super) unsafe extern "C" fn wr_send(p: *mut QpEx) {
    called(p, "send".into());
}

pub(super) unsafe extern "C" fn wr_send_with_immediate(p: *mut QpEx, immediate: u32) {
    let immediate = u32::from_be(immediate);
    called(p, format!("send_with_immediate {immediate}"));
}

pub(super) unsafe extern "C" fn wr_set_datagram(_: *mut QpEx, _: *mut Ah, pair: u32, key: u32) {
    noted(format!("to {pair} {key}"));
}

pub(super) unsafe extern "C" fn wr_set_inline(_: *mut QpEx, _: *mut c_void, length: usize) {
    noted(format!("inline {length}"));
}

pub(super) unsafe extern "C" fn wr_set_sges(_: *mut QpEx, count: usize, sges: *const Sge) {
    let bytes: u32 = (0..count)
        // SAFETY: the caller's array.
        .map(|at| unsafe { (*sges.add(at)).length })
        .sum();
    noted(format!("segments {count} {bytes}"));
}

pub(super) unsafe extern "C" fn wr_start(_: *mut QpEx) {
    noted("start".into());
}

pub(super) unsafe extern "C" fn wr_complete(_: *mut QpEx) -> c_int {
    noted("complete".into());
    scripted(|s| s.refuses)
}

pub(super) unsafe extern "C" fn wr_abort(_: *mut QpEx) {
    noted("abort".into());
}
