//! A fake library: functions of our own in the table of [`Api`], for tests that soft-RoCE does not allow.
//!
//! It has one device, `fake0`, with one port, whose behaviour [`Script`] determines. Objects are heap blocks that the
//! functions allocate and free, so that a leak or a double free is detected by the allocator or by [`live`].

#![allow(unreachable_pub)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::sys::constants::{EVENT_QP_LAST_RECEIVE, QPS_ERR, QPS_RESET};
use crate::sys::extended::*;
use crate::sys::types::*;
use crate::sys::Api;

/// The behaviour of the fake; separate for each test's thread.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) devices: usize,
    pub(crate) port_state: u32,
    pub(crate) gids: Vec<[u8; 16]>,
    /// errno of `ibv_open_device`, of `ibv_reg_mr`, of `ibv_create_qp` after the given number of successes.
    pub(crate) open: Option<i32>,
    pub(crate) register: Option<i32>,
    pub(crate) queue_pairs: Option<(usize, i32)>,
    pub(crate) modify: i32,
    /// Maximum number of inline bytes that are accepted.
    pub(crate) inline_bytes: u32,
    /// Number of requests that `post_send` accepts from a list; the rest is refused with ENOMEM.
    pub(crate) takes: usize,
    pub(crate) data_in_order: c_int,
    /// Whether the provider has the extended table, and its clock: mask and kHz.
    pub(crate) extended: bool,
    pub(crate) clock: (u64, u64),
    /// errno of `wr_complete`.
    pub(crate) refuses: i32,
    /// Ticks at the next completion.
    pub(crate) ticks: u64,
    /// Whether completion channels and address handles are supported.
    pub(crate) channels: bool,
    pub(crate) handles: bool,
    /// Maximum number of entries of a shared receive queue.
    pub(crate) shared: i32,
    /// Whether completions of a queue pair disappear when it is destroyed or reset, as with mlx5.
    pub(crate) cleans: bool,
    /// The completion of a RECEIVE that its queue pair has begun to fill: it arrives when the device has reported, some
    /// time after the queue pair was moved to error, that it holds none any more.
    pub(crate) half: Option<Wc>,
}

impl Default for Script {
    fn default() -> Self {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        Self {
            devices: 1,
            port_state: 4,
            gids: vec![gid],
            open: None,
            register: None,
            queue_pairs: None,
            modify: 0,
            inline_bytes: 220,
            takes: usize::MAX,
            data_in_order: 0,
            extended: false,
            clock: (0, 0),
            refuses: 0,
            ticks: 0,
            channels: false,
            handles: false,
            shared: 0,
            cleans: false,
            half: None,
        }
    }
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::new(Script::default());
    static LIVE: RefCell<i64> = const { RefCell::new(0) };
    static MADE: RefCell<usize> = const { RefCell::new(0) };
    static POSTED: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
    static RECEIVES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static WAITING: RefCell<Vec<Wc>> = const { RefCell::new(Vec::new()) };
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static HALVES: RefCell<Vec<(usize, Wc)>> = const { RefCell::new(Vec::new()) };
    static CONTEXT: RefCell<*mut Context> = const { RefCell::new(null_mut()) };
    static MODIFIED: RefCell<Option<QpAttributes>> = const { RefCell::new(None) };
}

/// Events that were raised and not fetched; the thread that fetches them is not the test's.
static RAISED: Mutex<Vec<(usize, usize, Number)>> = Mutex::new(Vec::new());

/// Queue pairs reported to hold no RECEIVE any more, by the same thread.
static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Raises an asynchronous event of a port.
pub(crate) fn raise(context: *mut Context, port: c_int, kind: Number) {
    raise_of(context, port as usize, kind);
}

fn raise_of(context: *mut Context, element: usize, kind: Number) {
    let mut raised = RAISED.lock().expect("not poisoned");
    raised.push((context as usize, element, kind));
    // SAFETY: the context is open, and so is its descriptor.
    let bell = unsafe { BorrowedFd::borrow_raw((*context).async_descriptor) };
    rustix::io::write(bell, &1u64.to_ne_bytes()).expect("rung");
}

/// Names and arguments of the extended calls so far.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

/// The attributes last set on a queue pair.
pub(crate) fn modified() -> QpAttributes {
    MODIFIED.take().expect("one was modified")
}

/// Marks objects that were made by extended calls.
const EXTENDED: u32 = 0xe;

/// Sets what the fake does on this thread.
pub(crate) fn script(change: impl FnOnce(&mut Script)) {
    SCRIPT.with_borrow_mut(change);
}

/// Number of objects that were created and not destroyed, on this thread.
pub(crate) fn live() -> i64 {
    LIVE.with_borrow(|live| *live)
}

/// Ids and flags of the sends that were accepted.
pub(crate) fn posted() -> Vec<(u64, u32)> {
    POSTED.with_borrow(Clone::clone)
}

/// Ids of the shared RECEIVEs since the last call.
pub(crate) fn receives() -> Vec<u64> {
    RECEIVES.take()
}

/// Adds a completion for the next poll.
pub(crate) fn complete(wc: Wc) {
    WAITING.with_borrow_mut(|waiting| waiting.push(wc));
}

fn scripted<T>(read: impl FnOnce(&Script) -> T) -> T {
    SCRIPT.with_borrow(read)
}

fn fail<T>(errno: i32) -> *mut T {
    extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: glibc's and musl's place of this thread's errno.
    unsafe { *__errno_location() = errno };
    null_mut()
}

fn make<T>(fill: impl FnOnce(&mut T)) -> *mut T {
    // SAFETY: all these structures are numbers, pointers and options of function pointers, for which zero is a valid
    // value.
    let mut value: Box<T> = Box::new(unsafe { std::mem::zeroed() });
    fill(&mut value);
    LIVE.with_borrow_mut(|live| *live += 1);
    Box::into_raw(value)
}

fn free<T>(value: *mut T) -> c_int {
    LIVE.with_borrow_mut(|live| *live -= 1);
    // SAFETY: made by `make`, freed once.
    drop(unsafe { Box::from_raw(value) });
    0
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut Device {
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

unsafe extern "C" fn free_device_list(list: *mut *mut Device) {
    let list = list.cast::<[*mut Device; 2]>();
    // SAFETY: made by `get_device_list`.
    for device in unsafe { *list } {
        if !device.is_null() {
            free(device);
        }
    }
    free(list);
}

unsafe extern "C" fn get_device_name(device: *mut Device) -> *const c_char {
    // SAFETY: of the list.
    unsafe { (*device).name.as_ptr() }
}

unsafe extern "C" fn open_device(_: *mut Device) -> *mut Context {
    if let Some(errno) = scripted(|s| s.open) {
        return fail(errno);
    }
    let silent: OwnedFd =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
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

unsafe extern "C" fn close_device(context: *mut Context) -> c_int {
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

unsafe extern "C" fn query_device_ex(
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

unsafe extern "C" fn query_device(_: *mut Context, device: *mut DeviceAttributes) -> c_int {
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

unsafe extern "C" fn query_port(_: *mut Context, _: u8, port: *mut PortAttributes) -> c_int {
    // SAFETY: the caller's place.
    let port = unsafe { &mut *port };
    port.state = scripted(|s| s.port_state);
    (port.max_mtu, port.active_mtu) = (5, 3);
    port.gids = 4;
    port.max_message = 1 << 30;
    port.link_layer = 2;
    0
}

unsafe extern "C" fn query_gid(_: *mut Context, _: u8, index: c_int, gid: *mut Gid) -> c_int {
    let entry = scripted(|s| s.gids.get(index as usize).copied());
    // SAFETY: the caller's place.
    unsafe { *gid = Gid(entry.unwrap_or_default()) };
    0
}

unsafe extern "C" fn alloc_pd(_: *mut Context) -> *mut Pd {
    make::<Pd>(|_| {})
}
unsafe extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    free(pd)
}
unsafe extern "C" fn reg_mr(_: *mut Pd, _: *mut c_void, _: usize, _: c_int) -> *mut Mr {
    match scripted(|s| s.register) {
        Some(errno) => fail(errno),
        None => make::<Mr>(|mr| (mr.lkey, mr.rkey) = (7, 9)),
    }
}
unsafe extern "C" fn dereg_mr(mr: *mut Mr) -> c_int {
    free(mr)
}
unsafe extern "C" fn create_channel(_: *mut Context) -> *mut CompletionChannel {
    if !scripted(|s| s.channels) {
        return fail(24);
    }
    let silent: OwnedFd =
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("an eventfd");
    make::<CompletionChannel>(|channel| channel.descriptor = silent.into_raw_fd())
}
unsafe extern "C" fn destroy_channel(channel: *mut CompletionChannel) -> c_int {
    // SAFETY: made by `create_channel`, and so is its descriptor.
    drop(unsafe { OwnedFd::from_raw_fd((*channel).descriptor) });
    free(channel)
}
unsafe extern "C" fn create_cq(
    _: *mut Context,
    entries: c_int,
    _: *mut c_void,
    _: *mut CompletionChannel,
    _: c_int,
) -> *mut Cq {
    make::<Cq>(|cq| cq.entries = entries)
}
unsafe extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    // SAFETY: alive until now.
    match unsafe { (*cq).handle } {
        EXTENDED => free(cq.cast::<CqEx>()),
        _ => free(cq),
    }
}

unsafe extern "C" fn create_cq_ex(_: *mut Context, init: *mut CqInit) -> *mut CqEx {
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

thread_local! {
    static CURRENT: RefCell<Wc> = const { RefCell::new(Wc::EMPTY) };
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
unsafe extern "C" fn get_cq_event(
    _: *mut CompletionChannel,
    _: *mut *mut Cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}
unsafe extern "C" fn ack_cq_events(_: *mut Cq, _: u32) {}

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

unsafe extern "C" fn create_qp(_: *mut Pd, init: *mut QpInit) -> *mut Qp {
    // SAFETY: the caller's place.
    let init = unsafe { &*init };
    match another(init.capacity.inline_data) {
        Err(errno) => fail(errno),
        Ok(number) => make::<Qp>(|qp| (qp.number, qp.kind) = (number, init.kind)),
    }
}

unsafe extern "C" fn create_qp_ex(_: *mut Context, init: *mut QpInitEx) -> *mut Qp {
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

unsafe extern "C" fn qp_to_qp_ex(qp: *mut Qp) -> *mut QpEx {
    // SAFETY: alive.
    match unsafe { (*qp).handle } {
        EXTENDED => qp.cast(),
        _ => null_mut(),
    }
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

unsafe extern "C" fn wr_compare_and_swap(p: *mut QpEx, key: u32, to: u64, old: u64, new: u64) {
    called(p, format!("compare_and_swap {key} {to} {old} {new}"));
}
unsafe extern "C" fn wr_fetch_and_add(p: *mut QpEx, key: u32, to: u64, add: u64) {
    called(p, format!("fetch_and_add {key} {to} {add}"));
}
unsafe extern "C" fn wr_read(p: *mut QpEx, key: u32, from: u64) {
    called(p, format!("read {key} {from}"));
}
unsafe extern "C" fn wr_write(p: *mut QpEx, key: u32, to: u64) {
    called(p, format!("write {key} {to}"));
}
unsafe extern "C" fn wr_write_with_immediate(p: *mut QpEx, key: u32, to: u64, immediate: u32) {
    let immediate = u32::from_be(immediate);
    called(p, format!("write_with_immediate {key} {to} {immediate}"));
}
unsafe extern "C" fn wr_send(p: *mut QpEx) {
    called(p, "send".into());
}
unsafe extern "C" fn wr_send_with_immediate(p: *mut QpEx, immediate: u32) {
    let immediate = u32::from_be(immediate);
    called(p, format!("send_with_immediate {immediate}"));
}
unsafe extern "C" fn wr_set_datagram(_: *mut QpEx, _: *mut Ah, pair: u32, key: u32) {
    noted(format!("to {pair} {key}"));
}
unsafe extern "C" fn wr_set_inline(_: *mut QpEx, _: *mut c_void, length: usize) {
    noted(format!("inline {length}"));
}
unsafe extern "C" fn wr_set_sges(_: *mut QpEx, count: usize, sges: *const Sge) {
    let bytes: u32 = (0..count)
        // SAFETY: the caller's array.
        .map(|at| unsafe { (*sges.add(at)).length })
        .sum();
    noted(format!("segments {count} {bytes}"));
}
unsafe extern "C" fn wr_start(_: *mut QpEx) {
    noted("start".into());
}
unsafe extern "C" fn wr_complete(_: *mut QpEx) -> c_int {
    noted("complete".into());
    scripted(|s| s.refuses)
}
unsafe extern "C" fn wr_abort(_: *mut QpEx) {
    noted("abort".into());
}

/// Lets a queue pair that is moved to error have begun to fill a RECEIVE, if the script says so.
fn end_half(qp: *mut Qp) {
    if let Some(wc) = SCRIPT.with_borrow_mut(|s| s.half.take()) {
        HALVES.with_borrow_mut(|halves| halves.push((qp as usize, wc)));
        raise_of(
            CONTEXT.with_borrow(|context| *context),
            qp as usize,
            EVENT_QP_LAST_RECEIVE,
        );
    }
}

/// Completes the RECEIVEs of queue pairs that were reported.
fn complete_halves() {
    let ended = ENDED.lock().expect("not poisoned");
    let come = HALVES.with_borrow_mut(|halves| {
        let come = halves.extract_if(.., |(qp, _)| ended.contains(qp));
        come.collect::<Vec<_>>()
    });
    drop(ended);
    come.into_iter().for_each(|(_, wc)| complete(wc));
}

/// Discards the completions of a queue pair, if the script says so.
fn clean(number: u32) {
    HALVES.with_borrow_mut(|halves| halves.retain(|(_, wc)| wc.queue_pair != number));
    if scripted(|s| s.cleans) {
        WAITING.with_borrow_mut(|waiting| waiting.retain(|wc| wc.queue_pair != number));
    }
}

unsafe extern "C" fn modify_qp(qp: *mut Qp, attributes: *mut QpAttributes, _: c_int) -> c_int {
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
unsafe extern "C" fn query_qp(
    qp: *mut Qp,
    attributes: *mut QpAttributes,
    _: c_int,
    _: *mut QpInit,
) -> c_int {
    // SAFETY: both are the caller's and alive.
    unsafe { (*attributes).state = (*qp).state };
    0
}
unsafe extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: alive until now.
    clean(unsafe { (*qp).number });
    // SAFETY: alive until now.
    match unsafe { (*qp).handle } {
        EXTENDED => free(qp.cast::<QpEx>()),
        _ => free(qp),
    }
}
unsafe extern "C" fn create_srq(_: *mut Pd, _: *mut SrqInit) -> *mut Srq {
    match scripted(|s| s.shared) {
        0 => fail(95),
        _ => make::<Srq>(|_| {}),
    }
}
unsafe extern "C" fn destroy_srq(srq: *mut Srq) -> c_int {
    free(srq)
}
unsafe extern "C" fn create_ah(_: *mut Pd, _: *mut AhAttributes) -> *mut Ah {
    match scripted(|s| s.handles) {
        true => make::<Ah>(|_| {}),
        false => fail(113),
    }
}
unsafe extern "C" fn destroy_ah(ah: *mut Ah) -> c_int {
    free(ah)
}
unsafe extern "C" fn get_async_event(context: *mut Context, event: *mut AsyncEvent) -> c_int {
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
unsafe extern "C" fn ack_async_event(_: *mut AsyncEvent) {}

unsafe extern "C" fn poll_cq(_: *mut Cq, most: c_int, to: *mut Wc) -> c_int {
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
unsafe extern "C" fn request_notify(_: *mut Cq, _: c_int) -> c_int {
    0
}
unsafe extern "C" fn post_send(_: *mut Qp, mut wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
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
unsafe extern "C" fn post_receive(_: *mut Qp, _: *mut ReceiveWr, _: *mut *mut ReceiveWr) -> c_int {
    0
}
unsafe extern "C" fn post_shared_receive(
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
unsafe extern "C" fn query_data_in_order(_: *mut Qp, _: u32, _: u32) -> c_int {
    scripted(|s| s.data_in_order)
}

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
