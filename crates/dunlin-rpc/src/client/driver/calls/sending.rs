//! Submitting calls of futures to their lane: at once if there is room, otherwise after those that wait for it.

use std::sync::Arc;
use std::time::Duration;

use super::{Attaching, Calls, Holds, Keep, State, Wish, ATTACH};
use crate::call::lane::{CallId, Lane, Submitted};
use crate::client::region::granted_on;
use crate::error::CallError;

impl<K: Keep> Calls<K> {
    /// Sends queued calls, as far as there is room; returns whether any was sent.
    pub(in crate::client) fn send_waiting(&mut self, lane: &mut dyn Lane) -> bool {
        let mut sent = false;
        while let Some(&tag) = self.waiting.front() {
            let mut refused = None;
            match self.attaching.take() {
                Some(Attaching {
                    answer: Some(answer),
                    region,
                    ..
                }) => {
                    let granted = granted_on(lane, &region, answer);
                    refused = granted.err().map(|error| (region.number, error));
                }
                Some(attaching) => {
                    self.attaching = Some(attaching);
                    return sent;
                }
                None => {}
            }
            let slot = &self.slots[tag];
            let State::Waiting(asked) = &slot.state else {
                self.waiting.pop_front();
                continue;
            };
            let wish = asked.wish();
            let said = self.told.says(slot.terms.after, slot.terms.began());
            let submitted = match (refused, wish) {
                // The call that requested it may have been given up.
                (Some((number, error)), Wish::OneSided(region, ..)) if region.number == number => {
                    Err(error)
                }
                _ => wish.submit(lane, tag, (said, &mut Vec::new())),
            };
            let submitted = match (submitted, wish) {
                (Ok(Submitted::Unattached), Wish::OneSided(region, ..)) => {
                    match lane.submit_attach(region, ATTACH) {
                        Ok(Some(call)) => {
                            self.attaching = Some(Attaching {
                                call,
                                region: Arc::clone(region),
                                answer: None,
                            });
                            return true;
                        }
                        Ok(None) => return sent,
                        Err(error) => Err(error),
                    }
                }
                (other, _) => other,
            };
            match submitted {
                Ok(Submitted::Call(call)) => {
                    sent = true;
                    self.slots[tag].state = State::Out(call);
                }
                Ok(Submitted::Full | Submitted::Unattached) => return sent,
                Err(error) => self.fail(tag, error),
            }
            self.waiting.pop_front();
        }
        sent
    }
}

impl<K: Keep> Calls<K> {
    /// Sends a call with the deadline `after`, or queues it until there is room. `flush_now`: no one else posts the
    /// lane's batch to the device soon.
    #[inline]
    pub(in crate::client) fn put(
        &mut self,
        lane: &mut (dyn Lane + 'static),
        wish: Wish<'_>,
        (after, holds): (Duration, Holds),
        flush_now: bool,
    ) -> Result<usize, CallError> {
        if !self.waiting.is_empty() {
            // Queued calls come first.
            return self.wait(wish, (after, holds));
        }
        let told = self.told;
        let (tag, slot) = self.reserve(after, holds)?;
        let submitted = match wish {
            // Nearly all calls are of this kind.
            Wish::Call(handler, payload) if told.is_enough(after) => {
                lane.submit_short(handler, payload, tag as u64)
            }
            _ => None,
        };
        match submitted {
            Some(call) => slot.state.fill(State::Out(call)),
            None => self.put_any(lane, wish, tag)?,
        }
        if flush_now {
            // A lane that is lost has ended its calls with the error.
            let _ = lane.flush(self);
        }
        Ok(tag)
    }

    /// Sends a call that carries its deadline, is not short, or finds no room.
    #[inline(never)]
    fn put_any(
        &mut self,
        lane: &mut (dyn Lane + 'static),
        wish: Wish<'_>,
        tag: usize,
    ) -> Result<(), CallError> {
        let slot = &mut self.slots[tag];
        // It is outstanding before it is named: it may end while it is sent.
        slot.state = State::Out(CallId::MAX);
        let said = self.told.says(slot.terms.after, None);
        if said.is_some() {
            // It states its remaining time, so that begins now.
            slot.terms.begin();
        }
        let mut submitted = wish.submit(lane, tag, (said, &mut Vec::new()));
        if matches!(submitted, Ok(Submitted::Full)) && matches!(lane.turn(self, true), Ok(1..)) {
            submitted = wish.submit(lane, tag, (said, &mut Vec::new()));
        }
        match submitted {
            Ok(Submitted::Call(name)) => {
                if let State::Out(call) = &mut self.slots[tag].state {
                    *call = name;
                }
            }
            Ok(Submitted::Full | Submitted::Unattached) => self.put_behind(lane, wish, tag),
            Err(error) => {
                drop(self.release(tag));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Queues a call that found no room.
    #[cold]
    fn put_behind(&mut self, lane: &mut (dyn Lane + 'static), wish: Wish<'_>, tag: usize) {
        let slot = &mut self.slots[tag];
        if let State::Out(_) = slot.state {
            slot.terms.begin();
            slot.state = State::Waiting(Box::new(wish.keep()));
            self.waiting.push_back(tag);
        }
        if self.send_waiting(lane) {
            let _ = lane.flush(self);
        }
    }

    /// Puts a call at the end of the queue.
    pub(in crate::client) fn wait(
        &mut self,
        wish: Wish<'_>,
        (after, holds): (Duration, Holds),
    ) -> Result<usize, CallError> {
        let (tag, slot) = self.reserve(after, holds)?;
        slot.terms.begin();
        slot.state = State::Waiting(Box::new(wish.keep()));
        self.waiting.push_back(tag);
        Ok(tag)
    }
}
