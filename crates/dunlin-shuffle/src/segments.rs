//! The window that receives records, as a state machine over values: it grants places, and determines which segments
//! can be sorted.
//!
//! A place is granted with a known length and is filled by the requester, without involvement of this process. A
//! segment is closed when the next place does not fit any more, and complete when everything granted in it is filled. A
//! grant waits for nothing else, so every closed segment becomes complete: a request that waits for space waits only
//! for the sorter.

use std::collections::HashMap;

/// A place that a requester may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Its number.
    pub(crate) number: u64,
    /// Offset of its first byte from the start of all segments.
    pub(crate) offset: usize,
    segment: usize,
    bytes: usize,
}

/// A complete segment: its number and the bytes that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Complete {
    pub(crate) segment: usize,
    pub(crate) bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Filling,
    Closed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    state: State,
    used: usize,
    /// Number of grants in it that are not filled yet.
    open: usize,
}

/// All segments.
#[derive(Debug)]
pub(crate) struct Segments {
    each: Vec<Segment>,
    segment_bytes: usize,
    grants: HashMap<u64, Grant>,
    next_grant: u64,
}

impl Segments {
    pub(crate) fn new(count: usize, segment_bytes: usize) -> Self {
        Self {
            each: vec![Segment::default(); count],
            segment_bytes,
            grants: HashMap::new(),
            next_grant: 0,
        }
    }

    /// Grants a place for this many bytes; also returns the segment that has become complete by this, if any. No place:
    /// all segments are in use.
    pub(crate) fn reserve(&mut self, bytes: usize) -> (Option<Grant>, Option<Complete>) {
        let filling = self.in_state(State::Filling);
        let fits = |segment: &usize| self.each[*segment].used + bytes <= self.segment_bytes;
        if let Some(segment) = filling.filter(fits) {
            return (Some(self.grant(segment, bytes)), None);
        }
        let complete = self.close();
        let free = self.in_state(State::Free);
        let grant = free.filter(|_| bytes <= self.segment_bytes).map(|segment| {
            self.each[segment].state = State::Filling;
            self.grant(segment, bytes)
        });
        (grant, complete)
    }

    fn in_state(&self, state: State) -> Option<usize> {
        self.each.iter().position(|segment| segment.state == state)
    }

    fn grant(&mut self, number: usize, bytes: usize) -> Grant {
        let segment = &mut self.each[number];
        let grant = Grant {
            number: self.next_grant,
            offset: number * self.segment_bytes + segment.used,
            segment: number,
            bytes,
        };
        segment.used += bytes;
        segment.open += bytes;
        self.next_grant += 1;
        self.grants.insert(grant.number, grant);
        grant
    }

    /// Records that a grant is filled; returns its length, and its segment if that is now complete. `None`: there is no
    /// such grant.
    pub(crate) fn fill(&mut self, grant: u64) -> Option<(usize, Option<Complete>)> {
        let grant = self.grants.remove(&grant)?;
        self.each[grant.segment].open -= grant.bytes;
        Some((grant.bytes, self.complete(grant.segment)))
    }

    /// Closes the segment that is being filled; returns it if it is already complete.
    pub(crate) fn close(&mut self) -> Option<Complete> {
        let segment = self.in_state(State::Filling)?;
        self.each[segment].state = State::Closed;
        self.complete(segment)
    }

    fn complete(&self, number: usize) -> Option<Complete> {
        let segment = self.each[number];
        let complete = Complete {
            segment: number,
            bytes: segment.used,
        };
        (segment.state == State::Closed && segment.open == 0).then_some(complete)
    }

    /// Frees a complete segment, whose contents have been copied.
    pub(crate) fn free(&mut self, segment: usize) {
        self.each[segment] = Segment::default();
    }

    /// Number of grants that are not filled yet.
    pub(crate) fn open_grants(&self) -> usize {
        self.grants.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Grants never overlap, and in the end every byte that was granted is in exactly one complete segment.
        #[test]
        fn every_place_is_granted_once(
            steps in prop::collection::vec((1usize..=30, any::<prop::sample::Index>()), 1..80),
        ) {
            let mut segments = Segments::new(3, 100);
            let mut open: Vec<Grant> = Vec::new();
            let mut complete: Vec<Complete> = Vec::new();
            let (mut granted, mut gone) = (0, 0);
            for (bytes, which) in steps {
                loop {
                    let (grant, closed) = segments.reserve(bytes);
                    complete.extend(closed);
                    if let Some(grant) = grant {
                        let range = grant.offset..grant.offset + bytes;
                        let others = open.iter().map(|other| other.offset..other.offset + other.bytes);
                        for other in others {
                            prop_assert!(range.end <= other.start || other.end <= range.start);
                        }
                        prop_assert!(range.end <= 300 && range.start / 100 == (range.end - 1) / 100);
                        granted += bytes;
                        open.push(grant);
                        break;
                    }
                    // No space: all open grants are filled, and complete segments are freed.
                    for grant in open.drain(..) {
                        let (_, closed) = segments.fill(grant.number).unwrap();
                        complete.extend(closed);
                    }
                    prop_assert!(!complete.is_empty(), "nobody would ever have room");
                    for one in complete.drain(..) {
                        gone += one.bytes;
                        segments.free(one.segment);
                    }
                }
                if which.index(3) == 0 {
                    let grant = open.swap_remove(which.index(open.len()));
                    complete.extend(segments.fill(grant.number).unwrap().1);
                    prop_assert_eq!(segments.fill(grant.number), None);
                }
            }
            complete.extend(segments.close());
            for grant in open {
                complete.extend(segments.fill(grant.number).unwrap().1);
            }
            gone += complete.iter().map(|one| one.bytes).sum::<usize>();
            prop_assert_eq!((gone, segments.open_grants()), (granted, 0));
        }
    }

    #[test]
    fn what_is_longer_than_a_segment_has_no_place() {
        let mut segments = Segments::new(2, 100);
        assert_eq!(segments.reserve(101), (None, None));
        assert!(segments.reserve(100).0.is_some());
    }
}
