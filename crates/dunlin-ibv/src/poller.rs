//! Taking completions by the extended calls, which bring hardware timestamps.

use crate::sys::extended::{CqEx, PollAttributes, ReadU32};
use crate::sys::types::Wc;

/// The queue is empty.
const ENOENT: i32 = 2;

/// The extended calls of one completion queue.
#[derive(Debug)]
pub(crate) struct Poller {
    queue: *mut CqEx,
    start: unsafe extern "C" fn(*mut CqEx, *mut PollAttributes) -> i32,
    next: unsafe extern "C" fn(*mut CqEx) -> i32,
    end: unsafe extern "C" fn(*mut CqEx),
    opcode: ReadU32,
    vendor_error: ReadU32,
    bytes: ReadU32,
    immediate: ReadU32,
    queue_pair: ReadU32,
    source: ReadU32,
    flags: ReadU32,
    stamp: Option<unsafe extern "C" fn(*mut CqEx) -> u64>,
    /// Begins and ends for each completion: soft-RoCE's library (rdma-core 44) ends by itself if `next` finds nothing,
    /// and would skip a completion if `end` were called then.
    one_by_one: bool,
}

impl Poller {
    /// The calls of a queue that was just created, with or without timestamps; `None` if some are missing.
    pub(crate) fn of(queue: *mut CqEx, timestamps: bool, soft_roce: bool) -> Option<Self> {
        // SAFETY: the provider filled the structure when it made the queue.
        let table = unsafe { &*queue };
        let stamp = match timestamps {
            true => Some(table.read_timestamp?),
            false => None,
        };
        Some(Self {
            queue,
            start: table.start_poll?,
            next: table.next_poll?,
            end: table.end_poll?,
            opcode: table.read_opcode?,
            vendor_error: table.read_vendor_error?,
            bytes: table.read_bytes?,
            immediate: table.read_immediate?,
            queue_pair: table.read_queue_pair?,
            source: table.read_source?,
            flags: table.read_flags?,
            stamp,
            one_by_one: soft_roce,
        })
    }

    /// Takes completions and their timestamps, in ticks of the device's clock, as many as there is space for both.
    /// Returns their number, negative if the queue has failed.
    ///
    /// # Safety
    /// The queue must be alive, and nobody else may poll it.
    pub(crate) unsafe fn poll(&mut self, to: &mut [Wc], stamps: &mut [Option<u64>]) -> i32 {
        let mut places = to.iter_mut().zip(stamps);
        let mut count = 0;
        loop {
            let mut attributes = PollAttributes { mask: 0 };
            // SAFETY: the queue's own call, and the attributes are valid for it.
            let mut met = unsafe { (self.start)(self.queue, &mut attributes) };
            if met != 0 {
                // What was taken before a failure counts; the next poll finds the failure again.
                return if met == ENOENT || count > 0 {
                    count
                } else {
                    -1
                };
            }
            let mut full = false;
            while let (0, Some((wc, stamp))) = (met, places.next()) {
                // SAFETY: the queue is positioned on a completion.
                (*wc, *stamp) = unsafe { self.read() };
                count += 1;
                full = places.len() == 0;
                if full || self.one_by_one {
                    break;
                }
                // SAFETY: between `start` and `end`.
                met = unsafe { (self.next)(self.queue) };
            }
            // SAFETY: begun above, ended once.
            unsafe { (self.end)(self.queue) };
            if full || !self.one_by_one {
                return count;
            }
        }
    }

    /// The completion on which the queue is positioned.
    ///
    /// # Safety
    /// The queue must be positioned on a completion.
    unsafe fn read(&mut self) -> (Wc, Option<u64>) {
        let queue = self.queue;
        // SAFETY: the structure is the queue's, and its calls may be made between `start` and `end`. For a request that
        // failed only these fields are valid.
        let mut wc = unsafe {
            Wc {
                id: (*queue).id,
                status: (*queue).status,
                queue_pair: (self.queue_pair)(queue),
                vendor_error: (self.vendor_error)(queue),
                ..Wc::EMPTY
            }
        };
        if wc.status != 0 {
            return (wc, None);
        }
        // SAFETY: as above, for a request that succeeded.
        unsafe {
            wc.opcode = (self.opcode)(queue);
            wc.flags = (self.flags)(queue);
            wc.bytes = (self.bytes)(queue);
            wc.immediate = (self.immediate)(queue);
            wc.source = (self.source)(queue);
        }
        // SAFETY: the queue was made with timestamps.
        let ticks = self.stamp.map(|read| unsafe { read(queue) });
        (wc, ticks)
    }
}
