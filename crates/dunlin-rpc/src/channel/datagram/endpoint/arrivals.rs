//! Arrivals at a datagram queue pair: assigns each datagram to its session, until the session takes it.

use dunlin_link::Ended;
use dunlin_verbs::{Completion, CompletionQueue, Device, Work, GRH_BYTES};

use super::super::packet::{Head, HEAD_BYTES};
use super::{receives_of_session, Endpoint, FIRST_RECEIVES};
use crate::channel::ChannelError;
use crate::effort;

/// Maximum number of completion lists, of up to eight each, taken in one poll: continuous senders do not keep the
/// poller from its sessions.
const POLL_BUDGET: usize = 16;
impl<D: Device> Endpoint<D> {
    /// Takes a limited number of completions: datagrams are assigned to their sessions, whose numbers are passed to
    /// `news`. Returns the number of these datagrams; one if there were only others, and there may be more.
    ///
    /// # Errors
    /// When the queue pair has failed: all its sessions are lost.
    #[inline]
    pub(crate) fn poll(&mut self, mut news: impl FnMut(u32)) -> Result<usize, ChannelError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let mut completions = [Completion::EMPTY; 8];
        let mut arrived = 0;
        while let Some(session) = self.missed.pop() {
            arrived += 1;
            news(session);
        }
        for _ in 0..POLL_BUDGET {
            let count = match self.completions.poll(&mut completions) {
                Ok(count) => count,
                Err(error) => return Err(self.fail(error.to_string())),
            };
            for completion in &completions[..count] {
                match self.sends.complete(completion) {
                    Ok(Ended::Requests(_)) => self.full_since = None,
                    Ok(Ended::Receive) => {
                        if let Some(session) = self.arrive(completion)? {
                            arrived += 1;
                            news(session);
                        }
                    }
                    Err(status) => return Err(self.fail(status.to_string())),
                }
            }
            if count < completions.len() {
                // There is time for work that nothing waits for.
                if arrived == 0 && self.receives.post_one(&mut self.queue_pair)? {
                    continue;
                }
                return Ok(arrived);
            }
        }
        // There is more, so the caller must not sleep.
        Ok(arrived.max(1))
    }

    /// Determines the session of a datagram.
    #[inline]
    fn arrive(&mut self, completion: &Completion) -> Result<Option<u32>, ChannelError> {
        let length = completion.bytes.saturating_sub(GRH_BYTES);
        let mut bytes = [0; HEAD_BYTES];
        if length >= HEAD_BYTES {
            self.receives.read(completion.id, &mut bytes);
        }
        // Zeros are not a valid version.
        let Some(head) = Head::read(&bytes) else {
            return self.refuse(completion.id);
        };
        let length = length.min(self.packet_bytes) as u32;
        let entry = (completion.id, length);
        if self.claim(head, completion.source_queue_pair, entry) {
            return Ok(Some(head.session.into()));
        }
        if self.keeps_unclaimed && self.unclaimed.len() < FIRST_RECEIVES / 2 {
            let source = completion.source_queue_pair;
            self.unclaimed.push((completion.id, length, head, source));
            return Ok(None);
        }
        self.refuse(completion.id)
    }

    /// Assigns a datagram to its session, if there is one.
    #[inline]
    fn claim(&mut self, head: Head, source: Option<u32>, entry: (u64, u32)) -> bool {
        let Some(place) = self.places.get_mut(usize::from(head.session)) else {
            return false;
        };
        let theirs = place.route.as_ref().map(|route| route.queue_pair);
        let known = place.cookie == Some(head.cookie)
            && theirs == source
            && place.arrived.len() < receives_of_session();
        if known {
            place.arrived.push_back(entry);
        }
        known
    }

    #[cold]
    fn refuse(&mut self, id: u64) -> Result<Option<u32>, ChannelError> {
        self.strange += 1;
        tracing::debug!(
            count = self.strange,
            "dropped a datagram that belongs to no session"
        );
        self.receives.give_back(id, &mut self.queue_pair)?;
        Ok(None)
    }

    /// From now on datagrams of sessions that are not known yet are kept until [`Endpoint::settle`].
    pub(crate) fn keep_unclaimed(&mut self) {
        self.keeps_unclaimed = true;
    }

    /// Whether there are any such datagrams.
    #[inline]
    pub(crate) fn has_unclaimed(&self) -> bool {
        !self.unclaimed.is_empty()
    }

    /// To be called when all existing sessions have been entered: assigns their datagrams and discards the others.
    #[cold]
    pub(crate) fn settle(&mut self, mut news: impl FnMut(u32)) -> Result<(), ChannelError> {
        // In order: a question about a call comes after its request.
        for (id, length, head, source) in std::mem::take(&mut self.unclaimed) {
            if self.claim(head, source, (id, length)) {
                news(head.session.into());
            } else {
                self.refuse(id)?;
            }
        }
        Ok(())
    }

    /// Copies the next datagram of a session into `target`, which must have room for the longest; returns its length.
    #[inline]
    pub(crate) fn take(
        &mut self,
        session: u32,
        target: &mut [u8],
    ) -> Result<Option<usize>, ChannelError> {
        let place = &mut self.places[session as usize];
        let Some((id, length)) = place.arrived.pop_front() else {
            return Ok(None);
        };
        let length = length as usize;
        D::charge(effort::TAKEN);
        D::charge(Work::Arrived);
        D::charge(Work::Copy(length));
        self.receives.read(id, &mut target[..length]);
        self.receives.give_back(id, &mut self.queue_pair)?;
        Ok(Some(length))
    }

    /// Whether a datagram is here for a session.
    #[inline]
    pub(crate) fn has_arrival(&self, session: u32) -> bool {
        !self.places[session as usize].arrived.is_empty()
    }
}
