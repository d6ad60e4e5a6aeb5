//! Sharing of few queue pairs by many threads: FLOCK's connection handle (§3), synchronization (§4.2) and thread
//! scheduling (§5.2).
//!
//! A [`handle`] has a few lanes. Each thread has a [`thread_port`] to it, which is all that the client's calls use.
//! Each [`lane`] has an [`engine`], which one thread at a time leads, chosen by the [`combining`] queue. [`ports`]
//! hand answers out to the [`port`]s of their threads.

pub(crate) mod assignment;
mod calls;
pub(crate) mod combining;
#[cfg(all(test, not(loom)))]
mod combining_tests;
#[cfg(all(test, not(loom)))]
mod deactivation_tests;
pub(crate) mod dispatcher;
mod engine;
#[cfg(all(test, not(loom)))]
mod failure_tests;
pub(crate) mod figures;
pub(crate) mod handle;
pub(crate) mod lane;
mod lane_table;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod maker;
pub(crate) mod port;
pub(crate) mod ports;
#[cfg(all(test, not(loom)))]
mod ports_tests;
mod staging;
pub(crate) mod statistics;
pub(crate) mod status;
mod sync;
pub(crate) mod thread_port;

pub(crate) use staging::RUN_MESSAGES;

/// How threads share a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// A combining queue; a message carries the requests of many threads.
    Combining,
    /// A combining queue, but each thread's requests go in messages of their own (FLOCK §8.3.1, without coalescing).
    Alone,
    /// A spinlock, as in FaRM.
    Spinlock,
}

impl Discipline {
    fn most_members(self) -> usize {
        match self {
            Self::Combining => combining::MOST_MEMBERS,
            Self::Alone | Self::Spinlock => 1,
        }
    }
}

/// Number of lanes of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One for each thread, up to this many.
    UpTo(usize),
    /// One for each group of this many threads.
    OneFor(usize),
}

impl Lanes {
    fn wanted(self, threads: usize) -> usize {
        match self {
            Self::UpTo(most) => threads.min(most),
            Self::OneFor(each) => threads.div_ceil(each),
        }
    }

    /// Whether a thread may use the lane of another if there is none for it.
    fn are_shared(self) -> bool {
        self != Self::OneFor(1)
    }
}

/// When threads are moved between lanes, according to what they send (FLOCK §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Never,
    /// In each interval, as in Algorithm 1.
    EachInterval,
    /// When that spreads them better than at present (`auto`): threads that send together stay together.
    WhenUneven,
}

/// The settings of a preset for sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) discipline: Discipline,
    pub(crate) lanes: Lanes,
    pub(crate) moves: Moves,
    /// Whether the server counts credits and says which lanes are active.
    pub(crate) admitted: bool,
    /// Whether the server is asked to keep fewer of these lanes active than of others (`auto`).
    pub(crate) few: bool,
    /// The weight of a request in addition to its bytes when threads are moved; FLOCK balances bytes only.
    pub(crate) request_bytes: u64,
    /// Maximum number of messages of one thread that are sent together.
    pub(crate) run: u32,
    /// Whether answers are taken only by the dispatcher, which always polls (FLOCK §4.3).
    pub(crate) dispatched: bool,
}
