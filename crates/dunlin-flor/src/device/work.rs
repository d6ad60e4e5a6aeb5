//! Posted requests, as a logical queue pair keeps them until they end.

use std::collections::VecDeque;
use std::sync::Mutex;

use dunlin_verbs::{
    Access, Payload, PostError, PostErrorKind, ReceiveRequest, Region, Segment, Transport,
};

use super::region::FlorRegion;
use super::sync::lock;

/// A piece of a region.
#[derive(Clone, Debug)]
pub(crate) struct Piece<R> {
    pub(crate) region: R,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// The bytes of a request.
#[derive(Debug)]
pub(crate) enum Bytes<R> {
    /// Copied when posted.
    Inline(Box<[u8]>),
    /// In one piece, the most frequent case, which needs no allocation.
    Piece(Piece<R>),
    /// In several pieces, or none.
    Pieces(Box<[Piece<R>]>),
}

impl<R: Region> Bytes<R> {
    fn pieces(&self) -> &[Piece<R>] {
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

    /// Copies all of them into a region.
    pub(crate) fn gather(&self, target: &R, mut at: usize) {
        if let Self::Inline(bytes) = self {
            return target.memory().write(at, bytes);
        }
        for piece in self.pieces() {
            let source = piece.region.memory();
            target
                .memory()
                .copy_from(at, source, piece.offset, piece.length);
            at += piece.length;
        }
    }

    /// Whether it is contiguous in one region.
    pub(crate) fn is_one_piece(&self) -> bool {
        match self {
            Self::Piece(_) => true,
            Self::Pieces(pieces) => pieces.len() == 1,
            Self::Inline(_) => false,
        }
    }

    /// Copies bytes in, from the first on. The caller has checked that they fit.
    pub(crate) fn scatter(&self, mut source: &[u8]) {
        for piece in self.pieces() {
            let (now, rest) = source.split_at(piece.length.min(source.len()));
            piece.region.memory().write_in_order(piece.offset, now);
            source = rest;
        }
    }

    /// The same from a region.
    pub(crate) fn scatter_from(&self, source: &R, mut at: usize, mut bytes: usize) {
        for piece in self.pieces() {
            let now = piece.length.min(bytes);
            let target = piece.region.memory();
            target.copy_from(piece.offset, source.memory(), at, now);
            at += now;
            bytes -= now;
        }
    }
}

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) segments: usize,
    pub(crate) inline_bytes: usize,
    pub(crate) message_bytes: usize,
}

/// Checks segments and keeps what they name: they must be in bounds of their regions, in the protection domain, and
/// have the access.
pub(crate) fn bytes_of<R: Region>(
    segments: &[Segment<'_, FlorRegion<R>>],
    limit: usize,
    domain: u64,
    access: Access,
) -> Result<Bytes<R>, PostErrorKind> {
    if segments.len() > limit {
        return Err(PostErrorKind::Segments {
            count: segments.len(),
            limit,
        });
    }
    let piece = |(index, segment): (usize, &Segment<'_, FlorRegion<R>>)| {
        let region = segment.region;
        let fits = region.memory().contains(segment.offset, segment.length)
            && region.domain() == domain
            && region.access().contains(access);
        if !fits {
            return Err(PostErrorKind::Segment(index));
        }
        Ok(Piece {
            region: region.inner().clone(),
            offset: segment.offset,
            length: segment.length,
        })
    };
    if let [segment] = segments {
        let piece = piece((0, segment))?;
        return Ok(match segment.region.is_adopted() {
            // Assembled elsewhere, like several pieces.
            true => Bytes::Pieces([piece].into()),
            false => Bytes::Piece(piece),
        });
    }
    let pieces: Result<Box<[Piece<R>]>, PostErrorKind> =
        segments.iter().enumerate().map(piece).collect();
    pieces.map(Bytes::Pieces)
}

/// Checks the payload of a send, which may be inline.
pub(crate) fn payload_of<R: Region>(
    payload: &Payload<'_, FlorRegion<R>>,
    limits: &Limits,
    domain: u64,
    access: Access,
) -> Result<Bytes<R>, PostErrorKind> {
    let bytes = match payload {
        Payload::Inline(bytes) => {
            let limit = limits.inline_bytes;
            let bytes = *bytes;
            if bytes.len() > limit {
                let bytes = bytes.len();
                return Err(PostErrorKind::Inline { bytes, limit });
            }
            if !access.is_empty() {
                return Err(PostErrorKind::Verb(Transport::ReliableConnection));
            }
            Bytes::Inline(bytes.into())
        }
        Payload::Segments(segments) => bytes_of(segments, limits.segments, domain, access)?,
    };
    let limit = limits.message_bytes;
    match bytes.len() {
        length if length > limit => Err(PostErrorKind::Length {
            bytes: length,
            limit,
        }),
        _ => Ok(bytes),
    }
}

/// A posted RECEIVE.
#[derive(Debug)]
pub(crate) struct Receive<R> {
    pub(crate) id: u64,
    pub(crate) bytes: Bytes<R>,
}

/// RECEIVEs that wait for messages.
#[derive(Debug)]
pub(crate) struct ReceiveQueue<R> {
    waiting: Mutex<VecDeque<Receive<R>>>,
    limit: usize,
    segments: usize,
    domain: u64,
}

impl<R: Region> ReceiveQueue<R> {
    pub(crate) fn new(limit: usize, segments: usize, domain: u64) -> Self {
        Self {
            waiting: Mutex::new(VecDeque::new()),
            limit,
            segments,
            domain,
        }
    }

    pub(crate) fn domain(&self) -> u64 {
        self.domain
    }

    pub(crate) fn pop(&self) -> Option<Receive<R>> {
        lock(&self.waiting).pop_front()
    }

    /// Checks RECEIVEs and adds them.
    pub(crate) fn post(
        &self,
        requests: &[ReceiveRequest<'_, FlorRegion<R>>],
    ) -> Result<(), PostError> {
        for (index, request) in requests.iter().enumerate() {
            self.post_one(request)
                .map_err(|kind| PostError { index, kind })?;
        }
        Ok(())
    }

    fn post_one(&self, request: &ReceiveRequest<'_, FlorRegion<R>>) -> Result<(), PostErrorKind> {
        let segments = request.segments;
        let access = Access::LOCAL_WRITE;
        let bytes = bytes_of(segments, self.segments, self.domain, access)?;
        let mut waiting = lock(&self.waiting);
        let limit = self.limit;
        if waiting.len() >= limit {
            return Err(PostErrorKind::Full { limit });
        }
        let id = request.id;
        waiting.push_back(Receive { id, bytes });
        Ok(())
    }
}
