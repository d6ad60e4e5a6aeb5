//! Memory of the server that this client reads and writes directly (FLOCK §6): the server names and grants it, a client
//! attaches it, and from then on the server's processor takes no part in an operation.
//!
//! A grant belongs to one connection, so each lane requests its own with the first operation that it carries.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::driver::{self, CallFuture};
use super::wait::Waiter;
use super::{finish, thread_lane, Client, Core, One};
use crate::call::lane::{Lane, Submitted};
use crate::call::notify::{Notice, NOTIFY};
use crate::call::reply::Reply;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::one_sided::Attached;
use crate::error::CallError;

/// A region of the server's memory. Cheap to clone; any thread may use any clone.
///
/// Operations that are outstanding at the same time happen in no particular order, and a WRITE or READ of more than 8
/// bytes is not atomic with respect to others. Atomics are atomic among themselves. Made by [`super::Client::attach`].
#[derive(Clone)]
pub struct RemoteRegion {
    core: Arc<Core>,
    /// The deadline of each operation.
    deadline: Duration,
    key: Arc<RegionKey>,
    length: u64,
}

impl std::fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRegion")
            .field("name", &self.key.name)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The previous value that an atomic returned.
fn word(reply: &Reply) -> Result<u64, CallError> {
    let bytes: Result<[u8; 8], _> = reply[..].try_into();
    bytes
        .map(u64::from_ne_bytes)
        .map_err(|_| CallError::ConnectionLost {
            why: "the device completed an atomic without a result".to_owned(),
        })
}

impl RemoteRegion {
    pub(super) fn attach(
        core: &Arc<Core>,
        deadline: Duration,
        number: u64,
        name: &str,
    ) -> Result<Self, CallError> {
        let key = Arc::new(RegionKey::new(number, name));
        let attached = thread_lane::with(core, deadline, |lane, began| {
            let waiter = Waiter::new(core.settings.channel.wait, deadline, &core.closed);
            attach_on(lane, &key, waiter.since(began))
        })?;
        Ok(Self {
            core: Arc::clone(core),
            deadline,
            key,
            length: attached.length,
        })
    }

    /// Returns a clone with another deadline for its operations.
    #[must_use = "it is a clone that has the deadline"]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The name of the region at the server.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Length of the region in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.length
    }

    pub(super) fn key(&self) -> &Arc<RegionKey> {
        &self.key
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The client that the region belongs to.
    pub(super) fn client(&self) -> Client {
        Client {
            core: Arc::clone(&self.core),
            deadline: self.deadline,
        }
    }

    /// Performs one operation and waits for its completion, within the client's deadline.
    fn operate(&self, offset: u64, wanted: Wanted<'_>) -> Result<Reply, CallError> {
        let core = &self.core;
        let deadline = self.deadline;
        thread_lane::with(core, deadline, |lane, began| {
            let mut waiter = Waiter::new(core.settings.channel.wait, deadline, &core.closed);
            waiter = waiter.since(began);
            let mut sink = One(None);
            let call = loop {
                let submitted = waiter.submit(lane, &mut sink, |lane| {
                    let submitted = lane.submit_one_sided(&self.key, offset, &wanted, 0)?;
                    Ok((submitted != Submitted::Full).then_some(submitted))
                })?;
                if let Submitted::Call(call) = submitted {
                    break call;
                }
                attach_on(lane, &self.key, waiter.before())?;
            };
            finish(lane, call, sink, waiter)
        })
    }

    /// Reads `length` bytes from `offset`.
    ///
    /// # Errors
    /// See [`CallError`]: what was refused was not sent; when the connection was lost nothing was changed.
    pub fn read(&self, offset: u64, length: usize) -> Result<Reply, CallError> {
        self.operate(offset, Wanted::Read(length))
    }

    /// Writes `bytes` at `offset`. They are in the server's memory when this returns.
    ///
    /// # Errors
    /// See [`CallError`]; when the connection was lost, all, some or none of the bytes may have been written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CallError> {
        self.operate(offset, Wanted::Write(bytes)).map(drop)
    }

    /// As [`RemoteRegion::write`], and then notifies the owner of the region with a number: an event there
    /// ([`crate::Notifications`]), received after the bytes are in place. On every device and preset this takes a
    /// message after the WRITE, which the owner's processor answers.
    ///
    /// # Errors
    /// As for [`RemoteRegion::write`] and [`RemoteRegion::notify`]. If the second fails, the bytes are written.
    pub fn write_notify(&self, offset: u64, bytes: &[u8], value: u32) -> Result<(), CallError> {
        self.write(offset, bytes)?;
        self.notify(offset, bytes.len() as u64, value)
    }

    /// Notifies the owner of the region that `length` bytes at `offset` were written, by operations that completed
    /// before this one, for example a [`super::Transfer`].
    ///
    /// # Errors
    /// [`CallError::Overloaded`] when the owner has as many unread notifications as it keeps
    /// ([`crate::Region::notified`]): it was not notified. [`CallError::UnknownRegion`] when it takes none for this
    /// region, [`CallError::Forbidden`] without the right to write it, and as for [`super::Client::call`].
    pub fn notify(&self, offset: u64, length: u64, value: u32) -> Result<(), CallError> {
        let notice = self.notice(offset, length, value)?;
        let told = self.client().call(NOTIFY, &notice);
        self.told(told)
    }

    /// As [`RemoteRegion::write_notify`]; works under any executor.
    ///
    /// # Errors
    /// As for [`RemoteRegion::write_notify`].
    pub async fn write_notify_async(
        &self,
        offset: u64,
        bytes: &[u8],
        value: u32,
    ) -> Result<(), CallError> {
        self.write_async(offset, bytes).await?;
        self.notify_async(offset, bytes.len() as u64, value).await
    }

    /// As [`RemoteRegion::notify`]; works under any executor.
    ///
    /// # Errors
    /// As for [`RemoteRegion::notify`].
    pub async fn notify_async(
        &self,
        offset: u64,
        length: u64,
        value: u32,
    ) -> Result<(), CallError> {
        let notice = self.notice(offset, length, value)?;
        let told = self.client().call_async(NOTIFY, &notice).await;
        self.told(told)
    }

    /// The request that carries the notification.
    fn notice(&self, offset: u64, length: u64, value: u32) -> Result<Vec<u8>, CallError> {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length)
        {
            return Err(CallError::RegionBounds {
                region: self.key.name.clone(),
                offset,
                bytes: usize::try_from(length).unwrap_or(usize::MAX),
                length: self.length,
            });
        }
        let notice = Notice {
            region: self.key.name.as_bytes(),
            offset,
            length,
            value,
        };
        Ok(notice.encode())
    }

    fn told(&self, answer: Result<Reply, CallError>) -> Result<(), CallError> {
        let name = self.key.name.clone();
        match answer {
            Ok(_) => Ok(()),
            Err(CallError::UnknownRegion { why, .. }) => {
                Err(CallError::UnknownRegion { name, why })
            }
            Err(CallError::UnknownHandler(_)) => Err(CallError::UnknownRegion {
                name,
                why: "the release of its owner does not support notifications".to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Adds to the 8 bytes at `offset`, a number in the byte order of the server's machine, and returns the previous
    /// value.
    ///
    /// # Errors
    /// See [`CallError`]; when the connection was lost the addition may have been made.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, CallError> {
        word(&self.operate(offset, Wanted::FetchAndAdd(add))?)
    }

    /// Replaces the 8 bytes at `offset` by `swap` if they equal `compare`, and returns the previous value.
    ///
    /// # Errors
    /// See [`CallError`]; when the connection was lost the value may have been replaced.
    pub fn compare_and_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, CallError> {
        word(&self.operate(offset, Wanted::CompareAndSwap { compare, swap })?)
    }

    /// As [`RemoteRegion::read`], as a future; it is sent as described at [`super::Client::call_async`]. On a new
    /// connection the first operation, and calls made after it, wait until the region is attached.
    pub fn read_async(&self, offset: u64, length: usize) -> CallFuture {
        driver::operate(
            &self.core,
            self.deadline,
            &self.key,
            offset,
            Wanted::Read(length),
        )
    }

    /// As [`RemoteRegion::write`], as a future whose reply is empty; the bytes are copied now.
    pub fn write_async(&self, offset: u64, bytes: &[u8]) -> CallFuture {
        driver::operate(
            &self.core,
            self.deadline,
            &self.key,
            offset,
            Wanted::Write(bytes),
        )
    }

    /// As [`RemoteRegion::fetch_add`], as a future of the previous 8 bytes.
    pub fn fetch_add_async(&self, offset: u64, add: u64) -> CallFuture {
        driver::operate(
            &self.core,
            self.deadline,
            &self.key,
            offset,
            Wanted::FetchAndAdd(add),
        )
    }

    /// As [`RemoteRegion::compare_and_swap`], as a future of the previous 8 bytes.
    pub fn compare_and_swap_async(&self, offset: u64, compare: u64, swap: u64) -> CallFuture {
        let wanted = Wanted::CompareAndSwap { compare, swap };
        driver::operate(&self.core, self.deadline, &self.key, offset, wanted)
    }
}

/// A future of a region that the server grants; works under any executor. Made by [`super::Client::attach_async`].
#[must_use = "nothing is attached when the future is dropped"]
#[derive(Debug)]
pub struct AttachFuture {
    core: Arc<Core>,
    deadline: Duration,
    key: Arc<RegionKey>,
    asking: CallFuture,
}

impl AttachFuture {
    pub(super) fn new(core: &Arc<Core>, deadline: Duration, number: u64, name: &str) -> Self {
        let key = Arc::new(RegionKey::new(number, name));
        Self {
            core: Arc::clone(core),
            deadline,
            asking: driver::attach(core, deadline, &key),
            key,
        }
    }
}

impl Future for AttachFuture {
    type Output = Result<RemoteRegion, CallError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let attached = std::task::ready!(this.asking.poll_attached(context, &this.key))?;
        Poll::Ready(Ok(RemoteRegion {
            core: Arc::clone(&this.core),
            deadline: this.deadline,
            key: Arc::clone(&this.key),
            length: attached.length,
        }))
    }
}

/// Requests the region on this lane and waits for the grant: no other answer can arrive meanwhile.
pub(super) fn attach_on(
    lane: &mut dyn Lane,
    region: &RegionKey,
    mut waiter: Waiter<'_>,
) -> Result<Attached, CallError> {
    let mut sink = One(None);
    let call = waiter.submit(lane, &mut sink, |lane| lane.submit_attach(region, 0))?;
    let granted = finish(lane, call, sink, waiter);
    granted_on(lane, region, granted)
}

/// Handles the server's answer, for the lane on which it arrived.
pub(super) fn granted_on(
    lane: &mut dyn Lane,
    region: &RegionKey,
    answer: Result<Reply, CallError>,
) -> Result<Attached, CallError> {
    let attached = granted(region, answer)?;
    lane.set_attached(region.number, attached);
    Ok(attached)
}

/// Decodes what the server has granted.
pub(super) fn granted(
    region: &RegionKey,
    answer: Result<Reply, CallError>,
) -> Result<Attached, CallError> {
    let grant = answer.map_err(|error| match error {
        CallError::UnknownRegion { why, .. } => CallError::UnknownRegion {
            name: region.name.clone(),
            why,
        },
        other => other,
    })?;
    Attached::decode(&grant).ok_or_else(|| CallError::ConnectionLost {
        why: "a grant of an unknown format".to_owned(),
    })
}
