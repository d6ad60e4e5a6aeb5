//! Requests that could not be finished when they were posted: their queue, and their timeouts.

use std::time::{Duration, Instant};

use dunlin_verbs::{CompletionStatus, QueuePairState, Transport};

use super::{Executor, Reason, Step};
use crate::queue_pair::shared::Shared;
use crate::queue_pair::work::{LeftOver, Work};

/// Minimum time that the control thread gets, whatever the connection's timeout.
const CONTROL_TIME_MIN: Duration = Duration::from_millis(200);

impl Executor {
    /// Keeps a request for later.
    pub(crate) fn leave_over(&mut self, work: &Work<'_>) {
        self.queue.push_back(LeftOver::new(work));
    }

    /// Continues what was left over; returns `true` if nothing is left.
    pub(crate) fn run(&mut self, pair: &Shared) -> bool {
        if self.datagrams.is_waiting() {
            self.read_mail(pair);
        }
        while let Some(next) = self.queue.pop_front() {
            let work = next.work();
            match pair.state() {
                QueuePairState::ReadyToSend => {}
                QueuePairState::SendQueueDrained if self.crossed > 0 => {}
                QueuePairState::SendQueueDrained => {
                    self.queue.push_front(next);
                    return false;
                }
                QueuePairState::Reset => continue,
                _ => {
                    self.crossed = 0;
                    let news = pair.complete(&work, CompletionStatus::Flushed, 0);
                    self.notices.completed(news);
                    continue;
                }
            }
            let news = match self.execute(pair, &work) {
                Step::Done(bytes) | Step::Kept(bytes) => pair.succeed(&work, bytes),
                Step::Fail(status) => pair.fail(&work, status),
                Step::Wait(reason) => match self.overdue(pair, reason) {
                    None => {
                        self.queue.push_front(next);
                        return false;
                    }
                    Some(CompletionStatus::Success) => pair.succeed(&work, work.length),
                    Some(status) => pair.fail(&work, status),
                },
            };
            self.notices.completed(news);
            self.crossed = 0;
            self.waiting = None;
        }
        !self.datagrams.is_waiting()
    }

    /// Whether a request has timed out, and the status with which it then completes.
    fn overdue(&mut self, pair: &Shared, reason: Reason) -> Option<CompletionStatus> {
        let now = Instant::now();
        let since = match self.waiting {
            Some((same, since)) if same == reason => since,
            _ => {
                self.waiting = Some((reason, now));
                now
            }
        };
        let reliable = pair.transport == Transport::ReliableConnection;
        let attributes = &self.attributes;
        let timeout = Duration::from_nanos(attributes.timeout_ns)
            .saturating_mul(u32::from(attributes.retry_count) + 1)
            .max(CONTROL_TIME_MIN);
        let (bound, status) = match reason {
            Reason::Peer if attributes.timeout_ns == 0 && reliable => return None,
            Reason::Peer => (timeout, CompletionStatus::RetryExceeded),
            Reason::Receiver if attributes.receiver_not_ready_retries >= 7 => return None,
            Reason::Receiver => (
                Duration::from_nanos(attributes.receiver_not_ready_timer_ns)
                    .saturating_mul(attributes.receiver_not_ready_retries.into()),
                CompletionStatus::ReceiverNotReadyRetryExceeded,
            ),
            // A reliable receiver that is alive may take any time.
            Reason::Room if reliable => return None,
            Reason::Room => (timeout, CompletionStatus::Success),
        };
        let over = now.duration_since(since) >= bound;
        over.then_some(if reliable {
            status
        } else {
            CompletionStatus::Success
        })
    }
}
