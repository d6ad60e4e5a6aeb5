//! A ring of requests and a ring of responses: a request-response engine of 64 B slots.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::Arc;

use dunlin_verbs::{copy_in_order, prefetch_to_write};

/// The words of a ring slot beside its sequence word: together one cache line of 64 B.
pub type Payload = [u64; 7];

#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    payload: UnsafeCell<Payload>,
    /// The position of the message in here, plus one; 0 before the first.
    sequence: AtomicU64,
}

impl Slot {
    /// Writes a message and then its position, in as few stores as there are: the reader polls this very line, and
    /// takes it away between any two of them.
    ///
    /// # Safety
    /// The caller alone writes the slot, and nobody reads its payload before the sequence word says so.
    #[inline]
    unsafe fn publish(&self, payload: &Payload, position: u64) {
        // In registers: the stores of a line that is built in memory cannot be forwarded to its wider loads.
        let [a, b, c, d, e, f, g] = *payload;
        let line = [a, b, c, d, e, f, g, position];
        let slot = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the slot is 64 bytes, all of them in cells, the payload first and the sequence word last, and 64
        // bytes become visible in ascending order; the caller says that they are its own.
        unsafe { copy_in_order(line.as_ptr().cast(), slot, 64) };
    }
}

#[derive(Debug)]
struct RingPair {
    requests: Box<[Slot]>,
    responses: Box<[Slot]>,
    asks_ahead: bool,
}

// SAFETY: a slot's payload is written by one side while its sequence word does not yet name the
// position, and read by the other after it does (Release and Acquire). `Caller` and `Answerer` are
// not Clone, one of each exists per pair, and their counts keep a writer out of a slot until the
// reader has let go of it; see `Caller::send` and `Answerer::serve`.
unsafe impl Sync for RingPair {}

/// The client's end of a bare ring pair.
#[derive(Debug)]
pub struct Caller {
    rings: Arc<RingPair>,
    sent: u64,
    received: u64,
}

/// The server's end of a bare ring pair.
#[derive(Debug)]
pub struct Answerer {
    rings: Arc<RingPair>,
    served: u64,
}

/// A ring of requests and a ring of responses, each with `slots` cache lines (a power of two). `asks_ahead`: who has
/// written many slots prefetches the next ones to write. That hides the time a line takes from the other core, or takes
/// lines away from a reader that still needs them.
pub fn ring_pair(slots: usize, asks_ahead: bool) -> (Caller, Answerer) {
    assert!(
        slots.is_power_of_two(),
        "the number of slots of a ring must be a power of two, not {slots}"
    );
    let ring = || {
        (0..slots)
            .map(|_| Slot {
                payload: UnsafeCell::new([0; 7]),
                sequence: AtomicU64::new(0),
            })
            .collect()
    };
    let rings = Arc::new(RingPair {
        requests: ring(),
        responses: ring(),
        asks_ahead,
    });
    (
        Caller {
            rings: Arc::clone(&rings),
            sent: 0,
            received: 0,
        },
        Answerer { rings, served: 0 },
    )
}

/// Prefetches slots that will be written soon.
#[inline]
fn ask_for(ring: &[Slot], first: u64, count: u64) {
    for position in first..first + count {
        prefetch_to_write(at(ring, position));
    }
}

fn at(ring: &[Slot], position: u64) -> &Slot {
    &ring[position as usize & (ring.len() - 1)]
}

impl Caller {
    /// Requests without a response yet.
    pub fn outstanding(&self) -> u64 {
        self.sent - self.received
    }

    /// Writes the next request in place. Panics when a ring's worth of them is outstanding.
    #[inline]
    pub fn send(&mut self, payload: &Payload) {
        assert!(
            self.outstanding() < self.rings.requests.len() as u64,
            "the ring is full"
        );
        let slot = at(&self.rings.requests, self.sent);
        // SAFETY: the slot's last request was `slots` positions ago. Fewer than `slots` are outstanding,
        // so its response was received, and the answerer stopped reading it before responding.
        unsafe { slot.publish(payload, self.sent + 1) };
        self.sent += 1;
    }

    /// Writes `count` requests in place, the first one last: whoever polls for the first finds all of
    /// them, and does not pull away the lines that are still being written.
    #[inline]
    pub fn send_many(&mut self, count: u64, mut payload: impl FnMut(u64) -> Payload) {
        let slots = self.rings.requests.len() as u64;
        assert!(self.outstanding() + count <= slots, "the ring is full");
        for position in (self.sent..self.sent + count).rev() {
            let slot = at(&self.rings.requests, position);
            // SAFETY: as in `send`, for each of the `count` slots.
            unsafe { slot.publish(&payload(position), position + 1) };
        }
        self.sent += count;
        if self.rings.asks_ahead {
            ask_for(&self.rings.requests, self.sent, count);
        }
    }

    /// The next response, if it is there.
    #[inline]
    pub fn receive(&mut self) -> Option<&Payload> {
        let slot = at(&self.rings.responses, self.received);
        if slot.sequence.load(Acquire) != self.received + 1 {
            return None;
        }
        self.received += 1;
        // SAFETY: the sequence word says that the answerer has finished writing. It writes this slot again
        // only for a request `slots` positions on, which this side sends by `&mut self`, when the borrow is over.
        Some(unsafe { &*slot.payload.get() })
    }
}

impl Answerer {
    /// Answers the next request by what `handler` makes of it; false when there is none.
    #[inline]
    pub fn serve(&mut self, handler: impl FnOnce(&Payload) -> Payload) -> bool {
        let request = at(&self.rings.requests, self.served);
        if request.sequence.load(Acquire) != self.served + 1 {
            return false;
        }
        let response = at(&self.rings.responses, self.served);
        // SAFETY: the sequence word says that the caller has finished writing the request, and it does not
        // write there again before it has received the response published below. The response's slot was
        // last used `slots` positions ago, and the caller sent this request only after it had received that one.
        unsafe { response.publish(&handler(&*request.payload.get()), self.served + 1) };
        self.served += 1;
        true
    }

    /// Answers all requests that are there, up to `most`, the first one last; returns how many.
    #[inline]
    pub fn serve_many(&mut self, most: u64, handler: impl Fn(&Payload) -> Payload) -> u64 {
        let there =
            |position| at(&self.rings.requests, position).sequence.load(Acquire) == position + 1;
        let mut count = 0;
        while count < most && there(self.served + count) {
            count += 1;
        }
        for position in (self.served..self.served + count).rev() {
            let request = at(&self.rings.requests, position);
            let response = at(&self.rings.responses, position);
            // SAFETY: as in `serve`, for each of the `count` requests that were there.
            unsafe { response.publish(&handler(&*request.payload.get()), position + 1) };
        }
        self.served += count;
        if self.rings.asks_ahead {
            ask_for(&self.rings.responses, self.served, count);
        }
        count
    }
}
