//! Completion channels and queues, and the completions that a test or a queue pair that ends puts into them.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use super::script::{script, scripted};
use super::{device, eventfd, events, fail, free, make, EXTENDED};
use crate::sys::constants::EVENT_QP_LAST_RECEIVE;
use crate::sys::extended::*;
use crate::sys::types::*;

thread_local! {
    static WAITING: RefCell<Vec<Wc>> = const { RefCell::new(Vec::new()) };
    /// Of queue pairs that have begun to fill a RECEIVE.
    static HALVES: RefCell<Vec<(usize, Wc)>> = const { RefCell::new(Vec::new()) };
    /// The completion that the extended calls read.
    static CURRENT: RefCell<Wc> = const { RefCell::new(Wc::EMPTY) };
}

/// Adds a completion for the next poll.
pub(crate) fn complete(wc: Wc) {
    WAITING.with_borrow_mut(|waiting| waiting.push(wc));
}

/// Lets a queue pair that is moved to error have begun to fill a RECEIVE, if the script says so.
pub(super) fn end_half(qp: *mut Qp) {
    let mut half = None;
    script(|s| half = s.half.take());
    if let Some(wc) = half {
        HALVES.with_borrow_mut(|halves| halves.push((qp as usize, wc)));
        events::raise_of(device::current(), qp as usize, EVENT_QP_LAST_RECEIVE);
    }
}

/// Completes the RECEIVEs of queue pairs that were reported.
pub(super) fn complete_halves() {
    let come = HALVES.with_borrow_mut(|halves| {
        let come = halves.extract_if(.., |(qp, _)| events::has_ended(*qp));
        come.collect::<Vec<_>>()
    });
    come.into_iter().for_each(|(_, wc)| complete(wc));
}

/// Discards the completions of a queue pair, if the script says so.
pub(super) fn clean(number: u32) {
    HALVES.with_borrow_mut(|halves| halves.retain(|(_, wc)| wc.queue_pair != number));
    if scripted(|s| s.cleans) {
        WAITING.with_borrow_mut(|waiting| waiting.retain(|wc| wc.queue_pair != number));
    }
}

pub(super) unsafe extern "C" fn create_channel(_: *mut Context) -> *mut CompletionChannel {
    if !scripted(|s| s.channels) {
        return fail(24);
    }
    let silent = eventfd();
    make::<CompletionChannel>(|channel| channel.descriptor = silent.into_raw_fd())
}

pub(super) unsafe extern "C" fn destroy_channel(channel: *mut CompletionChannel) -> c_int {
    // SAFETY: made by `create_channel`, and so is its descriptor.
    drop(unsafe { OwnedFd::from_raw_fd((*channel).descriptor) });
    free(channel)
}

pub(super) unsafe extern "C" fn get_cq_event(
    _: *mut CompletionChannel,
    _: *mut *mut Cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}

pub(super) unsafe extern "C" fn ack_cq_events(_: *mut Cq, _: u32) {}

pub(super) unsafe extern "C" fn create_cq(
    _: *mut Context,
    entries: c_int,
    _: *mut c_void,
    _: *mut CompletionChannel,
    _: c_int,
) -> *mut Cq {
    make::<Cq>(|cq| cq.entries = entries)
}

pub(super) unsafe extern "C" fn create_cq_ex(_: *mut Context, init: *mut CqInit) -> *mut CqEx {
    // SAFETY: the caller's place.
    let init = unsafe { &*init };
    let stamped = init.fields & WC_TIMESTAMP != 0;
    if stamped && scripted(|s| s.clock.0 == 0) {
        return fail(95);
    }
    make::<CqEx>(|queue| {
        (queue.cq.entries, queue.cq.handle) = (init.entries as c_int, EXTENDED);
        queue.start_poll = Some(start_poll);
        queue.next_poll = Some(next_poll);
        queue.end_poll = Some(end_poll);
        queue.read_opcode = Some(read_opcode);
        queue.read_vendor_error = Some(read_zero);
        queue.read_bytes = Some(read_bytes);
        queue.read_immediate = Some(read_zero);
        queue.read_queue_pair = Some(read_queue_pair);
        queue.read_source = Some(read_zero);
        queue.read_flags = Some(read_zero);
        queue.read_timestamp = stamped.then_some(read_timestamp);
    })
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    // SAFETY: alive until now.
    match unsafe { (*cq).handle } {
        EXTENDED => free(cq.cast::<CqEx>()),
        _ => free(cq),
    }
}

pub(super) unsafe extern "C" fn poll_cq(_: *mut Cq, most: c_int, to: *mut Wc) -> c_int {
    complete_halves();
    WAITING.with_borrow_mut(|waiting| {
        let count = waiting.len().min(most as usize);
        for (at, wc) in waiting.drain(..count).enumerate() {
            // SAFETY: the caller has space for `most`.
            unsafe { *to.add(at) = wc };
        }
        count as c_int
    })
}

pub(super) unsafe extern "C" fn request_notify(_: *mut Cq, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn start_poll(queue: *mut CqEx, _: *mut PollAttributes) -> c_int {
    // SAFETY: as the caller's.
    unsafe { next_poll(queue) }
}

unsafe extern "C" fn next_poll(queue: *mut CqEx) -> c_int {
    complete_halves();
    let next = WAITING.with_borrow_mut(|waiting| (!waiting.is_empty()).then(|| waiting.remove(0)));
    let Some(wc) = next else { return 2 };
    // SAFETY: the queue is alive.
    unsafe { ((*queue).id, (*queue).status) = (wc.id, wc.status) };
    CURRENT.set(wc);
    0
}

unsafe extern "C" fn end_poll(_: *mut CqEx) {}

unsafe extern "C" fn read_zero(_: *mut CqEx) -> u32 {
    0
}

unsafe extern "C" fn read_opcode(_: *mut CqEx) -> u32 {
    CURRENT.with_borrow(|wc| wc.opcode)
}

unsafe extern "C" fn read_bytes(_: *mut CqEx) -> u32 {
    CURRENT.with_borrow(|wc| wc.bytes)
}

unsafe extern "C" fn read_queue_pair(_: *mut CqEx) -> u32 {
    CURRENT.with_borrow(|wc| wc.queue_pair)
}

unsafe extern "C" fn read_timestamp(_: *mut CqEx) -> u64 {
    scripted(|s| s.ticks)
}
