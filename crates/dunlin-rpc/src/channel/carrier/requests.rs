//! The requests of a channel: posting them when the send queue has an entry, and handling their completions.

use std::time::{Duration, Instant};

use dunlin_link::{failure_of, Ended, Ticket};
use dunlin_ring::NAMELESS;
use dunlin_verbs::{
    thread, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Device, Operation,
    Payload, QueuePair, QueuePairState, ReceiveRequest, SendFlags, SendRequest,
};

use super::{Carrier, ASKS, NOTIFICATIONS, QUIET, REPORTS};
use crate::channel::ChannelError;

/// The reason for ending a channel whose requests do not complete.
const NO_COMPLETION: &str = "the peer completes no requests";
/// Interval of probes of a peer that may have gone without notice.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time without a completion while requests are outstanding: somewhat longer than a queue pair retransmits to a
/// peer that does not answer before it reports that itself. A queue pair that fails to report it (soft-RoCE's, when its
/// interface goes down) still acknowledges what the peer writes, so that neither side would ever see an error.
const STALLED: Duration = Duration::from_secs(5);
/// Networks slower than a shared gigabit link are not waited for.
const SLOWEST_BYTES_PER_S: f64 = 25e6;
/// Number of polls without a completion between two reads of the clock.
const LOOKS_PER_CLOCK: u32 = 16;
/// Time that the dialling side has to send its first message, as long as a handshake. After it the retries of a probe
/// decide.
const MEETING: Duration = Duration::from_secs(5);

/// Maximum number of completion lists taken in one poll: more than the send queue holds. A peer that causes completions
/// of RECEIVEs without end cannot keep the poller here.
const ROUNDS: usize = 16;

impl<D: Device> Carrier<D> {
    /// Posts a WRITE. `false`: there is no entry for it, and it is not posted.
    #[inline]
    pub(in crate::channel) fn post_write(
        &mut self,
        operation: Operation,
        payload: Payload<'_, D::Region>,
        flags: SendFlags,
    ) -> Result<bool, ChannelError> {
        if !self.reserve(1)? {
            return Ok(false);
        }
        let request = SendRequest::new(QUIET, operation, payload, flags);
        if let Err(error) = self.queue_pair.post_send(&[request]) {
            let error = ChannelError::queue_pair(error.to_string());
            return Err(self.fail(error));
        }
        self.note_posted(flags);
        Ok(true)
    }

    /// Whether `entries` more fit into the send queue.
    #[inline]
    pub(in crate::channel) fn has_entries(&self, entries: usize) -> bool {
        self.sends.has_entries(entries)
    }

    /// Whether `entries` of the send queue are free, after taking completions if necessary. `false`: not now. The
    /// caller then keeps what it has to post, and [`Carrier::is_short`] returns `true` until the channel's next flush.
    /// A live RC peer frees entries soon; if none become free for long, the channel fails.
    #[inline]
    pub(in crate::channel) fn reserve(&mut self, entries: usize) -> Result<bool, ChannelError> {
        if self.has_entries(entries) {
            return Ok(true);
        }
        self.reclaim(entries)
    }

    #[cold]
    fn reclaim(&mut self, entries: usize) -> Result<bool, ChannelError> {
        self.progress()?;
        let has_entries = self.has_entries(entries);
        self.short |= !has_entries;
        Ok(has_entries)
    }

    /// Whether something could not be posted since the last flush. The next flush tries again; until then the thread
    /// does not sleep.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// Something could not be posted; see [`Carrier::is_short`].
    pub(in crate::channel) fn be_short(&mut self) {
        self.short = true;
    }

    /// Called at the start of a flush: what finds no entry sets it again.
    #[inline]
    pub(in crate::channel) fn take_short(&mut self) -> bool {
        std::mem::take(&mut self.short)
    }

    /// The request posted last.
    #[inline]
    pub(in crate::channel) fn last_posted(&self) -> Ticket {
        self.sends.last()
    }

    /// Whether a request is known to be completed.
    pub(in crate::channel) fn is_done(&self, request: Ticket) -> bool {
        self.sends.is_finished(request)
    }

    /// Takes completions: freed entries, completed READs, wake-ups, failures.
    pub(crate) fn progress(&mut self) -> Result<(), ChannelError> {
        let outstanding = self.sends.outstanding();
        let mut completions = [Completion::EMPTY; 16];
        for _ in 0..ROUNDS {
            let count = self
                .completions
                .poll(&mut completions)
                .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))?;
            for completion in &completions[..count] {
                self.complete(completion)?;
            }
            if count < completions.len() {
                break;
            }
        }
        if self.queue_pair.state() == QueuePairState::Error {
            let gone = || match self.queue_pair.failure() {
                Some(why) => ChannelError::queue_pair(why),
                None => ChannelError::peer_gone(),
            };
            let error = self.broken.clone().unwrap_or_else(gone);
            return Err(self.fail(error));
        }
        if self.sends.signaled() == 0 || self.sends.outstanding() != outstanding {
            self.vain_looks = 0;
        } else {
            self.look_in_vain()?;
        }
        self.post_fetches()
    }

    /// Maximum time to transfer the longest message: everything posted after it completes after it.
    fn longest_transfer(&self) -> Duration {
        let longest = self.config.max_message_bytes.max(self.peer_longest);
        Duration::from_secs_f64(longest as f64 / SLOWEST_BYTES_PER_S)
    }

    /// Called when signaled requests are outstanding and none has completed since the last poll.
    fn look_in_vain(&mut self) -> Result<(), ChannelError> {
        self.vain_looks += 1;
        if self.vain_looks % LOOKS_PER_CLOCK != 0 {
            return Ok(());
        }
        let now = thread::now();
        if self.vain_looks == LOOKS_PER_CLOCK {
            self.stalled_since = now;
        } else if now.duration_since(self.stalled_since) > STALLED + self.longest_transfer() {
            return Err(self.fail(ChannelError::queue_pair(NO_COMPLETION.to_owned())));
        }
        Ok(())
    }

    /// Posts a request without effect, whose failure shows that the peer has gone, unless one is outstanding. A peer
    /// that was never heard of is probed only after [`MEETING`]: it may have ended before its first message, which
    /// nothing else would show.
    pub(in crate::channel) fn probe(&mut self) -> Result<(), ChannelError> {
        let out = self.probe.is_some_and(|probe| !self.is_done(probe));
        let expected = !self.met && {
            let now = thread::now();
            now.duration_since(*self.waited_since.get_or_insert(now)) < MEETING
        };
        if expected || out {
            return Ok(());
        }
        if self.post_nothing(None, SendFlags::empty())? {
            self.probe = Some(self.sends.last());
        }
        Ok(())
    }

    /// Posts a signaled WRITE of no bytes. `false`: there is no entry for it.
    pub(in crate::channel) fn post_nothing(
        &mut self,
        immediate: Option<u32>,
        flags: SendFlags,
    ) -> Result<bool, ChannelError> {
        let operation = Operation::Write {
            remote: self.peer_inlet,
            immediate,
        };
        self.post_write(operation, Payload::Inline(&[]), flags | SendFlags::SIGNALED)
    }

    /// [`Carrier::probe`], once per [`PROBE_INTERVAL`]: for a side that waits. That the peer has gone without notice,
    /// or that requests do not complete, is only noticed by a side that posts.
    pub(crate) fn probe_at_intervals(&mut self, now: Instant) -> Result<(), ChannelError> {
        if now < *self.next_probe.get_or_insert(now + PROBE_INTERVAL) {
            return Ok(());
        }
        self.next_probe = Some(now + PROBE_INTERVAL);
        self.probe()
    }

    pub(in crate::channel) fn fail(&mut self, error: ChannelError) -> ChannelError {
        self.sends.fail();
        self.broken.get_or_insert(error).clone()
    }

    /// A request has failed.
    #[cold]
    fn fail_by(&mut self, status: CompletionStatus) -> ChannelError {
        let why = failure_of(&self.queue_pair, status);
        self.fail(ChannelError::queue_pair(why))
    }

    pub(in crate::channel) fn complete(
        &mut self,
        completion: &Completion,
    ) -> Result<(), ChannelError> {
        match self.sends.complete(completion) {
            Ok(Ended::Requests(_)) => {
                if completion.id != QUIET && completion.id != NAMELESS {
                    self.ring_completed = Some(completion.id);
                }
                Ok(())
            }
            Ok(Ended::Receive) => self.arrived(completion).map(drop),
            Err(status) => Err(self.fail_by(status)),
        }
    }

    /// Handles the completion of a RECEIVE, which is posted anew. Returns the part of its immediate that is about
    /// messages, if it has one, for the caller to interpret.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub(in crate::channel) fn arrived(
        &mut self,
        completion: &Completion,
    ) -> Result<Option<u32>, ChannelError> {
        if !completion.is_success() {
            return Err(self.fail_by(completion.status));
        }
        self.met = true;
        let with_memory = completion.id as usize;
        if let Some(buffers) = &mut self.buffers {
            if completion.opcode == CompletionOpcode::Receive {
                // It is posted anew when its message is taken.
                buffers.arrived(with_memory, completion.bytes);
                return Ok(None);
            }
        }
        let mut ring = None;
        match completion.immediate {
            Some(immediate) if immediate & ASKS != 0 => self.asked = Some(immediate & !ASKS),
            Some(immediate) if immediate & REPORTS != 0 => {
                self.reported = Some(immediate & !REPORTS);
            }
            Some(immediate) if immediate & NOTIFICATIONS != 0 => {
                ring = Some(immediate & !NOTIFICATIONS)
            }
            _ => self.sleep.woken(),
        }
        if self.buffers.is_some() {
            self.post_again(with_memory)?;
            return Ok(ring);
        }
        let next = ReceiveRequest {
            id: self.receive_id,
            segments: &[],
        };
        self.queue_pair
            .post_receive(&[next])
            .map_err(|e| ChannelError::queue_pair(e.to_string()))?;
        Ok(ring)
    }

    /// WRITEs a word of the peer's inlet. `false`: there is no entry for it.
    pub(in crate::channel) fn write_word(
        &mut self,
        at: usize,
        word: &[u8],
    ) -> Result<bool, ChannelError> {
        let remote = self.peer_inlet.plus(at as u64);
        let operation = Operation::Write {
            remote,
            immediate: None,
        };
        self.post_write(operation, Payload::Inline(word), self.next_flags())
    }

    /// The flags of the next request whose completion is not waited for (FaSST's selective signaling).
    #[inline]
    pub(in crate::channel) fn next_flags(&self) -> SendFlags {
        self.sends.next_flags()
    }

    /// To be called when a request with these flags was posted.
    #[inline]
    pub(in crate::channel) fn note_posted(&mut self, flags: SendFlags) {
        self.sends.post_one(flags);
    }
}
