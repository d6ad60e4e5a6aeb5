//! Selects what to send next: the connection's own SENDs, retransmissions, messages that are sent, and last those that
//! are written (Flor §3.2).

use super::{Carried, NewSend, Outbound, Send, State, Work, Write};
use crate::connection::action::{Verb, WorkRequest};
use crate::connection::context::Context;
use crate::number::{GlobalNumber, SendNumber, WriteNumber};
use crate::wire::{Content, Header, SEND_HEADER_BYTES};

/// Number of the peer's RECEIVEs that messages leave for the connection's own SENDs.
const CONTROL_RECEIVES: usize = 2;

/// Number of message bytes that one SEND carries: whole units.
pub(super) fn fragment_bytes(cx: &Context) -> u32 {
    let unit = cx.modules.chunking.unit_bytes();
    cx.config.max_fragment_bytes / unit * unit
}

/// Minimum number of bytes worth a work request, if that many are left. Without it, a nearly full window would allow a
/// tiny chunk, which, as the last in the window, is acknowledged by itself and makes space for the next tiny chunk:
/// TCP's silly window (RFC 1122 §4.2.3.4).
fn least_bytes(cx: &Context) -> u64 {
    let window = cx.modules.congestion.window_bytes();
    let unit = cx.modules.chunking.unit_bytes().into();
    let whole = cx.modules.chunking.chunk_bytes(u64::MAX);
    u64::from(whole).min((window / 2).max(unit))
}

impl Outbound {
    /// Returns the next work request that may be sent.
    pub(in crate::connection) fn next(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
    ) -> Option<WorkRequest> {
        // Most calls end here, before any module is consulted.
        if self.control.is_empty() && self.unannounced.is_empty() && !self.has_more() {
            return None;
        }
        let path = cx.paths.primary();
        if cx.lost || cx.paths.outstanding(path) >= cx.config.send_queue {
            return None;
        }
        let receives = cx.config.peer_receives;
        if self.out >= receives {
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
        let full = full || self.out + CONTROL_RECEIVES >= receives;
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
        let least = match self.in_flight {
            0 => 0,
            _ => least_bytes(cx),
        };
        // The rest of a message may be less, which is then enough.
        let fits = |rest: u32| available >= least.min(rest.into());
        if numbers {
            while let Some(new) = self.repairs.pop_front() {
                if new.parent.is_none_or(|key| self.writes.contains_key(&key)) {
                    cx.counters.repeated += 1;
                    return Some(self.post_new(cx, now_ns, new));
                }
            }
            let fragment = fragment_bytes(cx);
            let fits = |rest: u32| fits(rest.min(fragment));
            if let Some(new) = self.next_fragment(chunk.min(fragment), fits) {
                return Some(self.post_new(cx, now_ns, new));
            }
        }
        if cx.paths.is_confirmed() {
            return self.next_write(cx, now_ns, chunk, fits);
        }
        None
    }

    /// Whether something waits for the congestion control's rate.
    pub(in crate::connection) fn has_more(&self) -> bool {
        !self.repeats.is_empty()
            || !self.repairs.is_empty()
            || !self.small.is_empty()
            || !self.granted.is_empty()
    }

    pub(super) fn next_fragment(
        &mut self,
        chunk: u32,
        fits: impl Fn(u32) -> bool,
    ) -> Option<NewSend> {
        let id = *self.small.front()?;
        let next = self.next_sent;
        let message = self.messages.get_mut(id)?;
        if !fits(message.bytes - message.sent) {
            return None;
        }
        if message.sent == 0 {
            message.number = next;
            self.next_sent = next.wrapping_add(1);
        }
        let piece = message.cut(id, chunk);
        if message.all_sent {
            self.small.pop_front();
        }
        Some(NewSend {
            content: Content::Fragment {
                message: message.number,
                offset: piece.offset,
                total: message.bytes,
            },
            piece: Some(piece),
            message: Some(id),
            parent: None,
        })
    }

    pub(super) fn next_write(
        &mut self,
        cx: &mut Context,
        now_ns: u64,
        chunk: u32,
        fits: impl Fn(u32) -> bool,
    ) -> Option<WorkRequest> {
        let id = *self.granted.front()?;
        let message = self.messages.get_mut(id)?;
        if !fits(message.bytes - message.sent) {
            return None;
        }
        let piece = message.cut(id, chunk);
        let remote = message.place?.plus(piece.offset.into());
        let mut number = WriteNumber {
            hint: false,
            message: message.number,
            offset_units: piece.offset / cx.modules.chunking.unit_bytes(),
        };
        if message.all_sent {
            self.granted.pop_front();
        }
        let key = cx.config.layout.encode(number);
        let bytes = piece.bytes.into();
        let (global, hint) = self.post(cx, now_ns, Carried::Write(key), Some(id), bytes);
        self.writes.insert(
            key,
            Write {
                piece,
                global: global.0,
                number,
                remaining: 0,
                repeated: false,
                abandoned: false,
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

    pub(super) fn post_new(&mut self, cx: &mut Context, now_ns: u64, new: NewSend) -> WorkRequest {
        let number = self.sends.push(Send {
            new,
            latest: 0,
            timeouts: 0,
        });
        self.post_send(cx, now_ns, number)
    }

    /// Posts a send that has a number, for the first time or again.
    pub(super) fn post_send(&mut self, cx: &mut Context, now_ns: u64, number: u64) -> WorkRequest {
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

    /// Records a work request; returns its number and whether it is the last one that the window allows.
    pub(super) fn post(
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
        self.out += 1;
        cx.modules.congestion.sent(now_ns, bytes);
        let timeouts = self.timeouts(carried);
        if let Some(timeout_ns) = cx.modules.reliability.timeout_ns(timeouts) {
            let deadline_ns = now_ns.saturating_add(timeout_ns);
            let timer_ns = self.timer_ns.unwrap_or(u64::MAX);
            self.timer_ns = Some(timer_ns.min(deadline_ns));
        }
        let window = cx.modules.congestion.window_bytes();
        let hint = self.in_flight.saturating_add(least_bytes(cx)) > window;
        (GlobalNumber(global), hint)
    }

    pub(super) fn timeouts(&self, carried: Carried) -> u32 {
        match carried {
            Carried::Send(number) => self.sends.get(number).map_or(0, |send| send.timeouts),
            // After the first time, a write is retransmitted by sends.
            Carried::Write(_) => 0,
        }
    }
}
