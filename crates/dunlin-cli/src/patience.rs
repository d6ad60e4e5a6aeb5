//! Waiting for another process by polling, with a time limit and without starving other threads.

use std::hint::spin_loop;

use crate::clock::now_ns;
use crate::commands::Failure;

/// A side that does nothing for this time counts as gone.
const LONGEST_NS: u64 = 10_000_000_000;
/// Polls between two reads of the clock.
const STRIDE: u32 = 4096;

/// One wait.
#[derive(Debug, Default)]
pub struct Patience {
    looks: u32,
    since_ns: u64,
}

impl Patience {
    /// Called between two polls of what is waited for.
    ///
    /// # Errors
    /// When nothing has come for ten seconds.
    #[inline]
    pub fn wait(&mut self) -> Result<(), Failure> {
        self.wait_or(|| Ok(()))
    }

    /// The same, with a function that is called from time to time, when the thread yields to other processes.
    ///
    /// # Errors
    /// The error of `other`, or when nothing has come for ten seconds.
    #[inline]
    pub fn wait_or(&mut self, other: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        spin_loop();
        self.looks = self.looks.wrapping_add(1);
        if self.looks % STRIDE == 0 {
            std::thread::yield_now();
            other()?;
            if self.waited_ns() > LONGEST_NS {
                return Err(Failure::new(
                    "timed out: no progress of the other side for 10 s",
                ));
            }
        }
        Ok(())
    }

    /// Number of polls.
    #[inline]
    pub fn looks(&self) -> u32 {
        self.looks
    }

    /// The time waited; reads the clock only from time to time, and is zero otherwise.
    pub fn waited_ns(&mut self) -> u64 {
        if self.looks % STRIDE != 0 {
            return 0;
        }
        let now = now_ns();
        if self.since_ns == 0 {
            self.since_ns = now;
        }
        now - self.since_ns
    }
}
