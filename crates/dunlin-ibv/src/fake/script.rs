//! What the fake does, as a test has set it.

use std::cell::RefCell;
use std::ffi::c_int;

use crate::sys::types::Wc;

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
}

/// Sets what the fake does on this thread.
pub(crate) fn script(change: impl FnOnce(&mut Script)) {
    SCRIPT.with_borrow_mut(change);
}

pub(super) fn scripted<T>(read: impl FnOnce(&Script) -> T) -> T {
    SCRIPT.with_borrow(read)
}
