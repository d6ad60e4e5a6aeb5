//! The design space of RDMA rings (RB² Table I) as a value: every ring of this crate is a point in it.

use crate::error::ConfigError;

/// How messages are laid out in the arrays (RB² C3 and C5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// An array of equal slots; a message begins at a slot and takes as many as it needs.
    SlotToSlot,
    /// Messages directly behind one another, aligned to eight bytes.
    BackToBack,
    /// Slots that are nodes of a linked list: each names the next one. A message takes one slot.
    LinkedSlots,
}

/// How the producer learns what the consumer has read (RB² §IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadSync {
    /// The consumer WRITEs its head after every γ slots.
    LazyPush,
    /// The producer READs the head after every γ slots that it has written, without waiting for the result, and also
    /// when its copy says that the ring is full. With a γ of the whole ring it READs only in that case.
    LazyPull,
    /// The consumer WRITEs its head after every message.
    ActivePush,
}

/// How the consumer learns what the producer has written (RB² §IV-A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TailSync {
    /// A WRITE of the slots, then a WRITE of the tail, in order on one queue pair. Correct on every device.
    WriteTwice,
    /// A WRITE with immediate data that gives the advance of the tail; the consumer polls its completion queue.
    CompletionQueue,
    /// The consumer polls the length at the start of the next message, then the byte behind its end. Requires a device
    /// that places a WRITE in address order, and a consumer that zeroes what it has read.
    PollMessage,
    /// A WRITE of the message without its length, then a WRITE of the length, which the consumer polls: RB² §V-A's
    /// adaptation of FaRM to NICs that place in any order. The consumer zeroes what it has read.
    PollLength,
}

/// When the producer passes messages to the device (RB² §IV-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batching {
    /// Each message immediately: latency mode.
    Off,
    /// Adaptive batching, with thresholds in slots.
    Adaptive {
        /// α: pointer advancement; the tail is synchronised after this many slots.
        advance_slots: u32,
        /// β: slot transmission; slots are WRITTEN after this many, before the tail is synchronised.
        transmit_slots: u32,
        /// Synchronisation-ahead transmission. If off, slots are WRITTEN only together with the tail.
        sync_ahead: bool,
        /// Elastic threshold: no tail is WRITTEN while the previous one is in flight. If off, it is written every α
        /// slots.
        elastic: bool,
    },
    /// Immediately while fewer than `most` WRITEs are in flight, together otherwise (SocksDirect). Each WRITE generates
    /// a completion.
    InFlight {
        /// Maximum number of WRITEs in flight.
        most: u32,
    },
}

/// A point in the design space. The constants are RB² and the rings it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    /// Its name in reports.
    pub name: &'static str,
    /// Message layout.
    pub layout: Layout,
    /// Whether the producer has the array too (RB² C4). Without it, each message is WRITTEN from where it was made, and
    /// is its own tail.
    pub mirrored: bool,
    /// How the head is synchronised.
    pub head_sync: HeadSync,
    /// γ: slots that are read before a lazy push, or written before a lazy pull.
    pub push_slots: u32,
    /// How the tail is synchronised.
    pub tail_sync: TailSync,
    /// When messages are passed to the device.
    pub batching: Batching,
    /// Whether messages are made and read in the arrays themselves. If off, both ends copy through a private buffer,
    /// whichever functions the user calls.
    pub zero_copy: bool,
    /// Whether each shared pointer has its own cache line and slots begin on one (RB² §IV-C). If off, pointers are
    /// packed and the array begins directly behind them, so that each slot straddles one more line.
    pub cache_lines: bool,
}

/// An optimisation of RB² that can be switched off individually (RB² Exp#4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Optimisation {
    /// M2: all message batching.
    Batching,
    /// M3: synchronisation-ahead transmission.
    SyncAhead,
    /// M4: the elastic threshold.
    Elastic,
    /// M5: the lazy push; without it, the head is pushed after every message.
    LazyPush,
    /// M6: zero copy, both ends.
    ZeroCopy,
    /// M7: pointers and slots on separate cache lines.
    CacheLines,
}

impl Design {
    /// RB² with the paper's parameters: α 32, β 16, γ 32 (§V-A).
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

    /// FaRM's ring: an array at the consumer only, messages back to back, detected by polling. On devices that place in
    /// any order use [`Design::FARM_UNORDERED`].
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

    /// SocksDirect's ring: back to back, WRITE with immediate data, messages batched while ten WRITEs are in flight,
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

    /// MVAPICH's ring: a list of slots, active push, messages detected by polling.
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

    /// RB² with each message sent immediately, as the paper uses it for ping-pong and HTTP.
    pub const RB2_LATENCY: Self = Self {
        batching: Batching::Off,
        ..Self::RB2
    };

    /// All named designs.
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

    /// Whether the consumer detects messages by polling them, and so has to zero them.
    #[inline(always)]
    pub(crate) fn polls_messages(&self) -> bool {
        matches!(self.tail_sync, TailSync::PollMessage | TailSync::PollLength)
    }

    /// Rejects contradictory choices.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let contradiction = |what| Err(ConfigError::Design { what });
        if let Batching::Adaptive {
            advance_slots,
            transmit_slots,
            ..
        } = self.batching
        {
            // RB² §IV-B requires α > β; equality is the case without synchronisation-ahead transmission.
            if transmit_slots == 0 || advance_slots < transmit_slots {
                return contradiction("α must be at least β, and β at least 1");
            }
        }
        if matches!(self.batching, Batching::InFlight { most: 0 }) {
            return contradiction("at least one WRITE must be allowed in flight");
        }
        if self.push_slots == 0 {
            return contradiction("γ must be at least 1");
        }
        if self.polls_messages() && self.batching != Batching::Off {
            return contradiction("polled messages are their own tail, so they cannot be batched");
        }
        if !self.mirrored && self.batching != Batching::Off {
            return contradiction("without an array at the producer, messages cannot be batched");
        }
        if self.layout == Layout::LinkedSlots && self.batching != Batching::Off {
            return contradiction("linked slots are not adjacent, so they cannot be batched");
        }
        // A message with a separate tail may wait in the array for an entry of the send queue, and is then sent
        // together with the next one, so the messages need adjacent places.
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
