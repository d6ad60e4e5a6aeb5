//! The free overflow buckets. The pool is in private memory: a peer that writes to the region cannot change it.

/// Numbers of overflow buckets, each free or in use.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<u32>,
    used: Vec<bool>,
}

impl Pool {
    pub(crate) fn new(buckets: u32) -> Self {
        Self {
            free: (0..buckets).rev().collect(),
            used: vec![false; buckets as usize],
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let number = self.free.pop()?;
        self.used[number as usize] = true;
        Some(number)
    }

    pub(crate) fn in_use(&self) -> u32 {
        (self.used.len() - self.free.len()) as u32
    }

    /// Returns whether it was in use. The vector has capacity for all numbers, so nothing is allocated.
    pub(crate) fn give_back(&mut self, number: u32) -> bool {
        let used = std::mem::replace(&mut self.used[number as usize], false);
        if used {
            self.free.push(number);
        }
        used
    }
}
