//! A running transfer: which connection carries each piece, and waiting for them.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use dunlin_verbs::thread;

use super::lane::TransferLane;
use super::pieces::Pieces;
use super::way::{Piece, Way};
use super::{Progress, TransferError, AT_ONCE_BYTES, PIECES_OUT};
use crate::error::CallError;

/// One transfer. Outstanding pieces end with their connections: if the transfer is not completed, those are given up.
pub(super) struct Moving<'m, 't, W: Way + ?Sized> {
    lanes: &'m mut Vec<TransferLane<'t>>,
    progress: &'m mut Option<Progress<'t>>,
    /// Its offset in the region.
    offset: u64,
    pieces: Pieces,
    way: &'m mut W,
    /// Number of bytes that had arrived at the last check.
    seen: u64,
    /// Since when no piece has been outstanding, although there are some left.
    idle_since: Option<Instant>,
    /// The error that was returned for a piece.
    failed: Option<CallError>,
}

/// What to do next.
enum Next {
    /// All has arrived.
    Done,
    /// Check again: there was progress.
    Look,
    /// Wait for a response on this lane.
    Wait(usize),
    /// Nothing is outstanding, because other calls have the room.
    NoRoom,
}

impl<W: Way + ?Sized> Drop for Moving<'_, '_, W> {
    fn drop(&mut self) {
        if self.pieces.arrived() < self.pieces.length as u64 {
            self.lanes.clear();
        }
    }
}

impl<'m, 't, W: Way + ?Sized> Moving<'m, 't, W> {
    pub(super) fn new(
        lanes: &'m mut Vec<TransferLane<'t>>,
        progress: &'m mut Option<Progress<'t>>,
        (offset, pieces): (u64, Pieces),
        way: &'m mut W,
    ) -> Self {
        Self {
            lanes,
            progress,
            offset,
            pieces,
            way,
            seen: 0,
            idle_since: None,
            failed: None,
        }
    }

    /// Blocks until all has arrived.
    pub(super) fn run(&mut self) -> Result<(), CallError> {
        loop {
            match self.advance()? {
                Next::Done => return Ok(()),
                Next::Look => {}
                Next::NoRoom => thread::give_way(),
                Next::Wait(index) => {
                    let (way, pieces, failed) =
                        (&mut *self.way, &mut self.pieces, &mut self.failed);
                    let answer = answered(way, pieces, failed);
                    self.lanes[index].pipeline.wait(answer)?;
                }
            }
        }
    }

    /// The same for a task.
    pub(super) async fn run_async(&mut self) -> Result<(), CallError> {
        loop {
            match self.advance()? {
                Next::Done => return Ok(()),
                Next::Look | Next::NoRoom => give_way().await,
                Next::Wait(index) => {
                    let (way, pieces, failed) =
                        (&mut *self.way, &mut self.pieces, &mut self.failed);
                    let answer = answered(way, pieces, failed);
                    self.lanes[index].pipeline.wait_async(answer).await?;
                }
            }
        }
    }

    /// The result of the transfer.
    pub(super) fn end(self, ended: Result<(), CallError>) -> Result<(), TransferError> {
        ended.map_err(|cause| TransferError {
            arrived: self.pieces.arrived(),
            total: self.pieces.length as u64,
            cause,
        })
    }

    /// Sends as much as there is room for, and takes what has arrived.
    fn advance(&mut self) -> Result<Next, CallError> {
        let mut taken = 0;
        if !self.move_at_once() {
            self.submit()?;
            for lane in &mut *self.lanes {
                let answer = answered(&mut *self.way, &mut self.pieces, &mut self.failed);
                taken += lane.pipeline.poll(answer)?;
            }
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let arrived = self.pieces.arrived();
        let before = std::mem::replace(&mut self.seen, arrived);
        if let Some(report) = self.progress.as_mut().filter(|_| arrived > before) {
            report(arrived);
        }
        if arrived == self.pieces.length as u64 {
            return Ok(Next::Done);
        }
        if taken > 0 || arrived > before {
            self.idle_since = None;
            return Ok(Next::Look);
        }
        let mut lanes = self.lanes.iter();
        if let Some(busy) = lanes.position(|lane| lane.pipeline.outstanding() > 0) {
            self.idle_since = None;
            return Ok(Next::Wait(busy));
        }
        let now = thread::now();
        let after = self.lanes[0].region.deadline();
        if now.duration_since(*self.idle_since.get_or_insert(now)) > after {
            return Err(CallError::DeadlineExceeded { after });
        }
        Ok(Next::NoRoom)
    }

    /// Copies the next pieces directly, if the memory of the region is mapped here and none is outstanding. Returns
    /// whether it did.
    fn move_at_once(&mut self) -> bool {
        let mut lanes = self.lanes.iter();
        if !lanes.all(|lane| lane.pipeline.outstanding() == 0) {
            return false;
        }
        let Some((range, last)) = self.pieces.next_within(AT_ONCE_BYTES) else {
            return false;
        };
        let piece = Piece {
            lane: &mut self.lanes[0],
            at: self.offset + range.start as u64,
            range,
        };
        let moved = self.way.at_once(piece);
        if moved {
            let first = self.pieces.sent;
            self.pieces.sent = last + 1;
            (first..=last).for_each(|number| self.pieces.arrive(number));
        }
        moved
    }

    fn submit(&mut self) -> Result<(), CallError> {
        for lane in &mut *self.lanes {
            while lane.pipeline.outstanding() < PIECES_OUT {
                let Some(range) = self.pieces.next() else {
                    return Ok(());
                };
                let piece = Piece {
                    lane: &mut *lane,
                    at: self.offset + range.start as u64,
                    range,
                };
                if !self.way.submit(piece, self.pieces.sent as u64)? {
                    break;
                }
                self.pieces.sent += 1;
            }
        }
        Ok(())
    }
}

/// Takes the responses to pieces, by their numbers.
fn answered<'a, W: Way + ?Sized>(
    way: &'a mut W,
    pieces: &'a mut Pieces,
    failed: &'a mut Option<CallError>,
) -> impl FnMut(u64, Result<&[u8], CallError>) + 'a {
    move |tag, answer| match answer {
        Ok(bytes) => {
            way.take(pieces.range(tag as usize), bytes);
            pieces.arrive(tag as usize);
        }
        Err(error) => *failed = Some(error),
    }
}

/// Yields to other tasks of the executor.
async fn give_way() {
    let mut was_polled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
