//! A table of reusable entries, named by index.

/// Entries keep their allocations when they are given back: a packet's buffer is reused by the next packet.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes a free entry, in the state in which it was given back.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(T::default());
                (self.entries.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, index: u32) {
        debug_assert!(
            !self.free.contains(&index) || self.free.len() > 64,
            "given back twice"
        );
        self.free.push(index);
    }

    /// Number of entries in use.
    pub(crate) fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}
