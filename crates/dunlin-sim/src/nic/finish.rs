//! The end of requests: completions, failures, flushes.

use dunlin_verbs::{
    AsyncEvent, Completion, CompletionOpcode, CompletionStatus, Notify, QueuePairState, SendFlags,
    Transport,
};

use crate::completion::{CqEntry, Pending};
use crate::event::{Event, Ps};
use crate::pair::{Answer, Incoming};
use crate::work::{Element, Receive, Verb};
use crate::world::World;

impl World {
    /// Completes a request at `at`, if it is signaled or failed. Completions of a queue pair appear in order, and those
    /// of failed requests not before the last bytes that the queue pair has on their way into memory have arrived.
    pub(super) fn complete_send(
        &mut self,
        qp: u32,
        element: &Element,
        status: CompletionStatus,
        at: Ps,
    ) {
        let pair = &mut self.pairs[qp as usize];
        if status == CompletionStatus::Success && !element.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        let at = pair.completion_at(status, at);
        let bytes = match element.verb {
            Verb::Read => element.length as usize,
            Verb::CompareAndSwap | Verb::FetchAndAdd => 8,
            Verb::Send | Verb::Write => 0,
        };
        let completion = Completion {
            id: element.id,
            status,
            opcode: element.verb.opcode(),
            bytes,
            queue_pair: pair.number,
            ..Completion::EMPTY
        };
        let retires = Some(element.index + 1);
        let entry = CqEntry {
            completion,
            qp,
            stamp: pair.stamp,
            retires,
        };
        let (cq, host) = (pair.send_cq, pair.host);
        self.plan_completion(
            Pending {
                cq,
                entry,
                solicited: false,
            },
            host,
            at,
        );
    }

    /// Completes a RECEIVE at `at`, in the same way as [`Self::complete_send`].
    pub(super) fn complete_receive(
        &mut self,
        qp: u32,
        completion: Completion,
        solicited: bool,
        at: Ps,
    ) {
        let pair = &mut self.pairs[qp as usize];
        let at = pair.completion_at(completion.status, at);
        let completion = Completion {
            queue_pair: pair.number,
            ..completion
        };
        let entry = CqEntry {
            completion,
            qp,
            stamp: pair.stamp,
            retires: None,
        };
        let (cq, host) = (pair.receive_cq, pair.host);
        self.plan_completion(
            Pending {
                cq,
                entry,
                solicited,
            },
            host,
            at,
        );
    }

    fn plan_completion(&mut self, pending: Pending, host: u16, at: Ps) {
        let entry = self.pending.take();
        self.pending[entry] = pending;
        self.queue.push(at, host, Event::Complete { entry });
    }

    /// Makes a completion visible.
    pub(crate) fn completion_event(&mut self, entry: u32) {
        let Pending {
            cq,
            mut entry,
            solicited,
        } = {
            let pending = self.pending[entry];
            self.pending.give_back(entry);
            pending
        };
        if self.pairs[entry.qp as usize].stamp != entry.stamp {
            return;
        }
        let host = self.pairs[entry.qp as usize].host;
        let clock = self.hosts[usize::from(host)].nic.clock;
        entry.completion.timestamp_ns = Some(clock.ns(self.now));
        let queue = &mut self.cqs[cq];
        if !queue.alive || queue.overrun {
            return;
        }
        if queue.entries.len() >= queue.limit {
            self.overrun(cq);
            return;
        }
        queue.entries.push_back(entry);
        let urgent = solicited || !entry.completion.is_success();
        self.announce(cq, urgent);
    }

    /// Notifies the thread or channel that waits for a completion queue.
    fn announce(&mut self, cq: u32, urgent: bool) {
        let queue = &mut self.cqs[cq];
        let raises = match queue.armed {
            Some(Notify::Next) => true,
            Some(Notify::Solicited) => urgent,
            None => false,
        };
        let poller = queue.poller;
        if raises {
            queue.armed = None;
            if let Some(channel) = queue.channel {
                self.raise(channel);
            }
        }
        if let Some(thread) = poller {
            let now = self.now;
            self.wake_thread(thread, now);
        }
    }

    #[cold]
    fn overrun(&mut self, cq: u32) {
        let queue = &mut self.cqs[cq];
        queue.overrun = true;
        let host = queue.host;
        for qp in self.hosts[usize::from(host)].pairs() {
            let pair = &self.pairs[qp as usize];
            if pair.send_cq == cq || pair.receive_cq == cq {
                self.fail_pair(qp);
            }
        }
        self.push_event(host, AsyncEvent::CompletionQueueOverrun);
        self.announce(cq, true);
    }

    /// Fails the request at `index`: it completes with `status`, and those behind it are flushed. RC queue pairs move
    /// to the error state, the others stop sending.
    pub(super) fn fail_send(&mut self, qp: u32, index: u64, status: CompletionStatus) {
        let now = self.now;
        while self.pairs[qp as usize].base < index {
            // Requests that were sent before and are not acknowledged cannot be known to have succeeded.
            let Some(element) = self.pairs[qp as usize].sends.pop_front() else {
                break;
            };
            self.pairs[qp as usize].base += 1;
            self.complete_send(qp, &element, CompletionStatus::Flushed, now);
        }
        let pair = &mut self.pairs[qp as usize];
        if let Some(element) = pair.sends.pop_front() {
            pair.base += 1;
            self.complete_send(qp, &element, status, now);
        }
        if self.pairs[qp as usize].transport == Transport::ReliableConnection {
            self.fail_pair(qp);
        } else {
            self.pairs[qp as usize].state = QueuePairState::SendQueueError;
            self.flush_sends(qp);
        }
    }

    /// Moves a queue pair to the error state and flushes everything.
    pub(crate) fn fail_pair(&mut self, qp: u32) {
        self.pairs[qp as usize].state = QueuePairState::Error;
        self.drop_answers(qp);
        self.flush_sends(qp);
        self.flush_receives(qp);
    }

    /// Moves a responder that has refused a request to the error state; it still sends the answers that are due before
    /// the refusal.
    pub(super) fn fail_pair_after_answers(&mut self, qp: u32) {
        self.pairs[qp as usize].state = QueuePairState::Error;
        self.flush_sends(qp);
        self.flush_receives(qp);
    }

    /// Drops answers that were not sent yet.
    pub(crate) fn drop_answers(&mut self, qp: u32) {
        while let Some(answer) = self.pairs[qp as usize].answers.pop_front() {
            if let Answer::Packet(packet) = answer {
                self.packets.give_back(packet);
            }
        }
    }

    /// Completes all requests as flushed.
    pub(crate) fn flush_sends(&mut self, qp: u32) {
        let now = self.now;
        let pair = &mut self.pairs[qp as usize];
        let elements = std::mem::take(&mut pair.sends);
        pair.base = pair.posted;
        (pair.cursor, pair.cursor_packet, pair.rung) = (pair.posted, 0, pair.posted);
        pair.fetching = 0;
        for element in elements {
            self.complete_send(qp, &element, CompletionStatus::Flushed, now);
        }
    }

    /// Completes as flushed the RECEIVEs of a queue pair's own queue, and the one that a message was filling.
    pub(crate) fn flush_receives(&mut self, qp: u32) {
        let pair = &mut self.pairs[qp as usize];
        let filling = pair
            .incoming
            .take()
            .and_then(|Incoming { receive, .. }| receive);
        let (queue, shared) = (pair.receives, pair.shared);
        let own = if shared {
            Default::default()
        } else {
            self.receives[queue].clear()
        };
        for Receive { id, .. } in filling.into_iter().chain(own) {
            self.fail_receive(qp, id, CompletionStatus::Flushed);
        }
    }

    /// Completes one RECEIVE with an error.
    pub(super) fn fail_receive(&mut self, qp: u32, id: u64, status: CompletionStatus) {
        let opcode = CompletionOpcode::Receive;
        let completion = Completion {
            id,
            status,
            opcode,
            ..Completion::EMPTY
        };
        let now = self.now;
        self.complete_receive(qp, completion, true, now);
    }
}
