//! How near a buffer is to pausing its sender.
//!
//! A pause crosses a cable at once, but a packet first passes through a NIC or a switch. So parts of a cluster may run
//! ahead of each other by that time as long as no buffer can come to pause within it. This is known beforehand:
//! everything that arrives by then is already on its way.

/// What a buffer holds and what is on its way to it, compared with the level above which it pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    bytes: u64,
    level: u64,
    pausing: bool,
    /// Whether it is counted among the buffers that may pause, or end a pause.
    tight: bool,
}

impl Headroom {
    /// Headroom of a buffer that pauses above this many bytes. `None` for one whose pauses do not matter to other
    /// parts.
    pub(crate) fn new(level: Option<u64>) -> Self {
        Self {
            bytes: 0,
            level: level.unwrap_or(u64::MAX),
            pausing: false,
            tight: false,
        }
    }

    /// Adds bytes on their way. `tight` counts the buffers of a part that are near their level.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32, tight: &mut usize) {
        self.bytes += u64::from(bytes);
        self.count(tight);
    }

    /// Removes bytes that have left, or were never accepted.
    #[inline]
    pub(crate) fn remove(&mut self, bytes: u32, tight: &mut usize) {
        debug_assert!(self.bytes >= u64::from(bytes), "more leaves than came");
        self.bytes -= u64::from(bytes);
        self.count(tight);
    }

    /// Records that the buffer has paused its sender, or let it go on.
    #[inline]
    pub(crate) fn pause(&mut self, pausing: bool, tight: &mut usize) {
        self.pausing = pausing;
        self.count(tight);
    }

    #[inline]
    fn count(&mut self, tight: &mut usize) {
        let is_tight = self.pausing || self.bytes > self.level;
        match (self.tight, is_tight) {
            (false, true) => *tight += 1,
            (true, false) => *tight -= 1,
            _ => {}
        }
        self.tight = is_tight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_tight_above_its_level_and_while_it_pauses() {
        let mut tight = 0;
        let mut buffer = Headroom::new(Some(100));
        buffer.add(100, &mut tight);
        assert_eq!(tight, 0);
        buffer.add(1, &mut tight);
        buffer.add(1, &mut tight);
        assert_eq!(tight, 1);
        buffer.pause(true, &mut tight);
        buffer.remove(102, &mut tight);
        assert_eq!(tight, 1, "its sender is still paused");
        buffer.pause(false, &mut tight);
        assert_eq!(tight, 0);
        let mut endless = Headroom::new(None);
        endless.add(u32::MAX, &mut tight);
        assert_eq!(tight, 0);
    }
}
