//! The lane with eRPC's protocol: the driver says what leaves and when, and understands what comes; here is the clock
//! that it goes by.

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

/// Looks in vain between two looks at the clock: timers are of milliseconds.
const LOOKS_PER_CLOCK: u32 = 64;

/// A driver and its clock.
#[derive(Debug)]
pub(super) struct Driving {
    pub(super) driver: Driver,
    began: Option<Instant>,
    looks: u32,
    /// When the datagrams came that are being read: one look at the clock for all of them (eRPC §5.2.2).
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

    /// Nanoseconds since the first look, by the clock of who polls.
    fn now_ns(&mut self) -> u64 {
        let now = thread::now();
        let since = now.saturating_duration_since(*self.began.get_or_insert(now));
        since.as_nanos() as u64
    }
}

impl<D: Device> DatagramLane<D> {
    /// Hands what may leave to the device.
    pub(super) fn drive(&mut self) -> Result<(), ChannelError> {
        loop {
            let most = match (self.met, self.introduced) {
                // One packet is left for control messages that find no room in the others.
                (true, _) => PACKETS - usize::from(self.has_control_messages()),
                (false, false) => 1,
                (false, true) => return Ok(()),
            };
            // Who was told that nobody waits may stop; that is not to wait for the next request.
            let tells = self.met && !self.cancels.is_empty();
            let Some(driving) = &mut self.driving else {
                return Ok(());
            };
            if !driving.driver.may_send() && !tells {
                return Ok(());
            }
            // What the driver puts into a packet has left, as far as it knows.
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

    /// After a look at what has come.
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
        // Only a rate keeps such back.
        self.drive()
    }

    /// Sends again what stayed without an answer, and what the rate lets go.
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

    /// Takes a message of the driver's server.
    pub(super) fn hear(
        &mut self,
        header: Header,
        payload: Range<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), ChannelError> {
        let Some(driving) = &mut self.driving else {
            let words = "a message of another protocol of datagrams";
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
