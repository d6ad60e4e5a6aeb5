//! The lane with eRPC's protocol: the driver decides what is sent and when, and interprets what arrives; this module
//! provides its clock.

use std::ops::Range;
use std::sync::PoisonError;
use std::time::Instant;

use dunlin_verbs::{thread, Device, Work};

use super::arrivals::long_answer;
use super::{DatagramLane, PACKETS};
use crate::call::lane::Sink;
use crate::channel::datagram::driven::client::{Driver, Heard, Response};
use crate::channel::datagram::packet::Packet;
use crate::channel::message::Header;
use crate::channel::ChannelError;
use crate::effort;
use crate::error::WireFailure;

/// Number of polls without success between two reads of the clock: timers are in milliseconds.
const LOOKS_PER_CLOCK: u32 = 64;

/// A driver and its clock.
#[derive(Debug)]
pub(super) struct Driving {
    pub(super) driver: Driver,
    began: Option<Instant>,
    looks: u32,
    /// When the datagrams being read arrived: one read of the clock for all of them (eRPC §5.2.2).
    came_ns: Option<u64>,
}

impl Driving {
    pub(super) fn new(driver: Driver) -> Self {
        Self {
            driver,
            began: None,
            looks: 0,
            came_ns: None,
        }
    }

    /// Nanoseconds since the first read, by the clock of the polling thread.
    fn now_ns(&mut self) -> u64 {
        let now = thread::now();
        let since = now.saturating_duration_since(*self.began.get_or_insert(now));
        since.as_nanos() as u64
    }
}

impl<D: Device> DatagramLane<D> {
    /// Posts what may be sent to the device.
    pub(super) fn drive(&mut self) -> Result<(), ChannelError> {
        loop {
            let most = match (self.met, self.introduced) {
                // One packet is reserved for control messages that do not fit into the others.
                (true, _) => PACKETS - usize::from(self.has_control_messages()),
                (false, false) => 1,
                (false, true) => return Ok(()),
            };
            // A server that learns of cancelled calls may stop executing them; this should not wait for the next
            // request.
            let tells = self.met && !self.cancels.is_empty();
            let Some(driving) = &mut self.driving else {
                return Ok(());
            };
            if !driving.driver.may_send() && !tells {
                return Ok(());
            }
            // The driver regards what it puts into a packet as sent.
            let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            if !held.has_room(PACKETS)? {
                self.held_up = true;
                return Ok(());
            }
            drop(held);
            let now = driving.now_ns();
            let mut count = 0;
            while count < most {
                if count == self.packets.len() {
                    self.packets.push(Packet::new(self.room.bytes));
                }
                if !driving.driver.put(&mut self.packets[count], now) {
                    break;
                }
                D::charge(Work::Copy(self.packets[count].bytes().len()));
                count += 1;
            }
            if count == 0 && !tells {
                return Ok(());
            }
            count = count.max(usize::from(tells));
            self.last = count - 1;
            self.introduced = true;
            self.send_packets(count)?;
            if count < most {
                return Ok(());
            }
        }
    }

    /// To be called after a poll for arrivals.
    #[inline]
    pub(super) fn drive_on(&mut self, taken: usize) -> Result<(), ChannelError> {
        let Some(driving) = &mut self.driving else {
            return Ok(());
        };
        driving.came_ns = None;
        if taken > 0 {
            return self.drive();
        }
        driving.looks = driving.looks.wrapping_add(1);
        if driving.looks % LOOKS_PER_CLOCK == 0 {
            return self.keep_time();
        }
        // Only a rate delays such packets.
        self.drive()
    }

    /// Retransmits what remained unanswered, and sends what the rate permits.
    #[cold]
    pub(super) fn keep_time(&mut self) -> Result<(), ChannelError> {
        let Some(driving) = &mut self.driving else {
            return Ok(());
        };
        let now = driving.now_ns();
        if driving.driver.go_back(now) && !self.met {
            // The first one is lost, or its server was not ready.
            self.introduced = false;
        }
        self.drive()
    }

    /// Handles a message from the server.
    pub(super) fn hear(
        &mut self,
        header: Header,
        payload: Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        let Some(driving) = &mut self.driving else {
            let words = "a message of a different datagram protocol";
            return Err(ChannelError::violation(words));
        };
        let now = match driving.came_ns {
            Some(now) => now,
            None => driving.now_ns(),
        };
        driving.came_ns = Some(now);
        let payload = &self.scratch[payload];
        D::charge(effort::HEARD);
        D::charge(Work::Copy(payload.len()));
        let call = header.call;
        match driving.driver.hear(header, payload, now)? {
            Heard::Nothing | Heard::Progress => return Ok(()),
            Heard::Whole => {}
        }
        let tag = self.calls.finish(call).and_then(|ended| ended.tag);
        match driving.driver.take_response(call) {
            Response::Short(bytes) => {
                if let Some(tag) = tag {
                    sink.answer(tag, bytes);
                }
            }
            Response::Long(bytes) => {
                self.releases.push(call);
                if let Some(tag) = tag {
                    sink.complete(tag, long_answer(bytes));
                }
            }
            Response::Failure(bytes) => {
                let failure = WireFailure::decode(bytes)
                    .ok_or_else(|| ChannelError::violation("a failure without a reason"))?;
                if let Some(tag) = tag {
                    sink.complete(tag, Err(failure.into_call_error()));
                }
            }
        }
        Ok(())
    }
}
