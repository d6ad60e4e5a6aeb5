//! Memory that two threads share without a lock: the one module of this crate with `unsafe` in it.
//!
//! Every type here is safe to use: whose turn it is to touch a piece of memory follows from counts that
//! only these types move.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::Arc;

use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

/// The words of a ring slot beside its sequence word: together one cache line of 64 B.
pub type Payload = [u64; 7];
/// A message of the single-producer single-consumer ring: one cache line.
pub type Message = [u64; 8];

/// A value alone on its cache lines (two of them: processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    payload: UnsafeCell<Payload>,
    /// The position of the message in here, plus one; 0 before the first.
    sequence: AtomicU64,
}

#[derive(Debug)]
struct RingPair {
    requests: Box<[Slot]>,
    responses: Box<[Slot]>,
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

/// A ring of requests and a ring of responses, each with `slots` cache lines (a power of two).
pub fn ring_pair(slots: usize) -> (Caller, Answerer) {
    assert!(
        slots.is_power_of_two(),
        "a ring's slots are a power of two, not {slots}"
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

/// Asks for a line that will be written soon: the wait for it then overlaps with other work. It doubles the rate.
#[inline]
fn claim<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor writes as far as the program can tell.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
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
        unsafe { *slot.payload.get() = *payload };
        self.sent += 1;
        slot.sequence.store(self.sent, Release);
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
            unsafe { *slot.payload.get() = payload(position) };
            slot.sequence.store(position + 1, Release);
        }
        self.sent += count;
        for position in self.sent..self.sent + count {
            claim(at(&self.rings.requests, position));
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
        unsafe { *response.payload.get() = handler(&*request.payload.get()) };
        self.served += 1;
        response.sequence.store(self.served, Release);
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
            unsafe { *response.payload.get() = handler(&*request.payload.get()) };
            response.sequence.store(position + 1, Release);
        }
        self.served += count;
        for position in self.served..self.served + count {
            claim(at(&self.rings.responses, position));
        }
        count
    }
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line(UnsafeCell<Message>);

#[derive(Debug)]
struct Spsc {
    lines: Box<[Line]>,
    tail: Alone<AtomicU64>,
    head: Alone<AtomicU64>,
}

// SAFETY: lines from `head` to `tail` belong to the one `Consumer`, all others to the one `Producer`;
// each moves only its own index, with Release after its last access, and reads the other's with Acquire.
unsafe impl Sync for Spsc {}

/// The writing end of a single-producer single-consumer ring.
#[derive(Debug)]
pub struct Producer {
    ring: Arc<Spsc>,
    tail: u64,
    seen_head: u64,
}

/// The reading end of a single-producer single-consumer ring.
#[derive(Debug)]
pub struct Consumer {
    ring: Arc<Spsc>,
    head: u64,
}

/// A single-producer single-consumer ring of `slots` cache lines (a power of two).
pub fn spsc(slots: usize) -> (Producer, Consumer) {
    assert!(
        slots.is_power_of_two(),
        "a ring's slots are a power of two, not {slots}"
    );
    let lines = (0..slots).map(|_| Line::default()).collect();
    let ring = Arc::new(Spsc {
        lines,
        tail: Alone::default(),
        head: Alone::default(),
    });
    (
        Producer {
            ring: Arc::clone(&ring),
            tail: 0,
            seen_head: 0,
        },
        Consumer { ring, head: 0 },
    )
}

impl Producer {
    /// Writes `count` messages and publishes them together; false, and nothing written, without room for them.
    #[inline]
    pub fn send(&mut self, count: u64, mut message: impl FnMut(u64) -> Message) -> bool {
        let slots = self.ring.lines.len() as u64;
        if self.tail + count > self.seen_head + slots {
            self.seen_head = self.ring.head.0.load(Acquire);
            if self.tail + count > self.seen_head + slots {
                return false;
            }
        }
        for position in self.tail..self.tail + count {
            let line = &self.ring.lines[(position & (slots - 1)) as usize];
            // SAFETY: less than a ring's worth after `head`, so the consumer has let go of this line.
            unsafe { *line.0.get() = message(position) };
            claim(&self.ring.lines[((position + count.max(8)) & (slots - 1)) as usize]);
        }
        self.tail += count;
        self.ring.tail.0.store(self.tail, Release);
        true
    }
}

impl Consumer {
    /// Reads all published messages; returns how many.
    #[inline]
    pub fn receive(&mut self, mut message: impl FnMut(&Message)) -> u64 {
        let slots = self.ring.lines.len() as u64;
        let tail = self.ring.tail.0.load(Acquire);
        for position in self.head..tail {
            let line = &self.ring.lines[(position & (slots - 1)) as usize];
            // SAFETY: before `tail`, so published, and not before `head`, so not yet given back.
            message(unsafe { &*line.0.get() });
        }
        let count = tail - self.head;
        if count != 0 {
            self.head = tail;
            self.ring.head.0.store(tail, Release);
        }
        count
    }
}

/// Anonymous memory mapped shared, as a region between two processes is: filled, so every page is there.
#[derive(Debug)]
pub struct SharedBytes {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping is owned by this value alone, like the memory of a `Box<[u8]>`.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Maps `length` bytes.
    pub fn new(length: usize) -> std::io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
            )
        }?;
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `length` mapped and zeroed bytes, borrowed from their only owner.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no borrow outlives the owner.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping: {unmapped:?}");
    }
}

#[derive(Debug)]
struct Baton {
    memory: UnsafeCell<SharedBytes>,
    turn: Alone<AtomicU64>,
}

// SAFETY: the memory is touched only by the one `Holder` whose turn it is; the turn passes by Release and Acquire.
unsafe impl Sync for Baton {}

/// One of two threads that take turns at the same memory.
#[derive(Debug)]
pub struct Holder {
    baton: Arc<Baton>,
    me: u64,
}

/// Two holders of one memory; the first has the first turn.
pub fn baton(memory: SharedBytes) -> (Holder, Holder) {
    let baton = Arc::new(Baton {
        memory: UnsafeCell::new(memory),
        turn: Alone(AtomicU64::new(0)),
    });
    (
        Holder {
            baton: Arc::clone(&baton),
            me: 0,
        },
        Holder { baton, me: 1 },
    )
}

impl Holder {
    /// Uses the memory and passes it on, if it is this side's turn; false when it is not.
    #[inline]
    pub fn turn(&mut self, work: impl FnOnce(&mut [u8])) -> bool {
        if self.baton.turn.0.load(Acquire) != self.me {
            return false;
        }
        // SAFETY: this side's turn, which only this side ends, below.
        work(unsafe { (*self.baton.memory.get()).bytes() });
        self.baton.turn.0.store(1 - self.me, Release);
        true
    }
}
