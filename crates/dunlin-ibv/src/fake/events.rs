//! Asynchronous events.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use crate::sys::constants::EVENT_QP_LAST_RECEIVE;
use crate::sys::types::*;

/// Events that were raised and not fetched; the thread that fetches them is not the test's.
static RAISED: Mutex<Vec<(usize, usize, Number)>> = Mutex::new(Vec::new());

/// Queue pairs reported to hold no RECEIVE any more, by the same thread.
static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Raises an asynchronous event of a port.
pub(crate) fn raise(context: *mut Context, port: c_int, kind: Number) {
    raise_of(context, port as usize, kind);
}

pub(super) fn raise_of(context: *mut Context, element: usize, kind: Number) {
    let mut raised = RAISED.lock().expect("not poisoned");
    raised.push((context as usize, element, kind));
    // SAFETY: the context is open, and so is its descriptor.
    let bell = unsafe { BorrowedFd::borrow_raw((*context).async_descriptor) };
    rustix::io::write(bell, &1u64.to_ne_bytes()).expect("rung");
}

/// Whether a queue pair was reported to hold no RECEIVE any more.
pub(super) fn has_ended(qp: usize) -> bool {
    ENDED.lock().expect("not poisoned").contains(&qp)
}

pub(super) unsafe extern "C" fn get_async_event(
    context: *mut Context,
    event: *mut AsyncEvent,
) -> c_int {
    let mut raised = RAISED.lock().expect("not poisoned");
    let Some(at) = raised.iter().position(|one| one.0 == context as usize) else {
        // SAFETY: the context is open; the bell is reset here.
        let bell = unsafe { BorrowedFd::borrow_raw((*context).async_descriptor) };
        let _ = rustix::io::read(bell, &mut [0; 8]);
        return -1;
    };
    let (_, element, kind) = raised.remove(at);
    // SAFETY: the caller's place.
    let event = unsafe { &mut *event };
    event.kind = kind;
    match kind {
        EVENT_QP_LAST_RECEIVE => {
            ENDED.lock().expect("not poisoned").push(element);
            event.element.qp = element as *mut Qp;
        }
        _ => event.element.port = element as c_int,
    }
    0
}

pub(super) unsafe extern "C" fn ack_async_event(_: *mut AsyncEvent) {}
