//! A load on a key-value store: Dunlin's through a pipeline or without calls, memcached and Redis through a socket.

mod alone;
pub mod memcached;
mod ours;
pub mod peer;
pub mod redis;
mod socket;

use std::time::Duration;

pub use alone::Alone;
pub use ours::Ours;

use crate::clock::now_ns;
use crate::commands::Failure;
use crate::interrupt;
use crate::report::Tally;
use crate::workload::{Choice, Mix};

/// One in this many calls is timed, because reading the clock costs as much as a call.
const SAMPLE: u64 = 16;
/// Operations between two reads of the clock.
const STRIDE: usize = 256;
/// Operations before the measurement starts, so that all sides are awake.
const WARM_UP: usize = 256;

/// A request to a store.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// The value of a key.
    Get(&'a [u8]),
    /// Sets the value of a key.
    Put(&'a [u8], &'a [u8]),
    /// Sets the value of a new key, in a store that is to be scanned.
    Insert(&'a [u8], &'a [u8]),
    /// This many keys and values, starting at a key.
    Scan(&'a [u8], u32),
}

/// The answer of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A value of this many bytes.
    Value(usize),
    /// There is no such key.
    Missing,
    /// It is stored.
    Stored,
    /// The number of entries, and of bytes of values.
    Entries(usize, usize),
    /// It failed.
    Failed,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// The store's message.
    pub words: String,
    /// Whether the store is out of memory.
    pub is_full: bool,
}

/// A store that accepts several requests at once, and answers them in any order.
pub trait Engine {
    /// Sends a request, now or with the next wait. Returns `false` if it cannot be accepted now.
    ///
    /// # Errors
    /// When the connection is lost.
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<bool, Failure>;
    /// Number of requests outstanding.
    fn outstanding(&self) -> usize;
    /// Why the first request failed since the last call of this, if known.
    fn take_first_error(&mut self) -> Option<FirstError>;
    /// Waits for at least one answer.
    ///
    /// # Errors
    /// When the connection is lost, or no answer comes.
    fn wait(&mut self, take: &mut impl FnMut(u64, Answer)) -> Result<(), Failure>;
}

/// YCSB's keys: `user` and a number, of one length.
pub type Name = [u8; 14];

/// The key of an entry.
pub fn name(entry: u32) -> Name {
    let mut name = *b"user0000000000";
    let mut rest = entry;
    for digit in name.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// A load on one store.
#[derive(Debug)]
pub struct Load<E> {
    engine: E,
    outstanding: usize,
    value: Vec<u8>,
    /// Entries that are there.
    entries: u32,
    /// Whether entries are stored in such a way that they can be scanned.
    scans: bool,
}

/// The tally of the answers of one slice.
struct Count<'a> {
    tally: Tally,
    value_bytes: usize,
    timed: bool,
    /// Number of operations begun.
    begun: u64,
    /// Entries that were read to be written.
    modify: &'a mut Vec<u32>,
}

/// Tags say what was asked: what the answer must be, and whether and when it is timed.
const EXPECTS: u64 = 0xf << 60;
const EXPECTS_VALUE: u64 = 0;
const EXPECTS_STORED: u64 = 1 << 60;
const EXPECTS_ENTRIES: u64 = 2 << 60;
/// Here the rest is the entry that is written next.
const EXPECTS_VALUE_TO_MODIFY: u64 = 3 << 60;
const UNTIMED: u64 = !EXPECTS;

impl<E: Engine> Load<E> {
    /// A load of `outstanding` requests at a time, on a store whose values have `value_bytes`.
    pub fn new(engine: E, outstanding: usize, value_bytes: usize, scans: bool) -> Self {
        Self {
            engine,
            outstanding,
            value: vec![b'v'; value_bytes],
            entries: 0,
            scans,
        }
    }

    /// Puts `entries` entries; `progress` hears how far it is, 0 to 1.
    ///
    /// # Errors
    /// When one of them is not taken.
    pub fn fill(&mut self, entries: u32, mut progress: impl FnMut(f64)) -> Result<(), Failure> {
        let mut modify = Vec::new();
        let mut count = self.count(false, &mut modify);
        while self.entries < entries {
            self.insert(&mut count)?;
            interrupt::check()?;
            if self.entries % 1024 == 0 {
                progress(f64::from(self.entries) / f64::from(entries));
            }
        }
        self.drain(&mut count)?;
        let errors = count.tally.errors;
        if errors == 0 {
            return Ok(());
        }
        let words = format!("{errors} of {entries} entries were not stored");
        Err(match self.engine.take_first_error() {
            None => Failure::new(words),
            Some(FirstError {
                words: why,
                is_full,
            }) => {
                let failure = Failure::new(format!("{words}, the first with: {why}"));
                match is_full {
                    true => failure.help("give the store more memory (--memory)"),
                    false => failure,
                }
            }
        })
    }

    /// Runs operations of `mix` for about `slice`; nothing is outstanding afterwards.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn run(&mut self, mix: &mut Mix, slice: Duration) -> Result<Tally, Failure> {
        let mut modify = Vec::new();
        let mut warm = self.count(false, &mut modify);
        for _ in 0..WARM_UP {
            self.operate(mix.next(), &mut warm)?;
        }
        self.drain(&mut warm)?;
        let errors = warm.tally.errors;
        let mut count = self.count(true, &mut modify);
        let (start, limit) = (now_ns(), slice.as_nanos() as u64);
        while now_ns() - start < limit && !interrupt::came() {
            let failed = count.tally.errors;
            for _ in 0..STRIDE {
                self.operate(mix.next(), &mut count)?;
                // What fails may have lasted as long as its deadline.
                if count.tally.errors > failed {
                    break;
                }
            }
        }
        self.drain(&mut count)?;
        let mut tally = count.tally;
        tally.elapsed = Duration::from_nanos(now_ns() - start);
        tally.errors += errors;
        tally.first_error = self.engine.take_first_error().map(|first| first.words);
        // Pollers go to sleep now; the next to measure has the cores to itself.
        std::thread::sleep(Duration::from_millis(1));
        Ok(tally)
    }

    fn count<'a>(&self, timed: bool, modify: &'a mut Vec<u32>) -> Count<'a> {
        Count {
            tally: Tally::default(),
            value_bytes: self.value.len(),
            timed,
            begun: 0,
            modify,
        }
    }

    #[inline]
    fn operate(&mut self, choice: Choice, count: &mut Count<'_>) -> Result<(), Failure> {
        if let Some(entry) = count.modify.pop() {
            self.put(entry, count)?;
        }
        match choice {
            Choice::Read(entry) => self.get(entry, count),
            Choice::ReadLatest(age) => self.get((self.entries - 1).saturating_sub(age), count),
            Choice::Update(entry) => self.put(entry, count),
            Choice::Insert => self.insert(count),
            Choice::Scan(entry, most) => {
                let tag = EXPECTS_ENTRIES | count.time();
                self.send(&Next::Scan(name(entry), most.into()), tag, count)
            }
            Choice::ReadModifyWrite(entry) => {
                let tag = EXPECTS_VALUE_TO_MODIFY | u64::from(entry);
                self.send(&Next::Get(name(entry)), tag, count)
            }
        }
    }

    #[inline]
    fn get(&mut self, entry: u32, count: &mut Count<'_>) -> Result<(), Failure> {
        let tag = EXPECTS_VALUE | count.time();
        self.send(&Next::Get(name(entry)), tag, count)
    }

    #[inline]
    fn put(&mut self, entry: u32, count: &mut Count<'_>) -> Result<(), Failure> {
        let tag = EXPECTS_STORED | count.time();
        self.send(&Next::Put(name(entry)), tag, count)
    }

    fn insert(&mut self, count: &mut Count<'_>) -> Result<(), Failure> {
        let tag = EXPECTS_STORED | count.time();
        let next = match self.scans {
            true => Next::Insert(name(self.entries)),
            false => Next::Put(name(self.entries)),
        };
        self.entries += 1;
        self.send(&next, tag, count)
    }

    #[inline]
    fn send(&mut self, next: &Next, tag: u64, count: &mut Count<'_>) -> Result<(), Failure> {
        let request = match next {
            Next::Get(name) => Request::Get(name),
            Next::Put(name) => Request::Put(name, &self.value),
            Next::Insert(name) => Request::Insert(name, &self.value),
            Next::Scan(name, most) => Request::Scan(name, *most),
        };
        while self.engine.outstanding() >= self.outstanding || !self.engine.submit(request, tag)? {
            self.engine
                .wait(&mut |tag, answer| count.take(tag, answer))?;
        }
        Ok(())
    }

    fn drain(&mut self, count: &mut Count<'_>) -> Result<(), Failure> {
        loop {
            while let Some(entry) = count.modify.pop() {
                self.put(entry, count)?;
            }
            if self.engine.outstanding() == 0 {
                return Ok(());
            }
            self.engine
                .wait(&mut |tag, answer| count.take(tag, answer))?;
        }
    }
}

enum Next {
    Get(Name),
    Put(Name),
    Insert(Name),
    Scan(Name, u32),
}

impl Count<'_> {
    /// The time stored in the tag of the next operation, or the value for no time. What is sent counts: answers come
    /// in bursts, and all operations of a burst would be timed or none.
    #[inline]
    fn time(&mut self) -> u64 {
        self.begun += 1;
        match self.timed && self.begun % SAMPLE == 0 {
            true => now_ns() & !EXPECTS,
            false => UNTIMED,
        }
    }

    #[inline]
    fn take(&mut self, tag: u64, answer: Answer) {
        let bytes = match (tag & EXPECTS, answer) {
            (EXPECTS_VALUE, Answer::Value(bytes)) if bytes == self.value_bytes => bytes,
            (EXPECTS_STORED, Answer::Stored) => self.value_bytes,
            // Behind the last entries there are fewer.
            (EXPECTS_ENTRIES, Answer::Entries(entries, bytes)) if entries > 0 => bytes,
            (EXPECTS_VALUE_TO_MODIFY, Answer::Value(_)) => {
                self.modify.push(tag as u32);
                return;
            }
            _ => {
                self.tally.errors += 1;
                return;
            }
        };
        self.tally.operations += 1;
        self.tally.bytes += bytes as u64;
        if tag & !EXPECTS != UNTIMED {
            let now = now_ns() & !EXPECTS;
            self.tally
                .latencies
                .record(now.wrapping_sub(tag & !EXPECTS));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_distinct_and_of_one_length() {
        assert_eq!(&super::name(0), b"user0000000000");
        assert_eq!(&super::name(42), b"user0000000042");
        assert_eq!(&super::name(4_294_967_295), b"user4294967295");
    }
}
