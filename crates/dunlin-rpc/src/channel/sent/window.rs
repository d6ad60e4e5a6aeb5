//! How many messages may be on their way: X-RDMA's window of sequence numbers and acknowledgements, as values.
//!
//! A SEND needs a RECEIVE at the peer. Each message says how many of the peer's messages have given their RECEIVEs
//! back, so the peer knows how many more it may send; a message without anything else says so where no other goes.

use crate::channel::ChannelError;

/// Messages of the window that only words about it may use, so that they are not held back by what they tell of.
const KEPT: u64 = 2;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// RECEIVEs of the peer, and ours.
    theirs: u64,
    ours: u64,
    /// Messages that were made, ever, and those whose RECEIVEs have been given back.
    made: u64,
    freed: u64,
    /// Those of the peer whose RECEIVEs were given back here, and how many of them it was told.
    taken: u64,
    told: u64,
}

impl Window {
    /// The least RECEIVEs of a side.
    pub(super) const LEAST: usize = 8;

    /// With so many RECEIVEs at the peer and here.
    pub(super) fn new(theirs: usize, ours: usize) -> Self {
        Self {
            theirs: theirs as u64,
            ours: ours as u64,
            made: 0,
            freed: 0,
            taken: 0,
            told: 0,
        }
    }

    /// Whether a message may be made that carries something.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.made - self.freed < self.theirs - KEPT
    }

    /// Whether any may be made.
    #[inline]
    pub(super) fn has_room_for_word(&self) -> bool {
        self.made - self.freed < self.theirs
    }

    /// Messages that were made, ever.
    #[inline]
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// A message is made, for which there was room.
    #[inline]
    pub(super) fn make(&mut self) {
        self.made += 1;
    }

    /// What the message that is sent next tells of the peer's.
    #[inline]
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.taken;
        self.taken as u32
    }

    /// A RECEIVE was given back.
    #[inline]
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// Whether the peer is to be told by a message of its own: once in a quarter of our RECEIVEs.
    #[inline]
    pub(super) fn owes_word(&self) -> bool {
        self.taken - self.told >= self.ours / 4
    }

    /// The peer tells how many of our messages have given their RECEIVEs back.
    ///
    /// # Errors
    /// When it tells of more than there were.
    #[inline]
    pub(super) fn hear(&mut self, told: u32) -> Result<(), ChannelError> {
        let more = u64::from(told.wrapping_sub(self.freed as u32));
        if more > self.made - self.freed {
            return Err(ChannelError::violation(
                "it claims to have taken messages that were never sent",
            ));
        }
        self.freed += more;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// One end, and what is on its way to it: what each message tells, and whether it carries something.
    struct End {
        window: Window,
        coming: VecDeque<(u32, bool)>,
        to_send: usize,
        taken: usize,
    }

    impl End {
        fn new(theirs: usize, ours: usize, to_send: usize) -> Self {
            Self {
                window: Window::new(theirs, ours),
                coming: VecDeque::new(),
                to_send,
                taken: 0,
            }
        }

        /// Says what it sends, if it sends something.
        fn send(&mut self) -> Option<(u32, bool)> {
            let carries = self.to_send > 0 && self.window.has_room();
            let word = self.window.owes_word() && self.window.has_room_for_word();
            if !carries && !word {
                return None;
            }
            self.window.make();
            self.to_send -= usize::from(carries);
            Some((self.window.tell(), carries))
        }

        fn take(&mut self) -> bool {
            let Some((told, carries)) = self.coming.pop_front() else {
                return false;
            };
            self.window.hear(told).unwrap();
            self.window.take();
            self.taken += usize::from(carries);
            true
        }
    }

    proptest! {
        /// Whoever has its turn, no message comes without a RECEIVE for it, and in the end all have come.
        #[test]
        fn all_messages_come_and_each_finds_a_receive(
            receives in prop::array::uniform2(Window::LEAST..40),
            messages in prop::array::uniform2(0_usize..300),
            turns in prop::collection::vec(0_u8..4, 0..400),
        ) {
            let mut ends = [
                End::new(receives[1], receives[0], messages[0]),
                End::new(receives[0], receives[1], messages[1]),
            ];
            let act = |turn: u8, ends: &mut [End; 2]| {
                let side = usize::from(turn & 1);
                if turn & 2 != 0 {
                    return ends[side].take();
                }
                let Some(message) = ends[side].send() else {
                    return false;
                };
                let other = &mut ends[1 - side];
                other.coming.push_back(message);
                assert!(other.coming.len() <= receives[1 - side]);
                true
            };
            for turn in turns {
                act(turn, &mut ends);
            }
            while (0..4).any(|turn| act(turn, &mut ends)) {}
            prop_assert_eq!([ends[1].taken, ends[0].taken], messages);
        }
    }

    #[test]
    fn a_peer_cannot_have_taken_what_was_not_sent() {
        let mut window = Window::new(8, 8);
        window.make();
        window.hear(1).unwrap();
        window.hear(1).unwrap();
        assert!(window.hear(2).unwrap_err().is_violation());
        assert!(window.hear(0).unwrap_err().is_violation());
    }
}
