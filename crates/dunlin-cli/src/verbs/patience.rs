//! Waiting for the other side by polling: not for ever, and not at the price of everybody else.

use std::hint::spin_loop;

use dunlin_verbs::{Device, QueuePairState};

use super::endpoint::Endpoint;
use crate::clock::now_ns;
use crate::commands::Failure;

/// A peer that says nothing for so long is gone.
const LONGEST_NS: u64 = 10_000_000_000;
/// Looks between two looks at the clock.
const STRIDE: u32 = 4096;

/// One wait.
#[derive(Debug, Default)]
pub struct Patience {
    looks: u32,
    since_ns: u64,
}

impl Patience {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Between two looks at what is waited for: lets the device go on, and at times other processes too.
    ///
    /// # Errors
    /// When the device reports a failure, or the peer has said nothing for ten seconds.
    #[inline]
    pub fn wait<D: Device>(&mut self, endpoint: &mut Endpoint<D>) -> Result<(), Failure> {
        if self.looks % 16 == 0 {
            endpoint.reap()?;
        }
        self.pause(endpoint)
    }

    /// The same for those who poll completions of sends themselves.
    ///
    /// # Errors
    /// When the peer has said nothing for ten seconds.
    #[inline]
    pub fn pause<D: Device>(&mut self, endpoint: &Endpoint<D>) -> Result<(), Failure> {
        spin_loop();
        self.looks = self.looks.wrapping_add(1);
        if self.looks % STRIDE == 0 {
            std::thread::yield_now();
            if endpoint.state() == QueuePairState::Error {
                return Err(gone("its queue pair is in error"));
            }
            if self.waited_ns() > LONGEST_NS {
                return Err(gone("nothing heard for 10 s"));
            }
        }
        Ok(())
    }

    /// For how long; looks at the clock now and then only, and is zero between.
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

fn gone(why: &str) -> Failure {
    Failure::new(format!("the peer process does not answer: {why}"))
}
