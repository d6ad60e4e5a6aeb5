//! Which simulated core the calling code runs on, and what it has been charged in this step.
//!
//! The event loop runs the step of a thread to its end on the real thread that drives the cluster, so this state is
//! thread-local and needs no synchronization. Outside of steps, charges have no effect. Threads with a stack
//! ([`crate::stack`]) end a step when they are charged.

use std::cell::Cell;

use dunlin_verbs::Work;

use crate::event::Ps;
use crate::memory::{Dram, LINE};
use crate::parameters::HostParameters;
use crate::stack;

/// Prices, in picoseconds, of work that is not a verb.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prices {
    poll_memory: Ps,
    copy: Ps,
    copy_byte: Ps,
    shared_line: Ps,
    arrived: Ps,
    coroutine: Ps,
    instruction: Ps,
    dram: Dram,
}

impl Prices {
    /// Prices on a host with `registered` registered bytes. A copy names no addresses, so the share of its lines that
    /// miss the last-level cache is taken to be the share of the registered bytes that do not fit there. Only the side
    /// that is registered memory misses: the other is a buffer for one message, the application's or the engine's,
    /// which is reused and stays in the cache.
    pub(crate) fn of(host: &HostParameters, registered: usize) -> Self {
        let cache = host.llc_slices * host.llc_sets * host.llc_ways * LINE as f64;
        let missing = (1.0 - cache / (registered as f64).max(1.0)).max(0.0);
        let copy_miss_byte = (host.copy_miss_byte as f64 * missing / 2.0) as Ps;
        Self {
            poll_memory: host.poll_memory,
            copy: host.copy,
            copy_byte: host.copy_byte + copy_miss_byte,
            shared_line: host.shared_line,
            arrived: host.arrived,
            dram: Dram::of(host),
            coroutine: host.coroutine,
            instruction: host.instruction,
        }
    }
}

/// No thread.
pub(crate) const OUTSIDE: u32 = u32::MAX;

thread_local! {
    static CLUSTER: Cell<u64> = const { Cell::new(0) };
    static THREAD: Cell<u32> = const { Cell::new(OUTSIDE) };
    static NOW: Cell<Ps> = const { Cell::new(0) };
    static CHARGED: Cell<Ps> = const { Cell::new(0) };
    static PRICES: Cell<Prices> = const { Cell::new(FREE) };
}

/// Prices for threads outside of clusters.
const FREE: Prices = Prices {
    poll_memory: 0,
    copy: 0,
    copy_byte: 0,
    shared_line: 0,
    arrived: 0,
    coroutine: 0,
    instruction: 0,
    dram: Dram::NONE,
};

/// Runs `step` as thread `thread` of a cluster from time `now`, at which the thread first stalls for `stalled`. Returns
/// the result and the time charged.
pub(crate) fn run<T>(
    cluster: u64,
    thread: u32,
    (now, stalled): (Ps, Ps),
    prices: Prices,
    step: impl FnOnce() -> T,
) -> (T, Ps) {
    /// Leaves the context, also when the step panics.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            THREAD.set(OUTSIDE);
        }
    }
    CLUSTER.set(cluster);
    THREAD.set(thread);
    NOW.set(now);
    CHARGED.set(stalled);
    PRICES.set(prices);
    let leave = Leave;
    let result = step();
    drop(leave);
    (result, CHARGED.get())
}

/// The simulated thread of this cluster whose step is running here.
#[inline]
pub(crate) fn thread(cluster: u64) -> Option<u32> {
    let thread = THREAD.get();
    (thread != OUTSIDE && CLUSTER.get() == cluster).then_some(thread)
}

/// Whether a step is running here.
pub(crate) fn inside() -> bool {
    THREAD.get() != OUTSIDE
}

/// Charges the running step.
#[inline]
pub(crate) fn charge(time: Ps) {
    CHARGED.set(CHARGED.get() + time);
}

/// The virtual time of the running step: its start plus its charges. `None` outside of steps.
#[inline]
pub(crate) fn now() -> Option<Ps> {
    inside().then(|| NOW.get() + CHARGED.get())
}

/// What the running step has been charged so far.
#[inline]
pub(crate) fn charged() -> Ps {
    CHARGED.get()
}

/// Charges an access to a cache line that another core wrote.
#[inline]
pub(crate) fn charge_shared_line() {
    charge(PRICES.get().shared_line);
}

/// Charges work that is not a verb.
#[inline]
pub(crate) fn charge_work(work: Work) {
    if !inside() {
        return;
    }
    let prices = PRICES.get();
    charge(match work {
        Work::Copy(bytes) => prices.copy + prices.copy_byte * bytes as u64,
        Work::Poll => prices.poll_memory,
        Work::Instructions(count) => prices.instruction * u64::from(count),
        Work::Compute(nanoseconds) => nanoseconds * 1000,
        Work::SharedLine => prices.shared_line,
        Work::Arrived => {
            let at = NOW.get() + CHARGED.get();
            prices.arrived + prices.dram.delay(at, THREAD.get())
        }
        Work::Switch => prices.coroutine,
        _ => 0,
    });
    stack::settle();
}
