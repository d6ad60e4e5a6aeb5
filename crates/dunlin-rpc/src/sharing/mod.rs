//! How many threads share few queue pairs: FLOCK's connection handle (§3), synchronization (§4.2) and thread scheduling
//! (§5.2).
//!
//! A [`handle`] has a few lanes. Each thread has a [`thread_port`] at it, which is all that the client's calls see;
//! each [`lane`] has an [`engine`] that one thread at a time leads, by its [`combining`] queue. [`ports`] bring answers
//! to their threads.

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
    /// A combining queue; a message takes the requests of many threads.
    Combining,
    /// A combining queue, and each thread's requests go alone (FLOCK §8.3.1, without coalescing).
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

/// How many lanes a handle has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// One for each thread, but no more than so many.
    UpTo(usize),
    /// One for so many threads.
    OneFor(usize),
}

impl Lanes {
    fn wanted(self, threads: usize) -> usize {
        match self {
            Self::UpTo(most) => threads.min(most),
            Self::OneFor(each) => threads.div_ceil(each),
        }
    }

    /// Whether a thread may have the lane of another where there is none for it.
    fn are_shared(self) -> bool {
        self != Self::OneFor(1)
    }
}

/// When threads are moved between lanes, by what they send (FLOCK §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Never,
    /// In each interval, as Algorithm 1 says.
    EachInterval,
    /// When that spreads them better than they are (`auto`): who sends together stays together.
    WhenUneven,
}

/// The sharing part of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) discipline: Discipline,
    pub(crate) lanes: Lanes,
    pub(crate) moves: Moves,
    /// The server counts credits and says which lanes are active.
    pub(crate) admitted: bool,
    /// The server is asked to keep fewer of them active than of others (`auto`).
    pub(crate) few: bool,
    /// What a request weighs beyond its bytes when threads are moved; FLOCK balances bytes alone.
    pub(crate) request_bytes: u64,
    /// Most messages of one thread that go together.
    pub(crate) run: u32,
    /// Answers are taken by the dispatcher alone, which always polls (FLOCK §4.3).
    pub(crate) dispatched: bool,
}
