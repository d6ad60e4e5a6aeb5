//! The design space of RDMA rings (RB² Table I) as a value: every ring of this crate is a point in it.

use crate::error::ConfigError;

/// How messages lie in the arrays (RB² C3 and C5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// An array of equal slots; a message begins at a slot and takes as many as it needs.
    SlotToSlot,
    /// One message right behind the other, on multiples of eight bytes.
    BackToBack,
    /// Slots that are nodes of a list: each says which one comes next. A message takes one.
    LinkedSlots,
}

/// How the producer learns what the consumer has read (RB² §IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadSync {
    /// The consumer WRITEs its head after every γ slots.
    LazyPush,
    /// The producer READs the head after every γ slots that it has written, without waiting for it, and when its copy
    /// says that the ring is full. With a γ of the whole ring it READs only then.
    LazyPull,
    /// The consumer WRITEs its head after every message.
    ActivePush,
}

/// How the consumer learns what the producer has written (RB² §IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TailSync {
    /// A WRITE of the slots, then a WRITE of the tail, in order on one queue pair. Right on every device.
    WriteTwice,
    /// A WRITE with immediate data, which says how far the tail moved; the consumer polls its completion queue.
    CompletionQueue,
    /// The consumer polls the length at the start of the next message, then the byte behind its end. Needs a device
    /// that places a WRITE in address order, and a consumer that zeroes what it has read.
    PollMessage,
    /// A WRITE of the message without its length, then a WRITE of the length, which the consumer polls: what RB² §V-A
    /// made of FaRM for NICs that place in any order. The consumer zeroes what it has read.
    PollLength,
}

/// When the producer hands messages to the device (RB² §IV-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batching {
    /// Each message at once: latency mode.
    Off,
    /// Adaptive batching, thresholds in slots.
    Adaptive {
        /// α: pointer advancement, the tail is synchronised after so many slots.
        advance_slots: u32,
        /// β: slot transmission, slots are WRITTEN after so many, before the tail is synchronised.
        transmit_slots: u32,
        /// Synchronisation-ahead transmission. Off, slots are WRITTEN only together with the tail.
        sync_ahead: bool,
        /// Elastic threshold: no tail is WRITTEN while the one before it is under way. Off, every α slots.
        elastic: bool,
    },
    /// At once while fewer than so many WRITEs are under way, together otherwise (SocksDirect). Each WRITE makes a
    /// completion.
    InFlight {
        /// WRITEs under way at most.
        most: u32,
    },
}

/// A point in the design space. The constants are RB² and the rings it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    /// What it is called in reports.
    pub name: &'static str,
    /// Where messages lie.
    pub layout: Layout,
    /// Whether the producer has the array too (RB² C4). Without it each message is WRITTEN from where it was made, and
    /// is its own tail.
    pub mirrored: bool,
    /// How the head crosses.
    pub head_sync: HeadSync,
    /// γ: slots that are read before a lazy push, or written before a lazy pull.
    pub push_slots: u32,
    /// How the tail crosses.
    pub tail_sync: TailSync,
    /// When messages are handed to the device.
    pub batching: Batching,
    /// Whether messages are made and read in the arrays themselves. Off, both ends copy through a buffer of their own,
    /// whatever calls the user makes.
    pub zero_copy: bool,
    /// Whether shared pointers have a cache line each and slots begin on one (RB² §IV-C). Off, pointers are packed and
    /// the array begins right behind them, so that each slot straddles a line more.
    pub cache_lines: bool,
}

/// One optimisation of RB² that can be switched off by itself (RB² Exp#4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Optimisation {
    /// M2: all batching of messages.
    Batching,
    /// M3: synchronisation-ahead transmission.
    SyncAhead,
    /// M4: the elastic threshold.
    Elastic,
    /// M5: the lazy push; the head is pushed after every message.
    LazyPush,
    /// M6: zero copy, both ends.
    ZeroCopy,
    /// M7: pointers and slots on cache lines of their own.
    CacheLines,
}

impl Design {
    /// RB² as the paper sets it up: α 32, β 16, γ 32 (§V-A).
    pub const RB2: Self = Self {
        name: "rb2",
        layout: Layout::SlotToSlot,
        mirrored: true,
        head_sync: HeadSync::LazyPush,
        push_slots: 32,
        tail_sync: TailSync::WriteTwice,
        batching: Batching::Adaptive {
            advance_slots: 32,
            transmit_slots: 16,
            sync_ahead: true,
            elastic: true,
        },
        zero_copy: true,
        cache_lines: true,
    };

    /// FaRM's ring: an array at the consumer only, messages back to back, found by polling them. On devices that place
    /// in any order use [`Design::FARM_UNORDERED`].
    pub const FARM: Self = Self {
        name: "farm",
        layout: Layout::BackToBack,
        mirrored: false,
        head_sync: HeadSync::LazyPush,
        push_slots: 32,
        tail_sync: TailSync::PollMessage,
        batching: Batching::Off,
        zero_copy: false,
        cache_lines: false,
    };

    /// FaRM's ring as RB² §V-A modified it: the data, then its length.
    pub const FARM_UNORDERED: Self = Self {
        tail_sync: TailSync::PollLength,
        ..Self::FARM
    };

    /// SocksDirect's ring: back to back, WRITE with immediate data, messages gathered while ten WRITEs are under way,
    /// copies.
    pub const SOCKSDIRECT: Self = Self {
        name: "socksdirect",
        mirrored: true,
        tail_sync: TailSync::CompletionQueue,
        batching: Batching::InFlight { most: 10 },
        ..Self::FARM
    };

    /// L5's ring: back to back, write twice, no batching.
    pub const L5: Self = Self {
        name: "l5",
        mirrored: true,
        tail_sync: TailSync::WriteTwice,
        ..Self::FARM
    };

    /// MVAPICH's ring: a list of slots, active push, found by polling messages.
    pub const MVAPICH: Self = Self {
        name: "mvapich",
        layout: Layout::LinkedSlots,
        mirrored: true,
        head_sync: HeadSync::ActivePush,
        push_slots: 1,
        tail_sync: TailSync::PollMessage,
        batching: Batching::Off,
        zero_copy: false,
        cache_lines: true,
    };

    /// RB² with each message sent at once: what the paper uses for ping-pong and HTTP.
    pub const RB2_LATENCY: Self = Self {
        batching: Batching::Off,
        ..Self::RB2
    };

    /// All that have a name.
    pub const ALL: [Self; 5] = [
        Self::RB2,
        Self::FARM,
        Self::SOCKSDIRECT,
        Self::L5,
        Self::MVAPICH,
    ];

    /// The same design with one optimisation switched off.
    #[must_use]
    pub fn without(mut self, optimisation: Optimisation) -> Self {
        match (optimisation, &mut self.batching) {
            (Optimisation::Batching, batching) => *batching = Batching::Off,
            (Optimisation::SyncAhead, Batching::Adaptive { sync_ahead, .. }) => *sync_ahead = false,
            (Optimisation::Elastic, Batching::Adaptive { elastic, .. }) => *elastic = false,
            (Optimisation::SyncAhead | Optimisation::Elastic, _) => {}
            (Optimisation::LazyPush, _) => self.head_sync = HeadSync::ActivePush,
            (Optimisation::ZeroCopy, _) => self.zero_copy = false,
            (Optimisation::CacheLines, _) => self.cache_lines = false,
        }
        self
    }

    /// Whether the consumer finds messages by looking at them, and so has to zero them.
    #[inline(always)]
    pub(crate) fn polls_messages(&self) -> bool {
        matches!(self.tail_sync, TailSync::PollMessage | TailSync::PollLength)
    }

    /// Refuses choices that contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let contradiction = |what| Err(ConfigError::Design { what });
        if let Batching::Adaptive {
            advance_slots,
            transmit_slots,
            ..
        } = self.batching
        {
            // RB² §IV-B asks for α > β; equal is the case without synchronisation-ahead transmission.
            if transmit_slots == 0 || advance_slots < transmit_slots {
                return contradiction("α is at least β, and β at least 1");
            }
        }
        if matches!(self.batching, Batching::InFlight { most: 0 }) {
            return contradiction("at least one WRITE may be under way");
        }
        if self.push_slots == 0 {
            return contradiction("γ is at least 1");
        }
        if self.polls_messages() && self.batching != Batching::Off {
            return contradiction("messages that are polled are their own tail: no batching");
        }
        if !self.mirrored && self.batching != Batching::Off {
            return contradiction("without an array at the producer there is nothing to batch in");
        }
        if self.layout == Layout::LinkedSlots && self.batching != Batching::Off {
            return contradiction("linked slots do not lie side by side: no batching");
        }
        // A message with a tail beside it may wait in the array for an entry of the send queue, and is then sent
        // together with the next one: from a place of its own, side by side with it.
        if !self.mirrored && !self.polls_messages() {
            return contradiction(
                "without an array at the producer a message is its own tail: poll messages or lengths",
            );
        }
        if self.layout == Layout::LinkedSlots && !self.polls_messages() {
            return contradiction("a linked slot is its own tail: poll messages or lengths");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_designs_hold_together() {
        for design in Design::ALL {
            design.check().unwrap();
        }
        Design::FARM_UNORDERED.check().unwrap();
        Design::RB2_LATENCY.check().unwrap();
    }

    #[test]
    fn each_optimisation_is_switched_off_by_itself() {
        let all = [
            Optimisation::Batching,
            Optimisation::SyncAhead,
            Optimisation::Elastic,
            Optimisation::LazyPush,
            Optimisation::ZeroCopy,
            Optimisation::CacheLines,
        ];
        for one in all {
            let without = Design::RB2.without(one);
            assert_ne!(without, Design::RB2, "{one:?}");
            without.check().unwrap();
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let mut design = Design::RB2;
        design.tail_sync = TailSync::PollMessage;
        assert!(design.check().is_err());
        let mut design = Design::RB2;
        design.mirrored = false;
        assert!(design.check().is_err());
    }

    #[test]
    fn a_tail_beside_the_messages_needs_them_side_by_side_in_an_array() {
        for tail_sync in [TailSync::WriteTwice, TailSync::CompletionQueue] {
            for design in [Design::FARM, Design::MVAPICH] {
                let design = Design {
                    tail_sync,
                    ..design
                };
                assert!(design.check().is_err(), "{design:?}");
            }
        }
        for design in [Design::FARM, Design::MVAPICH] {
            let tail_sync = TailSync::PollLength;
            let design = Design {
                tail_sync,
                ..design
            };
            design.check().unwrap();
        }
    }
}
