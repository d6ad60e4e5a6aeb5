//! How near a buffer is to pausing its sender.
//!
//! A pause crosses a cable at once, a packet takes its way through a NIC or a switch first. So parts of a cluster may
//! run ahead of each other by that way as long as no buffer can come to pause within it, and that is known beforehand:
//! what is going to arrive by then is under way already.

/// What a buffer holds and what is under way to it, against the level above which it pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headroom {
    bytes: u64,
    level: u64,
    pausing: bool,
    /// Counted as one that may pause, or end a pause.
    tight: bool,
}

impl Headroom {
    /// Of a buffer that pauses above so many bytes. One whose pauses do not matter to other parts has no level.
    pub(crate) fn new(level: Option<u64>) -> Self {
        Self {
            bytes: 0,
            level: level.unwrap_or(u64::MAX),
            pausing: false,
            tight: false,
        }
    }

    /// Bytes are under way. `tight` counts the buffers of a part that are near.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32, tight: &mut usize) {
        self.bytes += u64::from(bytes);
        self.count(tight);
    }

    /// They have left, or never came in.
    #[inline]
    pub(crate) fn remove(&mut self, bytes: u32, tight: &mut usize) {
        debug_assert!(self.bytes >= u64::from(bytes), "more leaves than came");
        self.bytes -= u64::from(bytes);
        self.count(tight);
    }

    /// It has paused its sender, or let it go on.
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
