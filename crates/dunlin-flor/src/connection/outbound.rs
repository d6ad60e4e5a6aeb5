//! The sending half: messages become work requests, and acknowledgements, losses and failures become repetitions.
//!
//! A *send* has a reliable number and stays until one of its work requests is acknowledged. A *write* stays until its
//! work request is acknowledged or, if that got lost, until the SENDs that repeat it are (two-sided retransmission,
//! Flor §5). A number that a send once had is never given up, since the peer waits for it: what is not needed any more
//! goes on without bytes.

use std::collections::{HashMap, VecDeque};

use dunlin_verbs::RemoteAddress;

use super::action::{Action, Failure, MessageId, Piece, Verb, WorkRequest};
use super::context::Context;
use super::ledger::Ledger;
use crate::ack::{Ack, AckedNumber};
use crate::congestion::{Loss, Signals};
use crate::number::{GlobalNumber, SendNumber, WriteNumber};
use crate::round_trip::WorkTimes;
use crate::wire::{Content, Header, MAX_SEND_BYTES, SEND_HEADER_BYTES};

#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: u32,
    /// Its number among those that are written, or among those that are sent.
    pub(super) number: u32,
    pub(super) written: bool,
    pub(super) place: Option<RemoteAddress>,
    pub(super) sent: u32,
    pub(super) all_sent: bool,
    /// Sends and writes of it that are not acknowledged.
    pub(super) open: u32,
    /// Work requests with bytes of it that have not completed.
    posted: u32,
    pub(super) failure: Option<Failure>,
}

/// A SEND that has no number yet.
#[derive(Debug)]
pub(super) struct NewSend {
    pub(super) content: Content,
    pub(super) piece: Option<Piece>,
    /// The message whose open it counts in.
    pub(super) message: Option<u64>,
    /// The write that it repeats.
    pub(super) parent: Option<u32>,
}

impl NewSend {
    /// One that speaks for the connection itself.
    pub(super) fn control(content: Content) -> Self {
        Self {
            content,
            piece: None,
            message: None,
            parent: None,
        }
    }
}

#[derive(Debug)]
struct Send {
    new: NewSend,
    /// The last work request that carried it.
    latest: u64,
    timeouts: u32,
}

#[derive(Debug)]
struct Write {
    piece: Piece,
    /// Its one work request.
    global: u64,
    number: WriteNumber,
    /// Bytes that repetitions have still to bring, once there are any.
    remaining: u32,
    repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// A send, by its number without wrapping.
    Send(u64),
    /// A write, by its reliable number without the hint.
    Write(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    Lost,
    Acknowledged,
}

#[derive(Debug)]
struct Work {
    carried: Carried,
    message: Option<u64>,
    epoch: u64,
    path: usize,
    bytes: u64,
    posted_ns: u64,
    completed_ns: Option<u64>,
    completed: bool,
    state: State,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) messages: Ledger<Message>,
    sends: Ledger<Send>,
    writes: HashMap<u32, Write>,
    works: Ledger<Work>,
    /// Before it no work request is out.
    oldest_out: u64,
    in_flight: u64,
    /// First the connection's own, which no window holds back.
    control: VecDeque<NewSend>,
    repeats: VecDeque<u64>,
    repairs: VecDeque<NewSend>,
    pub(super) small: VecDeque<u64>,
    pub(super) unannounced: VecDeque<u64>,
    granted: VecDeque<u64>,
    pub(super) announced: HashMap<u32, u64>,
    pub(super) next_sent: u32,
    pub(super) next_written: u32,
    /// No work request times out before.
    timer_ns: Option<u64>,
}

impl Outbound {
    pub(super) fn new() -> Self {
        Self {
            messages: Ledger::new(),
            sends: Ledger::new(),
            writes: HashMap::new(),
            works: Ledger::new(),
            oldest_out: 0,
            in_flight: 0,
            control: VecDeque::new(),
            repeats: VecDeque::new(),
            repairs: VecDeque::new(),
            small: VecDeque::new(),
            unannounced: VecDeque::new(),
            granted: VecDeque::new(),
            announced: HashMap::new(),
            next_sent: 0,
            next_written: 1,
            timer_ns: None,
        }
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Whether the peer has to say something, without being asked again by a repetition.
    pub(super) fn waits_in_silence(&self) -> bool {
        self.is_quiet() && !self.announced.is_empty()
    }

    /// Whether nothing is under way whose loss would be noticed.
    pub(super) fn is_quiet(&self) -> bool {
        self.sends.is_empty() && self.writes.is_empty() && self.control.is_empty()
    }

    pub(super) fn say(&mut self, content: Content) {
        self.control.push_back(NewSend::control(content));
    }

    /// A new message.
    pub(super) fn submit(&mut self, bytes: u32, written: bool) -> MessageId {
        let id = self.messages.push(Message {
            bytes,
            number: 0,
            written,
            place: None,
            sent: 0,
            all_sent: false,
            open: 0,
            posted: 0,
            failure: None,
        });
        if written {
            self.unannounced.push_back(id);
        } else {
            self.small.push_back(id);
        }
        MessageId(id)
    }

    /// Announces messages that are to be written, as many as there may be at once.
    pub(super) fn announce(&mut self, cx: &Context) {
        while self.announced.len() < cx.config.max_written {
            let Some(id) = self.unannounced.pop_front() else {
                return;
            };
            let number = self.next_written;
            self.next_written = (number + 1) % cx.config.layout.messages();
            let Some(message) = self.messages.get_mut(id) else {
                continue;
            };
            message.number = number;
            message.open += 1;
            let total = message.bytes;
            self.announced.insert(number, id);
            self.control.push_back(NewSend {
                content: Content::Announce {
                    message: number,
                    total,
                },
                piece: None,
                message: Some(id),
                parent: None,
            });
        }
    }

    /// The peer has memory for a message.
    pub(super) fn grant(&mut self, number: u32, place: RemoteAddress) {
        let Some(id) = self.announced.get(&number) else {
            return;
        };
        if let Some(message) = self.messages.get_mut(*id) {
            if message.place.is_none() && message.failure.is_none() {
                message.place = Some(place);
                self.granted.push_back(*id);
            }
        }
    }

    /// The peer has no memory for a message.
    pub(super) fn refuse(&mut self, cx: &mut Context, number: u32) {
        let Some(id) = self.announced.get(&number).copied() else {
            return;
        };
        if let Some(message) = self.messages.get_mut(id) {
            if message.place.is_none() {
                message.failure = Some(Failure::Refused);
                self.settle(cx, id);
            }
        }
    }

    /// The next work request that may go out.
    pub(super) fn next(&mut self, cx: &mut Context, now_ns: u64) -> Option<WorkRequest> {
        let path = cx.paths.primary();
        if cx.lost || cx.paths.outstanding(path) >= cx.config.send_queue {
            return None;
        }
        self.announce(cx);
        let numbers = self.sends.span() < cx.config.number_window as usize;
        if numbers {
            if let Some(new) = self.control.pop_front() {
                return Some(self.post_new(cx, now_ns, new));
            }
        }
        let window = cx.modules.congestion.window_bytes();
        let full = self.in_flight >= window && self.in_flight > 0;
        if full || cx.modules.congestion.not_before_ns() > now_ns {
            return None;
        }
        while let Some(number) = self.repeats.pop_front() {
            if self.sends.get(number).is_some() {
                cx.counters.repeated += 1;
                return Some(self.post_send(cx, now_ns, number));
            }
        }
        let available = window.saturating_sub(self.in_flight);
        let chunk = cx.modules.chunking.chunk_bytes(available);
        if numbers {
            while let Some(new) = self.repairs.pop_front() {
                if new.parent.is_none_or(|key| self.writes.contains_key(&key)) {
                    cx.counters.repeated += 1;
                    return Some(self.post_new(cx, now_ns, new));
                }
            }
            if let Some(new) = self.next_fragment(chunk) {
                return Some(self.post_new(cx, now_ns, new));
            }
        }
        if cx.paths.is_confirmed() {
            return self.next_write(cx, now_ns, chunk);
        }
        None
    }

    /// Whether something waits for the congestion control's rate.
    pub(super) fn has_more(&self) -> bool {
        !self.repeats.is_empty()
            || !self.repairs.is_empty()
            || !self.small.is_empty()
            || !self.granted.is_empty()
    }

    fn next_fragment(&mut self, chunk: u32) -> Option<NewSend> {
        let id = *self.small.front()?;
        let next = self.next_sent;
        let message = self.messages.get_mut(id)?;
        if message.sent == 0 {
            message.number = next;
            self.next_sent = next.wrapping_add(1);
        }
        let offset = message.sent;
        let bytes = chunk.min(message.bytes - offset);
        message.sent += bytes;
        message.open += 1;
        message.all_sent = message.sent == message.bytes;
        if message.all_sent {
            self.small.pop_front();
        }
        Some(NewSend {
            content: Content::Fragment {
                message: message.number,
                offset,
                total: message.bytes,
            },
            piece: Some(Piece {
                message: MessageId(id),
                offset,
                bytes,
            }),
            message: Some(id),
            parent: None,
        })
    }

    fn next_write(&mut self, cx: &mut Context, now_ns: u64, chunk: u32) -> Option<WorkRequest> {
        let id = *self.granted.front()?;
        let message = self.messages.get_mut(id)?;
        let offset = message.sent;
        let bytes = chunk.min(message.bytes - offset);
        message.sent += bytes;
        message.open += 1;
        message.all_sent = message.sent == message.bytes;
        let remote = message.place?.plus(offset.into());
        let mut number = WriteNumber {
            hint: false,
            message: message.number,
            offset_units: offset / cx.modules.chunking.unit_bytes(),
        };
        if message.all_sent {
            self.granted.pop_front();
        }
        let key = cx.config.layout.encode(number);
        let piece = Piece {
            message: MessageId(id),
            offset,
            bytes,
        };
        let (global, hint) = self.post(cx, now_ns, Carried::Write(key), Some(id), bytes.into());
        self.writes.insert(
            key,
            Write {
                piece,
                global: global.0,
                number,
                remaining: 0,
                repeated: false,
            },
        );
        number.hint = hint;
        Some(WorkRequest {
            path: cx.paths.primary(),
            global,
            verb: Verb::Write {
                piece,
                remote,
                immediate: cx.config.layout.encode(number),
            },
        })
    }

    fn post_new(&mut self, cx: &mut Context, now_ns: u64, new: NewSend) -> WorkRequest {
        let number = self.sends.push(Send {
            new,
            latest: 0,
            timeouts: 0,
        });
        self.post_send(cx, now_ns, number)
    }

    /// Posts a send that has a number, for the first time or again.
    fn post_send(&mut self, cx: &mut Context, now_ns: u64, number: u64) -> WorkRequest {
        let path = cx.paths.primary();
        let (mut content, mut piece) = (Content::Empty, None);
        if let Some(send) = self.sends.get_mut(number) {
            // Its write was acknowledged meanwhile: only the number is still needed.
            let parent = send.new.parent;
            if parent.is_some_and(|key| !self.writes.contains_key(&key)) {
                send.new = NewSend::control(Content::Empty);
            }
            (content, piece) = (send.new.content, send.new.piece);
        }
        let payload_bytes = piece.map_or(0, |piece| piece.bytes);
        let bytes = SEND_HEADER_BYTES as u64 + u64::from(payload_bytes);
        let message = piece.map(|piece| piece.message.0);
        let (global, hint) = self.post(cx, now_ns, Carried::Send(number), message, bytes);
        if let Some(send) = self.sends.get_mut(number) {
            send.latest = global.0;
        }
        let header = Header {
            hint,
            epoch: cx.paths.epoch() as u16,
            number: SendNumber(number as u32),
            global,
            content,
            payload_bytes,
        };
        WorkRequest {
            path,
            global,
            verb: Verb::Send {
                front: header.encode(cx.config.layout),
                piece,
            },
        }
    }

    /// Enters a work request, and says whether it is the last one that the window lets out.
    fn post(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        carried: Carried,
        message: Option<u64>,
        bytes: u64,
    ) -> (GlobalNumber, bool) {
        let path = cx.paths.primary();
        if let Some(message) = message.and_then(|id| self.messages.get_mut(id)) {
            message.posted += 1;
        }
        let global = self.works.push(Work {
            carried,
            message,
            epoch: cx.paths.epoch(),
            path,
            bytes,
            posted_ns: now_ns,
            completed_ns: None,
            completed: false,
            state: State::Out,
        });
        cx.paths.posted(path);
        self.in_flight += bytes;
        cx.modules.congestion.sent(now_ns, bytes);
        let timeouts = self.timeouts(carried);
        if let Some(timeout_ns) = cx.modules.reliability.timeout_ns(timeouts) {
            let deadline_ns = now_ns.saturating_add(timeout_ns);
            let timer_ns = self.timer_ns.unwrap_or(u64::MAX);
            self.timer_ns = Some(timer_ns.min(deadline_ns));
        }
        let hint = self.in_flight >= cx.modules.congestion.window_bytes();
        (GlobalNumber(global), hint)
    }

    fn timeouts(&self, carried: Carried) -> u32 {
        match carried {
            Carried::Send(number) => self.sends.get(number).map_or(0, |send| send.timeouts),
            // After the first one it is repeated by sends.
            Carried::Write(_) => 0,
        }
    }

    /// The NIC is done with a work request; at `at_ns`, by our clock, if it went well.
    pub(super) fn completed(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        global: GlobalNumber,
        at_ns: Option<u64>,
    ) {
        let Some(work) = self.works.get_mut(global.0).filter(|work| !work.completed) else {
            return;
        };
        work.completed = true;
        work.completed_ns = at_ns;
        let (path, epoch, message) = (work.path, work.epoch, work.message);
        if let Some(step) = cx.paths.completed(path) {
            cx.step(path, step);
        }
        if let Some(id) = message {
            if let Some(message) = self.messages.get_mut(id) {
                message.posted = message.posted.saturating_sub(1);
            }
        }
        if at_ns.is_some() && cx.modules.reliability.completion_acknowledges() {
            self.acknowledge_one(cx, now_ns, global, false, None);
        }
        if let Some(id) = message {
            self.settle(cx, id);
        }
        if at_ns.is_none() && epoch == cx.paths.epoch() {
            self.path_failed(cx, now_ns, path);
        }
        self.trim();
    }

    /// RC's completion: an acknowledgement of one work request.
    fn acknowledge_one(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        global: GlobalNumber,
        marked: bool,
        ack: Option<(u64, u64)>,
    ) {
        let Some(work) = self.works.get(global.0) else {
            return;
        };
        let times = work.times(ack);
        if let Some(bytes) = self.close(cx, global.0) {
            let rtt_ns = cx.modules.round_trip.sample_ns(&times);
            cx.signal(
                now_ns,
                Signals {
                    bytes,
                    rtt_ns,
                    marked,
                },
            );
        }
    }

    /// A software acknowledgement came, at `at_ns` by our clock.
    pub(super) fn acknowledged(&mut self, cx: &mut Context, now_ns: u64, ack: &Ack, at_ns: u64) {
        let mut bytes = 0;
        let mut rtt_ns = None;
        let mut latest = None;
        for number in ack.numbers() {
            let Some(global) = self.global_of(cx, *number) else {
                cx.counters.unknown_acks += 1;
                continue;
            };
            let Some(work) = self.works.get(global) else {
                continue;
            };
            let times = work.times(Some((at_ns, ack.delay_ns)));
            if work.epoch == cx.paths.epoch() {
                cx.paths.confirm();
                latest = latest.max(Some(global));
            }
            rtt_ns = None;
            if let Some(acknowledged) = self.close(cx, global) {
                bytes += acknowledged;
                // The delay is that of the packet's last number.
                rtt_ns = cx.modules.round_trip.sample_ns(&times);
            }
        }
        cx.signal(
            now_ns,
            Signals {
                bytes,
                rtt_ns,
                marked: ack.marked,
            },
        );
        if let Some(latest) = latest {
            self.overtaken(cx, now_ns, latest);
        }
        self.trim();
    }

    /// The work request that a number acknowledges, if it was ever posted with that number.
    fn global_of(&self, cx: &Context, number: AckedNumber) -> Option<u64> {
        match number {
            AckedNumber::Send(global) => {
                let carried = self.works.get(global.0)?.carried;
                matches!(carried, Carried::Send(_)).then_some(global.0)
            }
            AckedNumber::Write(immediate) => {
                let number = WriteNumber {
                    hint: false,
                    ..cx.config.layout.decode(immediate)
                };
                let key = cx.config.layout.encode(number);
                self.writes.get(&key).map(|write| write.global)
            }
        }
    }

    /// A work request is acknowledged: what it carried is done. Says how many bytes that are; `None` if it was before.
    fn close(&mut self, cx: &mut Context, global: u64) -> Option<u64> {
        let work = self.works.get_mut(global)?;
        if work.state == State::Acknowledged {
            return None;
        }
        if work.state == State::Out {
            self.in_flight -= work.bytes;
        } else {
            cx.counters.spurious += 1;
        }
        work.state = State::Acknowledged;
        let bytes = work.bytes;
        match work.carried {
            Carried::Send(number) => {
                if let Some(send) = self.sends.remove(number) {
                    if let Some(key) = send.new.parent {
                        let carried = send.new.piece.map_or(0, |piece| piece.bytes);
                        self.repaired(cx, key, carried);
                    } else if let Some(id) = send.new.message {
                        self.closed(cx, id);
                    }
                }
            }
            Carried::Write(key) => self.write_done(cx, key),
        }
        Some(bytes)
    }

    fn repaired(&mut self, cx: &mut Context, key: u32, bytes: u32) {
        if let Some(write) = self.writes.get_mut(&key) {
            write.remaining = write.remaining.saturating_sub(bytes);
            if write.remaining == 0 {
                self.write_done(cx, key);
            }
        }
    }

    fn write_done(&mut self, cx: &mut Context, key: u32) {
        if let Some(write) = self.writes.remove(&key) {
            self.closed(cx, write.piece.message.0);
        }
    }

    fn closed(&mut self, cx: &mut Context, id: u64) {
        if let Some(message) = self.messages.get_mut(id) {
            message.open = message.open.saturating_sub(1);
        }
        self.settle(cx, id);
    }

    /// Tells that a message is done with, if it is: nothing of it is open, and the NIC reads none of its bytes.
    fn settle(&mut self, cx: &mut Context, id: u64) {
        let Some(message) = self.messages.get(id) else {
            return;
        };
        let whole = message.all_sent && message.open == 0;
        if message.posted > 0 || !(whole || message.failure.is_some()) {
            return;
        }
        if let Some(message) = self.messages.remove(id) {
            if message.written {
                self.announced.remove(&message.number);
            }
            let outcome = message.failure.map_or(Ok(()), Err);
            cx.actions
                .push_back(Action::Finished(MessageId(id), outcome));
        }
    }

    /// What was posted long enough before an acknowledged work request, and is not acknowledged itself, is lost.
    fn overtaken(&mut self, cx: &mut Context, now_ns: u64, latest: u64) {
        let end = latest.saturating_sub(cx.modules.reliability.reordering().saturating_sub(1));
        self.skip_settled();
        let lost: Vec<u64> = (self.oldest_out..end)
            .filter(|global| self.is_out(*global))
            .collect();
        if !lost.is_empty() {
            cx.modules.congestion.lost(now_ns, Loss::Overtaken);
            cx.modules.chunking.lost();
        }
        for global in lost {
            self.lose(cx, global);
        }
    }

    fn is_out(&self, global: u64) -> bool {
        let work = self.works.get(global);
        work.is_some_and(|work| work.state == State::Out)
    }

    fn skip_settled(&mut self) {
        while self.oldest_out < self.works.next() && !self.is_out(self.oldest_out) {
            self.oldest_out += 1;
        }
    }

    /// A work request is lost: what it carried has to go again.
    fn lose(&mut self, cx: &mut Context, global: u64) {
        let Some(work) = self.works.get_mut(global) else {
            return;
        };
        work.state = State::Lost;
        self.in_flight -= work.bytes;
        match work.carried {
            Carried::Send(number) => {
                if self
                    .sends
                    .get(number)
                    .is_some_and(|send| send.latest == global)
                {
                    self.repeats.push_back(number);
                }
            }
            Carried::Write(key) => self.repair(cx, key),
        }
    }

    /// Cuts a write that got lost into SENDs.
    fn repair(&mut self, cx: &Context, key: u32) {
        let Some(write) = self.writes.get_mut(&key).filter(|write| !write.repeated) else {
            return;
        };
        write.repeated = true;
        write.remaining = write.piece.bytes;
        let unit = cx.modules.chunking.unit_bytes();
        let window = cx.modules.congestion.window_bytes();
        let available = window.saturating_sub(self.in_flight);
        let most = MAX_SEND_BYTES / unit * unit;
        let chunk = cx.modules.chunking.chunk_bytes(available).min(most);
        let mut begin = 0;
        while begin < write.piece.bytes {
            let bytes = chunk.min(write.piece.bytes - begin);
            self.repairs.push_back(NewSend {
                content: Content::Chunk(WriteNumber {
                    offset_units: write.number.offset_units + begin / unit,
                    ..write.number
                }),
                piece: Some(Piece {
                    offset: write.piece.offset + begin,
                    bytes,
                    ..write.piece
                }),
                message: None,
                parent: Some(key),
            });
            begin += bytes;
        }
    }

    /// When something may have timed out.
    pub(super) fn timer_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    /// Looks for what has timed out.
    pub(super) fn handle_timer(&mut self, cx: &mut Context, now_ns: u64) {
        if cx.lost || self.timer_ns.is_none_or(|timer| now_ns < timer) {
            return;
        }
        self.skip_settled();
        self.timer_ns = None;
        let mut expired = Vec::new();
        for global in self.oldest_out..self.works.next() {
            let Some(work) = self
                .works
                .get(global)
                .filter(|work| work.state == State::Out)
            else {
                continue;
            };
            let timeouts = self.timeouts(work.carried);
            let Some(timeout_ns) = cx.modules.reliability.timeout_ns(timeouts) else {
                continue;
            };
            let since_ns = work.posted_ns.max(work.completed_ns.unwrap_or(0));
            let deadline_ns = since_ns.saturating_add(timeout_ns);
            if deadline_ns <= now_ns {
                expired.push(global);
            } else {
                let timer_ns = self.timer_ns.unwrap_or(u64::MAX);
                self.timer_ns = Some(timer_ns.min(deadline_ns));
            }
        }
        let mut most = 0;
        for global in expired {
            let Some(carried) = self.works.get(global).map(|work| work.carried) else {
                continue;
            };
            self.lose(cx, global);
            most = most.max(1);
            if let Carried::Send(number) = carried {
                if let Some(send) = self.sends.get_mut(number) {
                    send.timeouts += 1;
                    most = most.max(send.timeouts);
                }
            }
        }
        if most > 0 {
            cx.counters.timeouts += 1;
            cx.modules.congestion.lost(now_ns, Loss::Timeout(most));
            cx.modules.chunking.lost();
        }
        if most > cx.modules.reliability.max_timeouts() {
            self.path_failed(cx, now_ns, cx.paths.primary());
        }
    }

    /// A queue pair has failed. If it is the primary, a backup takes over.
    pub(super) fn path_failed(&mut self, cx: &mut Context, now_ns: u64, path: usize) {
        if cx.lost || path != cx.paths.primary() {
            return;
        }
        match cx.paths.next_epoch() {
            Some(epoch) => self.change_epoch(cx, now_ns, epoch),
            None => cx.lost = true,
        }
    }

    /// Goes over to another queue pair: what is not acknowledged goes there again (Flor §6).
    pub(super) fn change_epoch(&mut self, cx: &mut Context, now_ns: u64, epoch: u64) {
        cx.counters.switches += 1;
        let fenced = cx.paths.change(epoch);
        for (path, step) in &fenced {
            cx.actions.push_back(Action::Fence { path: *path });
            if let Some(step) = step {
                cx.step(*path, *step);
            }
        }
        // What was said of a queue pair that is broken again holds no more.
        let stale = |content: &Content| match content {
            Content::Renewed { path, .. } | Content::Ready { path } => {
                fenced.iter().any(|(number, _)| *number == *path as usize)
            }
            _ => false,
        };
        self.control.retain(|new| !stale(&new.content));
        for send in self.sends.iter_mut() {
            send.timeouts = 0;
            if stale(&send.new.content) {
                send.new.content = Content::Empty;
            }
        }
        self.skip_settled();
        for global in self.oldest_out..self.works.next() {
            if self.is_out(global) {
                self.lose(cx, global);
            }
        }
        cx.modules.congestion.lost(now_ns, Loss::Timeout(1));
        cx.modules.chunking.lost();
        self.timer_ns = None;
        // By it the peer hears of the change.
        self.control.push_front(NewSend::control(Content::Empty));
    }

    /// The connection is lost: no message will be delivered.
    pub(super) fn give_up(&mut self, cx: &mut Context) {
        let ids: Vec<u64> = self.messages.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(message) = self.messages.get_mut(id) {
                message.failure.get_or_insert(Failure::ConnectionLost);
            }
            self.settle(cx, id);
        }
        self.timer_ns = None;
    }

    /// Forgets work requests that nothing more will be heard of.
    fn trim(&mut self) {
        while let Some((global, work)) = self.works.first() {
            let done = match (work.state, work.carried) {
                (State::Acknowledged, _) => true,
                (State::Out, _) => false,
                (State::Lost, Carried::Send(number)) => self.sends.get(number).is_none(),
                (State::Lost, Carried::Write(key)) => !self.writes.contains_key(&key),
            };
            if !done || !work.completed {
                return;
            }
            self.works.remove(global);
        }
    }
}

impl Work {
    fn times(&self, ack: Option<(u64, u64)>) -> WorkTimes {
        WorkTimes {
            posted_ns: self.posted_ns,
            completed_ns: self.completed_ns,
            acknowledged_ns: ack.map(|(at_ns, _)| at_ns),
            ack_delay_ns: ack.map(|(_, delay_ns)| delay_ns),
            bytes: self.bytes,
        }
    }
}
