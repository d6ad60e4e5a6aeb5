//! One-sided operations on the queue pair that carries the messages (FLOCK §6), posted in lists and completed in order.
//!
//! Small results are placed in a *cell* of a region of our own, one for each entry of the send queue; longer ones in a
//! landing buffer. Only the last operation of a list is signaled: an RC queue pair completes in order, so one
//! completion covers all before it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_link::{Completed, InFlight, Ticket};
use dunlin_verbs::{
    Access, Device, Operation, Payload, PostErrorKind, QueuePair, Region, Segment, SendFlags,
    SendRequest,
};

use super::{Carrier, QUIET, SEND_REQUESTS};
use crate::channel::buffers::Buffer;
use crate::channel::one_sided::{Direction, OneSided, OwnPart, Verb};
use crate::channel::ChannelError;

/// Size of a cell in bytes: longer READs use a landing buffer.
const CELL_BYTES: usize = 512;
/// Maximum number of work requests in a list.
const LIST: usize = 8;
/// Number of send queue entries that one-sided operations leave to messages.
const SPARE_ENTRIES: usize = SEND_REQUESTS / 4;

/// An operation in flight.
#[derive(Debug)]
struct Work<D: Device> {
    call: u64,
    /// The last request of its list, the only signaled one.
    list: Ticket,
    place: Place<InFlight<Buffer<D>>, InFlight<OwnPart>>,
}

/// The place for the result of an operation.
#[derive(Debug)]
enum Place<B, O> {
    /// It has no result. The buffer that a WRITE reads from is held until the completion.
    Nowhere(#[allow(dead_code)] Option<Arc<dyn Any + Send + Sync>>),
    /// A cell, with the number of bytes.
    Cell(u16, usize),
    Buffer(B),
    /// The caller's own memory, which is read or filled.
    Own(O),
}

/// An operation to be posted.
type Prepared<'o, D> = (&'o OneSided, Place<Buffer<D>, OwnPart>);

/// An operation that has ended.
#[derive(Debug)]
pub(crate) enum Finished<D: Device> {
    /// With a result of this many bytes, which is in [`Carrier::result`].
    Short(u64, usize),
    /// With a result in this buffer.
    Long(u64, Completed<Buffer<D>>),
    /// Without having been posted, because there was no memory for its result.
    Refused(u64, ChannelError),
}

/// One-sided operations of a channel.
#[derive(Debug)]
pub(super) struct OneSidedWork<D: Device> {
    cells: Option<D::Region>,
    free: Vec<u16>,
    under_way: VecDeque<Work<D>>,
    refused: Vec<(u64, ChannelError)>,
    result: [u8; CELL_BYTES],
}

impl<D: Device> OneSidedWork<D> {
    pub(super) fn new() -> Self {
        Self {
            cells: None,
            free: Vec::new(),
            under_way: VecDeque::new(),
            refused: Vec::new(),
            result: [0; CELL_BYTES],
        }
    }
}

impl<D: Device> Carrier<D> {
    /// Number of one-sided operations that may be posted now.
    pub(crate) fn one_sided_room(&mut self) -> Result<usize, ChannelError> {
        let limit = SEND_REQUESTS - SPARE_ENTRIES;
        if self.sends.outstanding() + LIST > limit {
            self.progress()?;
        }
        // A cell is free when its result was taken, which is after the completion.
        let used = self.sends.outstanding().max(self.one_sided.under_way.len());
        Ok(limit.saturating_sub(used))
    }

    /// Posts operations, for which there is [`Carrier::one_sided_room`], in sequence; the last of each list is
    /// signaled. An operation without memory for its result is not posted and ends with an error; the others are not
    /// affected.
    pub(crate) fn post_one_sided<'o>(
        &mut self,
        operations: impl Iterator<Item = &'o OneSided>,
    ) -> Result<(), ChannelError> {
        let mut operations = operations.peekable();
        if operations.peek().is_none() {
            return Ok(());
        }
        if let Err(error) = self.make_cells() {
            let all = operations.map(|operation| (operation.call, error.clone()));
            self.one_sided.refused.extend(all);
            return Ok(());
        }
        while operations.peek().is_some() {
            let mut list: [Option<Prepared<'o, D>>; LIST] = [const { None }; LIST];
            let mut count = 0;
            while count < LIST {
                let Some(operation) = operations.next() else {
                    break;
                };
                match self.prepare(operation) {
                    Ok(place) => {
                        list[count] = Some((operation, place));
                        count += 1;
                    }
                    Err(error) => self.one_sided.refused.push((operation.call, error)),
                }
            }
            if count > 0 {
                self.post_list(list, count)?;
            }
        }
        Ok(())
    }

    fn make_cells(&mut self) -> Result<(), ChannelError> {
        if self.one_sided.cells.is_some() {
            return Ok(());
        }
        let length = SEND_REQUESTS * CELL_BYTES;
        let cells = self
            .device
            .allocate_region(&self.domain, length, Access::LOCAL_WRITE)
            .map_err(ChannelError::memory)?;
        self.one_sided.cells = Some(cells);
        self.one_sided.free = (0..SEND_REQUESTS as u16).collect();
        self.one_sided.under_way.reserve(SEND_REQUESTS);
        Ok(())
    }

    fn prepare(&mut self, operation: &OneSided) -> Result<Place<Buffer<D>, OwnPart>, ChannelError> {
        let length = match &operation.verb {
            Verb::WriteInline { .. } => return Ok(Place::Nowhere(None)),
            Verb::WriteBuffer { buffer } => return Ok(Place::Nowhere(Some(Arc::clone(buffer)))),
            Verb::Own(part, _) => return Ok(Place::Own(part.clone())),
            Verb::Read { length } => *length,
            Verb::FetchAndAdd { .. } | Verb::CompareAndSwap { .. } => 8,
        };
        Ok(match length {
            _ if length <= CELL_BYTES => match self.one_sided.free.pop() {
                Some(cell) => Place::Cell(cell, length),
                None => return Err(ChannelError::memory("no free cell")),
            },
            _ => Place::Buffer(self.landings.take(length).map_err(ChannelError::memory)?),
        })
    }

    /// Posts a list of `count` operations.
    fn post_list(
        &mut self,
        list: [Option<Prepared<'_, D>>; LIST],
        count: usize,
    ) -> Result<(), ChannelError> {
        let Some(cells) = &self.one_sided.cells else {
            return Ok(());
        };
        let segments: [Segment<'_, D::Region>; LIST] = std::array::from_fn(|i| {
            let (region, offset, length) = match list[i].as_ref().map(|(_, place)| place) {
                Some(Place::Cell(cell, length)) => {
                    (cells, usize::from(*cell) * CELL_BYTES, *length)
                }
                Some(Place::Buffer(landing)) => (landing.region(), 0, landing.len()),
                Some(Place::Nowhere(Some(export))) => match export.downcast_ref::<Buffer<D>>() {
                    Some(export) => (export.region(), 0, export.len()),
                    None => unreachable!("a handle keeps to one device"),
                },
                Some(Place::Own(part)) => match part.region.downcast_ref::<D::Region>() {
                    Some(region) => (region, part.offset, part.length),
                    None => unreachable!("it was registered by this lane"),
                },
                Some(Place::Nowhere(None)) | None => (cells, 0, 0),
            };
            Segment {
                region,
                offset,
                length,
            }
        });
        let requests: [SendRequest<'_, D::Region, D::AddressHandle>; LIST] =
            std::array::from_fn(|i| {
                let Some((operation, _)) = &list[i] else {
                    let nothing = Operation::Send { immediate: None };
                    return SendRequest::new(
                        QUIET,
                        nothing,
                        Payload::Inline(&[]),
                        SendFlags::empty(),
                    );
                };
                let payload = match &operation.verb {
                    Verb::WriteInline { bytes, length } => {
                        Payload::Inline(&bytes[..usize::from(*length)])
                    }
                    _ => Payload::Segments(std::slice::from_ref(&segments[i])),
                };
                let flags = match i + 1 == count {
                    true => SendFlags::SIGNALED,
                    false => SendFlags::empty(),
                };
                SendRequest::new(QUIET, operation_of(operation), payload, flags)
            });
        let posted = self.queue_pair.post_send(&requests[..count]);
        let posted = posted.map_err(|error| {
            debug_assert!(!matches!(error.kind, PostErrorKind::Full { .. }));
            self.fail(ChannelError::queue_pair(error.to_string()))
        });
        // The device may have accepted a part of a list that failed, so its resources are held, too, for good.
        let list_end = self.sends.post(count, true);
        for (operation, place) in list.into_iter().flatten() {
            let place = match place {
                Place::Nowhere(export) => Place::Nowhere(export),
                Place::Cell(cell, length) => Place::Cell(cell, length),
                Place::Buffer(landing) => Place::Buffer(self.sends.hold(landing)),
                Place::Own(part) => Place::Own(self.sends.hold(part)),
            };
            self.one_sided.under_way.push_back(Work {
                call: operation.call,
                list: list_end,
                place,
            });
        }
        posted
    }

    /// Whether one-sided operations are in flight or wait to be taken.
    #[inline]
    pub(crate) fn has_one_sided(&self) -> bool {
        !self.one_sided.under_way.is_empty() || !self.one_sided.refused.is_empty()
    }

    /// The next operation that has completed.
    pub(crate) fn take_one_sided(&mut self) -> Option<Finished<D>> {
        let one_sided = &mut self.one_sided;
        if let Some((call, error)) = one_sided.refused.pop() {
            return Some(Finished::Refused(call, error));
        }
        if !self.sends.is_finished(one_sided.under_way.front()?.list) {
            return None;
        }
        let Work { call, place, .. } = one_sided.under_way.pop_front()?;
        Some(match place {
            Place::Nowhere(_) => Finished::Short(call, 0),
            Place::Own(part) => match self.sends.finish(part) {
                Ok(_) => Finished::Short(call, 0),
                Err(_) => unreachable!("it was held for the same request"),
            },
            Place::Buffer(landing) => match self.sends.finish(landing) {
                Ok(buffer) => Finished::Long(call, buffer),
                Err(_) => unreachable!("it was held for the same request"),
            },
            Place::Cell(cell, length) => {
                if let Some(cells) = &one_sided.cells {
                    let at = usize::from(cell) * CELL_BYTES;
                    cells.memory().read(at, &mut one_sided.result[..length]);
                }
                one_sided.free.push(cell);
                Finished::Short(call, length)
            }
        })
    }

    /// The first `length` bytes of the last result taken.
    pub(crate) fn result(&self, length: usize) -> &[u8] {
        &self.one_sided.result[..length]
    }
}

fn operation_of(operation: &OneSided) -> Operation {
    let remote = operation.remote;
    match operation.verb {
        Verb::Read { .. } | Verb::Own(_, Direction::FromPeer) => Operation::Read { remote },
        Verb::WriteInline { .. } | Verb::WriteBuffer { .. } | Verb::Own(_, Direction::ToPeer) => {
            Operation::Write {
                remote,
                immediate: None,
            }
        }
        Verb::FetchAndAdd { add } => Operation::FetchAndAdd { remote, add },
        Verb::CompareAndSwap { compare, swap } => Operation::CompareAndSwap {
            remote,
            compare,
            swap,
        },
    }
}
