//! The requester: answers of the peer, and retransmission after a loss.

use dunlin_verbs::{CompletionStatus, Transport};

use crate::event::{Event, Ps};
use crate::packet::{Kind, Place, Refusal};
use crate::work::Verb;
use crate::world::World;

use super::pcie::{Cost, ENTRY_BYTES};
use super::transmit::element_key;

impl World {
    /// Handles an answer; returns the engine's time.
    pub(super) fn answered(&mut self, host: u16, qp: u32, packet: u32) -> Ps {
        let mut cost = self.touch_context(host, qp);
        let entry = &self.packets[packet];
        let (kind, psn) = (entry.kind, entry.psn);
        let bytes = entry.payload.len() as u64;
        let nic = &self.hosts[usize::from(host)].nic;
        cost.engine += match kind {
            Kind::ReadResponse | Kind::AtomicResponse if self.is_first_response(qp, psn) => {
                nic.parameters.rx_read_response
            }
            Kind::ReadResponse | Kind::AtomicResponse => nic.parameters.rx_packet,
            _ => nic.parameters.rx_ack,
        };
        cost.engine += nic.payload_time(bytes);
        if self.pairs[qp as usize].transport != Transport::ReliableConnection {
            self.packets.give_back(packet);
            return cost.engine;
        }
        match kind {
            Kind::ReadResponse | Kind::AtomicResponse => {
                return self.response(host, qp, packet, cost)
            }
            Kind::Refuse(refusal) => self.refused(host, qp, psn, refusal, &mut cost),
            _ => {
                self.acknowledged(host, qp, psn, &mut cost);
            }
        }
        self.packets.give_back(packet);
        cost.engine
    }

    fn is_first_response(&self, qp: u32, psn: u64) -> bool {
        let front = self.pairs[qp as usize].sends.front();
        !front.is_some_and(|element| element.packets > 1 && element.first_psn < psn)
    }

    /// Completes everything that `psn` acknowledges. Returns false when a READ before it still lacks its response; the
    /// sender then goes back to that READ.
    fn acknowledged(&mut self, host: u16, qp: u32, psn: u64, cost: &mut Cost) -> bool {
        let pipeline = self.hosts[usize::from(host)].nic.parameters.pipeline;
        loop {
            let pair = &mut self.pairs[qp as usize];
            let Some(front) = pair.sends.front_mut() else {
                break;
            };
            if front.packets == 0 || front.first_psn > psn {
                break;
            }
            let last = front.first_psn + u64::from(front.packets) - 1;
            if front.verb.fetches() {
                let due = front.first_psn + u64::from(front.answered);
                if due <= psn {
                    self.lost_answer(host, qp, due);
                    return false;
                }
                break;
            }
            if last > psn {
                // Part of a long message has arrived: a retransmission starts from there. A repeated acknowledgement is
                // no progress.
                let known = (psn + 1 - front.first_psn) as u32;
                if known > front.answered {
                    front.answered = known;
                    self.progressed(qp);
                    if self.window_of(qp).is_some() {
                        self.wake_sender(qp);
                    }
                }
                break;
            }
            let at = self.now + cost.engine + cost.latency + pipeline;
            *cost += self.finish_front(host, qp, at);
        }
        true
    }

    /// Completes the oldest request; returns the cost of its completion.
    fn finish_front(&mut self, host: u16, qp: u32, at: Ps) -> Cost {
        let pair = &mut self.pairs[qp as usize];
        let Some(element) = pair.sends.pop_front() else {
            return Cost::default();
        };
        let cq = pair.send_cq;
        pair.base += 1;
        // When the sender had gone back, the cursor may be before what is now known to be complete.
        if pair.cursor < pair.base {
            pair.cursor = pair.base;
            pair.cursor_packet = 0;
        }
        let fetches = element.verb.fetches();
        if fetches {
            pair.fetching -= 1;
            pair.fenced_until = pair.fenced_until.max(at);
        }
        self.progressed(qp);
        let signaled = element.flags.contains(dunlin_verbs::SendFlags::SIGNALED);
        let cost = match signaled {
            true => self.touch_completions(host, cq),
            false => Cost::default(),
        };
        let at = at + cost.engine + cost.latency;
        let written = match (signaled, fetches) {
            (false, _) => 0,
            // Right behind its data; `at` includes their way into memory.
            (true, true) => self.completion_latency(host, true),
            (true, false) => self.dma_write(host, ENTRY_BYTES),
        };
        self.complete_send(qp, &element, CompletionStatus::Success, at + written);
        self.wake_sender(qp);
        cost
    }

    fn progressed(&mut self, qp: u32) {
        let pair = &mut self.pairs[qp as usize];
        pair.progress_at = self.now;
        pair.retries_left = pair.attributes.retry_count;
        pair.not_ready_left = pair.attributes.receiver_not_ready_retries;
        pair.went_back = None;
        pair.careful = false;
        self.widen(qp);
    }

    /// An answer is missing: requests it again from there, once until there is progress.
    fn lost_answer(&mut self, host: u16, qp: u32, psn: u64) {
        let pair = &mut self.pairs[qp as usize];
        self.hosts[usize::from(host)].nic.counters.out_of_sequence += 1;
        if pair.went_back == Some(psn) {
            return;
        }
        pair.went_back = Some(psn);
        pair.go_back(psn);
        self.hosts[usize::from(host)].nic.counters.retransmissions += 1;
        self.wake_sender(qp);
    }

    /// Handles a response to a READ or an atomic.
    fn response(&mut self, host: u16, qp: u32, packet: u32, mut cost: Cost) -> Ps {
        let psn = self.packets[packet].psn;
        // It acknowledges everything before it.
        let front_first = self.pairs[qp as usize]
            .sends
            .front()
            .map(|element| element.first_psn);
        let before = psn > 0 && front_first.is_some_and(|first| first < psn);
        let whole = !before || self.acknowledged_before(host, qp, psn, &mut cost);
        let pair = &self.pairs[qp as usize];
        let due = pair
            .sends
            .front()
            .filter(|element| element.packets > 0 && element.verb.fetches());
        let expected = due.map(|element| element.first_psn + u64::from(element.answered));
        if !whole || expected != Some(psn) {
            if expected.is_some_and(|expected| psn < expected) || expected.is_none() {
                self.hosts[usize::from(host)].nic.counters.duplicates += 1;
            }
            self.packets.give_back(packet);
            return cost.engine;
        }
        let element = due.expect("it is expected");
        let (index, offset) = (element.index, u64::from(element.answered));
        let (segs, verb) = (element.segs.clone(), element.verb);
        let context = pair.context();
        let nic = &mut self.hosts[usize::from(host)].nic;
        let mtu = nic.parameters.mtu_bytes as u64;
        if !nic.elements.touch_in(context, element_key(context, index)) {
            nic.counters.element_misses += 1;
            nic.counters.pcie_read_lines += 1;
            cost.engine += nic.parameters.wqe_miss;
            cost.latency += nic.parameters.dma_read;
        }
        let bytes = if verb == Verb::Read {
            self.packets[packet].payload.len() as u64
        } else {
            8
        };
        if !self.segs_alive(host, &segs) {
            self.packets.give_back(packet);
            self.fail_send(qp, index, CompletionStatus::LocalProtection);
            return cost.engine;
        }
        let offset = offset * mtu;
        if bytes > 0 {
            cost += self.price_of_segs(host, &segs, offset, bytes);
        }
        let pipeline = self.hosts[usize::from(host)].nic.parameters.pipeline;
        let at = self.place_time(qp, self.now + cost.engine + cost.latency + pipeline);
        self.packets[packet].place = Place::Scatter { segs, offset };
        self.queue.push(at, host, Event::Place { packet });
        self.progressed(qp);
        let element = self.pairs[qp as usize]
            .sends
            .front_mut()
            .expect("it was just there");
        element.answered += 1;
        if element.answered == element.packets {
            let nic = &mut self.hosts[usize::from(host)].nic;
            nic.elements.forget_in(context, element_key(context, index));
            cost += self.finish_front(host, qp, at);
        }
        cost.engine
    }

    /// Completes the requests before the one that a response answers, but not that one.
    fn acknowledged_before(&mut self, host: u16, qp: u32, psn: u64, cost: &mut Cost) -> bool {
        let own = self.pairs[qp as usize]
            .sends
            .iter()
            .find(|element| {
                element.packets > 0 && psn < element.first_psn + u64::from(element.packets)
            })
            .map(|element| element.first_psn + u64::from(element.answered));
        match own {
            Some(due)
                if psn > due
                    && self.pairs[qp as usize]
                        .sends
                        .front()
                        .is_some_and(|e| e.first_psn + u64::from(e.answered) == due) =>
            {
                // Packets of this response are missing.
                self.lost_answer(host, qp, due);
                false
            }
            Some(due) if psn >= due => due == 0 || self.acknowledged(host, qp, due - 1, cost),
            _ => true,
        }
    }

    /// Handles a refusal of a request by the peer.
    fn refused(&mut self, host: u16, qp: u32, psn: u64, refusal: Refusal, cost: &mut Cost) {
        if psn > 0 && !self.acknowledged(host, qp, psn - 1, cost) {
            return;
        }
        let now = self.now;
        let pair = &mut self.pairs[qp as usize];
        let due = pair.sends.front().map(|element| {
            let end = element.first_psn + u64::from(element.packets);
            element.packets > 0 && (element.first_psn..end).contains(&psn)
        });
        if due != Some(true) {
            // An old refusal: what it refused was repeated since.
            return;
        }
        let index = pair.base;
        let status = match refusal {
            Refusal::Sequence => {
                pair.went_back = Some(psn);
                pair.go_back(psn);
                self.hosts[usize::from(host)].nic.counters.retransmissions += 1;
                self.wake_sender(qp);
                return;
            }
            Refusal::NotReady(wait) => {
                if pair.not_ready_left > 0 {
                    if pair.not_ready_left < 7 {
                        pair.not_ready_left -= 1;
                    }
                    pair.go_back(psn);
                    pair.progress_at = now.saturating_add(wait);
                    self.pause_sender(qp, now.saturating_add(wait.max(1)));
                    return;
                }
                CompletionStatus::ReceiverNotReadyRetryExceeded
            }
            Refusal::Access => CompletionStatus::RemoteAccess,
            Refusal::Invalid => CompletionStatus::RemoteInvalidRequest,
            Refusal::Operation => CompletionStatus::RemoteOperation,
        };
        self.fail_send(qp, index, status);
    }
}
