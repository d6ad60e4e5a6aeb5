//! Posted requests, as the device keeps them until they end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dunlin_verbs::CompletionOpcode;

use crate::memory::RegionCore;
use crate::sync::lock;

/// A piece of a local region.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) region: Arc<RegionCore>,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// The bytes of a request.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Copied when posted.
    Inline(Box<[u8]>),
    /// In one piece, the most frequent case, which needs no allocation.
    Piece(Piece),
    /// In several pieces, or none.
    Pieces(Box<[Piece]>),
}

/// The registration has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Bytes {
    fn pieces(&self) -> &[Piece] {
        match self {
            Self::Inline(_) => &[],
            Self::Piece(piece) => std::slice::from_ref(piece),
            Self::Pieces(pieces) => pieces,
        }
    }

    /// Total length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            _ => self.pieces().iter().map(|piece| piece.length).sum(),
        }
    }

    /// The region that contains all of `offset .. offset + length`, and the offset there; `None` if it is in several
    /// pieces, or none.
    pub(crate) fn in_one_piece(
        &self,
        mut offset: usize,
        length: usize,
    ) -> Option<(&Arc<RegionCore>, usize)> {
        for piece in self.pieces() {
            if offset < piece.length {
                let fits = length <= piece.length - offset;
                return fits.then_some((&piece.region, piece.offset + offset));
            }
            offset -= piece.length;
        }
        None
    }

    /// Calls `each` with the parts of `offset .. offset + length`: a piece, the offset in its region, and the range of
    /// the caller's bytes.
    fn walk(
        &self,
        offset: usize,
        length: usize,
        mut each: impl FnMut(&Piece, usize, std::ops::Range<usize>) -> Result<(), Gone>,
    ) -> Result<(), Gone> {
        let (mut skip, mut done) = (offset, 0);
        for piece in self.pieces() {
            if done == length {
                break;
            }
            if skip >= piece.length {
                skip -= piece.length;
                continue;
            }
            let part = (piece.length - skip).min(length - done);
            each(piece, piece.offset + skip, done..done + part)?;
            done += part;
            skip = 0;
        }
        debug_assert_eq!(done, length, "the caller stays within the message");
        Ok(())
    }

    /// Copies out, from `offset` on. If the registration has ended, the target is zeroed: it may have held bytes of
    /// others.
    pub(crate) fn gather(&self, offset: usize, target: &mut [u8]) -> Result<(), Gone> {
        let gathered = self.gather_into(offset, target);
        if gathered.is_err() {
            target.fill(0);
        }
        gathered
    }

    fn gather_into(&self, offset: usize, target: &mut [u8]) -> Result<(), Gone> {
        if let Self::Inline(bytes) = self {
            target.copy_from_slice(&bytes[offset..offset + target.len()]);
            return Ok(());
        }
        self.walk(offset, target.len(), |piece, place, range| {
            let target = &mut target[range];
            piece
                .region
                .access(place, target.len(), |memory| memory.read(place, target))
                .ok_or(Gone)
        })
    }

    /// Copies in, from `offset` on.
    pub(crate) fn scatter(&self, offset: usize, source: &[u8]) -> Result<(), Gone> {
        self.walk(offset, source.len(), |piece, place, range| {
            let written = piece.region.write_in_order(place, &source[range]);
            written.then_some(()).ok_or(Gone)
        })
    }
}

/// A posted send.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) id: u64,
    pub(crate) opcode: CompletionOpcode,
    pub(crate) signaled: bool,
    pub(crate) bytes: Bytes,
}

/// A posted RECEIVE.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) bytes: Bytes,
}

/// RECEIVEs that wait for messages.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    waiting: Mutex<VecDeque<Receive>>,
    pub(crate) limit: usize,
    pub(crate) segments: usize,
    pub(crate) domain: u64,
}

impl ReceiveQueue {
    pub(crate) fn new(limit: usize, segments: usize, domain: u64) -> Self {
        Self {
            waiting: Mutex::new(VecDeque::new()),
            limit,
            segments,
            domain,
        }
    }

    /// Adds a RECEIVE; `false` if the queue is full.
    pub(crate) fn push(&self, receive: Receive) -> bool {
        let mut waiting = lock(&self.waiting);
        let fits = waiting.len() < self.limit;
        if fits {
            waiting.push_back(receive);
        }
        fits
    }

    /// Returns a RECEIVE that was taken but not used: it is for the next message. RECEIVEs posted meanwhile may have
    /// filled the queue, but its place was counted before.
    pub(crate) fn put_back(&self, receive: Receive) {
        lock(&self.waiting).push_front(receive);
    }

    pub(crate) fn pop(&self) -> Option<Receive> {
        lock(&self.waiting).pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Grant;
    use dunlin_verbs::Access;

    fn region(length: usize) -> Arc<RegionCore> {
        let grant = Grant {
            domain: 1,
            access: Access::LOCAL_WRITE,
            key: 7,
        };
        Arc::new(RegionCore::allocate(grant, length, false).unwrap())
    }

    #[test]
    fn pieces_are_walked_from_any_place_to_any_other() {
        let (a, b) = (region(10), region(10));
        let piece = |region: &Arc<RegionCore>, offset, length| Piece {
            region: Arc::clone(region),
            offset,
            length,
        };
        let pieces = Bytes::Pieces(
            [
                piece(&a, 2, 3),
                piece(&b, 0, 0),
                piece(&b, 4, 5),
                piece(&a, 7, 2),
            ]
            .into(),
        );
        assert_eq!(pieces.len(), 10);
        let whole = |start, length| pieces.in_one_piece(start, length).map(|(_, place)| place);
        assert_eq!(
            [whole(0, 3), whole(1, 2), whole(3, 5)],
            [Some(2), Some(3), Some(4)]
        );
        assert_eq!([whole(0, 4), whole(8, 3), whole(10, 0)], [None; 3]);
        let text = *b"0123456789";
        for start in 0..10 {
            for end in start..=10 {
                pieces.scatter(0, &[b'.'; 10]).unwrap();
                pieces.scatter(start, &text[start..end]).unwrap();
                let mut all = [0; 10];
                pieces.gather(0, &mut all).unwrap();
                let mut expected = [b'.'; 10];
                expected[start..end].copy_from_slice(&text[start..end]);
                assert_eq!(all, expected);
                let mut part = vec![0; end - start];
                pieces.gather(start, &mut part).unwrap();
                assert_eq!(part, expected[start..end]);
                if let Some((region, place)) = pieces.in_one_piece(start, end - start) {
                    let read = |memory: &dunlin_verbs::Memory| memory.read(place, &mut part);
                    region.access(place, end - start, read).unwrap();
                    assert_eq!(part, expected[start..end]);
                }
            }
        }
    }

    #[test]
    fn ended_registrations_are_not_touched() {
        let a = region(8);
        let bytes = Bytes::Piece(Piece {
            region: Arc::clone(&a),
            offset: 0,
            length: 8,
        });
        bytes.scatter(0, &[1; 8]).unwrap();
        a.end();
        assert_eq!(bytes.gather(0, &mut [0; 8]), Err(Gone));
        assert_eq!(bytes.scatter(0, &[2; 8]), Err(Gone));
    }
}
