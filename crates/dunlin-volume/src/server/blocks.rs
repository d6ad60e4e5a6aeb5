//! Reads and writes of blocks, and the digests and versions by which copies are compared.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use dunlin::{HandlerError, OwnedRequest, OwnedResponder, Request, Responder};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};

use super::state::{Copy, Place, State};
use super::{lock, malformed, replaced, unknown, Service};
use crate::types::BLOCK_BYTES;
use crate::wire::{
    self, code, decode, split_epoch, BlockState, Blocks, Chunks, Read, Record, STATE_BYTES,
};

/// Maximum number of digests in one answer.
const MOST_DIGESTS: u32 = 1 << 16;

/// Checks that a request is of the epoch promised last.
fn of_epoch(state: &State, volume: u64, epoch: u64) -> Result<&Copy, HandlerError> {
    let copy = state.copies.get(&volume).ok_or_else(unknown)?;
    match copy.described.epoch {
        promised if promised == epoch => Ok(copy),
        promised => Err(replaced(promised)),
    }
}

/// Returns the record of a write, if it may be written here.
fn checked<'a>(state: &State, epoch: u64, record: &Record<'a>) -> Result<(), HandlerError> {
    let copy = of_epoch(state, record.head.volume, epoch)?;
    let fits =
        copy.has(record.head.first, record.head.count) && record.head.version.epoch() <= epoch;
    fits.then_some(()).ok_or_else(malformed)
}

fn parse(payload: &[u8]) -> Result<(u64, Record<'_>), HandlerError> {
    let (epoch, bytes) = split_epoch(payload).ok_or_else(malformed)?;
    let record = Record::parse(bytes)
        .ok()
        .filter(|record| record.bytes().len() == bytes.len());
    record.map(|record| (epoch, record)).ok_or_else(malformed)
}

impl Service {
    pub(super) fn write_into_memory(
        &self,
        request: &Request<'_>,
        _: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let (epoch, record) = parse(request.payload())?;
        let mut state = lock(&self.state);
        checked(&state, epoch, &record)?;
        state.apply(&record, None);
        Ok(())
    }

    pub(super) fn write_into_log(&self, request: OwnedRequest, responder: OwnedResponder) {
        let parsed = parse(request.payload()).and_then(|(epoch, record)| {
            let state = lock(&self.state);
            checked(&state, epoch, &record)?;
            Ok((state, record))
        });
        match (parsed, &self.disk) {
            // Still under the lock: an epoch that begins waits for everything that was accepted before it.
            (Ok((_state, record)), Some(disk)) => disk.log.push(record.bytes(), responder),
            (Ok(_), None) => responder.fail(malformed()),
            (Err(error), _) => responder.fail(error),
        }
    }

    pub(super) fn read(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        self.read_by(request, reply, ReadWriteFlags::NOWAIT)
    }

    pub(super) fn read_slow(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        self.read_by(request, reply, ReadWriteFlags::empty())
    }

    fn read_by(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
        flags: ReadWriteFlags,
    ) -> Result<(), HandlerError> {
        let read = wire::decode_read(request.payload()).ok_or_else(malformed)?;
        let Read {
            epoch,
            volume,
            first,
            count,
        } = read;
        let bytes = reply.in_place(Blocks::length(count))?;
        let (states, data) = bytes.split_at_mut(count as usize * STATE_BYTES);
        for nth in 0..count {
            let block = first + u64::from(nth);
            let place = &mut data[nth as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            let state = lock(&self.state);
            let copy = of_epoch(&state, volume, epoch)?;
            if !copy.has(block, 1) {
                return Err(malformed());
            }
            let entry = copy.entry(block);
            entry.state().put(&mut states[nth as usize * STATE_BYTES..]);
            match entry.place {
                Place::Zeros => place.fill(0),
                Place::Memory => {
                    place.copy_from_slice(copy.bytes(block).ok_or_else(malformed)?);
                }
                Place::Log { segment, offset } => {
                    let file = state
                        .segments
                        .get(&segment)
                        .ok_or_else(malformed)?
                        .file
                        .clone();
                    drop(state);
                    read_file(&file, place, offset.into(), flags)?;
                }
            }
        }
        Ok(())
    }

    fn chunks<'a>(state: &'a State, asked: &Chunks) -> Result<&'a Copy, HandlerError> {
        match asked.epoch {
            0 => state.copies.get(&asked.volume).ok_or_else(unknown),
            epoch => of_epoch(state, asked.volume, epoch),
        }
    }

    pub(super) fn digests(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let asked: Chunks = decode(request.payload()).ok_or_else(malformed)?;
        let state = lock(&self.state);
        let copy = Self::chunks(&state, &asked)?;
        let end = asked
            .first
            .checked_add(u64::from(asked.count.min(MOST_DIGESTS)));
        let end = end
            .ok_or_else(malformed)?
            .min(copy.described.shape.chunks());
        for chunk in asked.first..end {
            reply.write(&copy.digest(chunk).to_le_bytes())?;
        }
        Ok(())
    }

    pub(super) fn versions(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let asked: Chunks = decode(request.payload()).ok_or_else(malformed)?;
        let state = lock(&self.state);
        let copy = Self::chunks(&state, &asked)?;
        let blocks = copy.blocks_of(asked.first);
        let first = asked
            .first
            .saturating_mul(u64::from(copy.described.shape.chunk_blocks));
        let states = reply.in_place(blocks as usize * STATE_BYTES)?;
        for (nth, place) in states.chunks_exact_mut(STATE_BYTES).enumerate() {
            copy.entry(first + nth as u64).state().put(place);
        }
        Ok(())
    }

    /// Like `versions`; a block whose bytes are not what was written is reported like one that was never written.
    pub(super) fn scrub(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let asked: Chunks = decode(request.payload()).ok_or_else(malformed)?;
        let (first, blocks) = {
            let state = lock(&self.state);
            let copy = Self::chunks(&state, &asked)?;
            let length = u64::from(copy.described.shape.chunk_blocks);
            (
                asked.first.saturating_mul(length),
                copy.blocks_of(asked.first),
            )
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        let states = reply.in_place(blocks as usize * STATE_BYTES)?;
        for (nth, place) in states.chunks_exact_mut(STATE_BYTES).enumerate() {
            let block = first + nth as u64;
            let state = lock(&self.state);
            let Some(copy) = state.copies.get(&asked.volume) else {
                return Err(unknown());
            };
            let entry = copy.entry(block);
            let is_whole = match entry.place {
                Place::Zeros => true,
                Place::Memory => copy
                    .bytes(block)
                    .is_some_and(|bytes| entry.state().fits(bytes)),
                Place::Log { segment, offset } => {
                    let file = state
                        .segments
                        .get(&segment)
                        .map(|segment| segment.file.clone());
                    drop(state);
                    let read = file.map(|file| file.read_exact_at(&mut bytes, offset.into()));
                    matches!(read, Some(Ok(()))) && entry.state().fits(&bytes)
                }
            };
            let told = if is_whole {
                entry.state()
            } else {
                BlockState::default()
            };
            told.put(place);
        }
        Ok(())
    }
}

fn read_file(
    file: &std::fs::File,
    mut place: &mut [u8],
    mut offset: u64,
    flags: ReadWriteFlags,
) -> Result<(), HandlerError> {
    while !place.is_empty() {
        let into = &mut [IoSliceMut::new(place)];
        match rustix::io::preadv2(file.as_fd(), into, offset, flags) {
            Ok(0) => {
                return Err(HandlerError::new(
                    code::DAMAGED,
                    "the file ends before its block",
                ))
            }
            Ok(read) => {
                place = &mut place[read..];
                offset += read as u64;
            }
            Err(Errno::AGAIN) => return Err(HandlerError::new(code::WOULD_WAIT, "")),
            // A file system without nonblocking reads.
            Err(Errno::OPNOTSUPP) if !flags.is_empty() => {
                return Err(HandlerError::new(code::WOULD_WAIT, ""));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(HandlerError::new(code::DAMAGED, error.to_string())),
        }
    }
    Ok(())
}
