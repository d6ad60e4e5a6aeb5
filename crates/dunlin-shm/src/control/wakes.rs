//! Which peers may wake which completion channels: one socket pair for each session and channel, however many queue
//! pairs use it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::channel::{ShmCompletionChannel, WeakChannel};
use crate::closer::Foreign;
use crate::wake::Waker;

/// The ends by which the peer of a session wakes us.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    last: u32,
    ends: Vec<AdmittedEnd>,
}

#[derive(Debug)]
struct AdmittedEnd {
    /// The peer's number for it.
    number: u32,
    channel: WeakChannel,
    name: u64,
}

impl Admitted {
    /// The number of the end for `channel`, and the end itself unless the peer already has it.
    pub(super) fn end(
        &mut self,
        channel: &ShmCompletionChannel,
    ) -> Result<(u32, Option<OwnedFd>), Errno> {
        let known = self.ends.iter().find(|end| end.channel.is(channel));
        if let Some(end) = known.filter(|end| channel.hears(end.name)) {
            return Ok((end.number, None));
        }
        // The peer releases an end with the last queue pair that used it, and channels come and go.
        self.ends.retain(|end| match end.channel.upgrade() {
            Some(other) => !end.channel.is(channel) && other.hears(end.name),
            None => false,
        });
        let (name, theirs) = channel.admit()?;
        // Never 0, which means none.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.ends.push(AdmittedEnd {
            number: self.last,
            channel: channel.downgrade(),
            name,
        });
        Ok((self.last, Some(theirs)))
    }
}

impl Drop for AdmittedEnd {
    fn drop(&mut self) {
        self.channel.dismiss(self.name);
    }
}

/// The ends by which we wake the peer of a session, by the peer's numbers.
///
/// One that no queue pair uses any more is released, but only while no answer is outstanding that may name it: a later
/// request reaches a peer that knows of the release.
#[derive(Debug, Default)]
pub(super) struct Wakers(HashMap<u32, Arc<Waker>>);

impl Wakers {
    /// The waker with this number, which is new if a descriptor came with it.
    pub(super) fn find(
        &mut self,
        number: u32,
        file: Option<Foreign>,
    ) -> Result<Option<Arc<Waker>>, Errno> {
        match (number, file) {
            (0, _) => Ok(None),
            (_, None) => match self.0.get(&number) {
                Some(waker) => Ok(Some(Arc::clone(waker))),
                None => Err(Errno::NOENT),
            },
            (_, Some(file)) => {
                let waker = Arc::new(Waker::new(file)?);
                self.0.insert(number, Arc::clone(&waker));
                Ok(Some(waker))
            }
        }
    }

    /// Releases those that no queue pair uses.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, waker| Arc::strong_count(waker) > 1);
    }
}
