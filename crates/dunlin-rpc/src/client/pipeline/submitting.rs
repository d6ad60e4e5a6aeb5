//! Submitting calls to the batch of a pipeline, or of another lane that belongs to one caller.

use super::super::buffer_on;
use super::Pipeline;
use crate::call::lane::{Body, CallId, Lane};
use crate::call::reply::RequestBuffer;
use crate::call::timeout::Said;
use crate::error::CallError;
use crate::HandlerId;

/// Submits a call, in a copy with its deadline if needed; `None`: there is no room. Always inlined: a function call
/// costs a tenth of a small request.
#[inline(always)]
pub(in crate::client) fn submit_on(
    lane: &mut dyn Lane,
    (handler, payload): (HandlerId, &[u8]),
    tag: u64,
    (said, copy): (Option<Said>, &mut Vec<u8>),
) -> Result<Option<CallId>, CallError> {
    let (mut handler, mut body) = (handler, Body::Bytes(payload));
    if let Some(said) = said {
        (handler, body) = said.put_behind(handler, body, lane.longest(), copy);
    }
    let short = lane.submit_short(handler, body.bytes(), tag);
    if short.is_some() {
        return Ok(short);
    }
    submit_long(lane, handler, body, tag)
}

/// Submits one that may be long, or find no room.
#[cold]
fn submit_long(
    lane: &mut dyn Lane,
    handler: HandlerId,
    mut body: Body<'_>,
    tag: u64,
) -> Result<Option<CallId>, CallError> {
    lane.submit(handler, &mut body, tag)
}

impl Pipeline {
    /// Adds a call to the batch; it is sent with the next poll, or earlier when the batch is full. `false`: there is no
    /// room, poll first.
    ///
    /// # Errors
    /// When the call cannot be sent at all.
    #[inline]
    pub fn submit(
        &mut self,
        handler: HandlerId,
        payload: &[u8],
        tag: u64,
    ) -> Result<bool, CallError> {
        // Nearly all calls are of this kind: the code inlined for them is kept as short as possible.
        let is_plain = self.is_plain && self.lane.is_here() && self.recipe.keeps_lanes();
        if is_plain && self.lane.submit_short(handler, payload, tag).is_some() {
            return Ok(true);
        }
        self.submit_any(handler, payload, tag)
    }

    /// Submits one that may carry its deadline, be long, find its lane replaced, or have no room.
    #[inline(never)]
    fn submit_any(
        &mut self,
        handler: HandlerId,
        payload: &[u8],
        tag: u64,
    ) -> Result<bool, CallError> {
        self.lane.check()?;
        self.change_if_left();
        self.put(handler, payload, tag)
    }

    fn put(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Result<bool, CallError> {
        let said = self.told.says(self.deadline, None);
        let (lane, request) = (self.lane.as_mut(), (handler, payload));
        let submitted = submit_on(lane, request, tag, (said, &mut self.copy))?;
        Ok(submitted.is_some())
    }

    /// As [`Pipeline::submit`], on the present lane, even if its client's others are replaced: for calls that depend on
    /// that lane.
    pub(in crate::client) fn submit_here(
        &mut self,
        handler: HandlerId,
        payload: &[u8],
        tag: u64,
    ) -> Result<bool, CallError> {
        self.lane.check()?;
        self.put(handler, payload, tag)
    }

    /// As [`Pipeline::submit`], with a request of `length` bytes that `fill` writes: directly to the place from which
    /// it is sent, if the connection has such a place, which avoids a copy. The initial contents are unspecified.
    /// `fill` is called at most once, possibly even when there is no room.
    ///
    /// # Errors
    /// When the call cannot be sent at all.
    #[inline]
    pub fn submit_with(
        &mut self,
        handler: HandlerId,
        length: usize,
        tag: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<bool, CallError> {
        self.lane.check()?;
        self.change_if_left();
        let mut fill = Some(fill);
        if self.is_plain {
            let mut once = |target: &mut [u8]| {
                if let Some(fill) = fill.take() {
                    fill(target);
                }
            };
            let lane = self.lane.as_mut();
            if lane
                .submit_filled(handler, length, tag, &mut once)
                .is_some()
            {
                return Ok(true);
            }
        }
        let Some(fill) = fill else { return Ok(false) };
        self.filled.resize(length, 0);
        fill(&mut self.filled);
        self.submit_copy(handler, tag)
    }

    /// Submits a request that was filled outside the lane.
    #[inline(never)]
    fn submit_copy(&mut self, handler: HandlerId, tag: u64) -> Result<bool, CallError> {
        let said = self.told.says(self.deadline, None);
        let (lane, request) = (self.lane.as_mut(), (handler, &self.filled[..]));
        let submitted = submit_on(lane, request, tag, (said, &mut self.copy))?;
        Ok(submitted.is_some())
    }

    /// As [`Pipeline::submit`], with a request filled in place, which is returned when there is no room.
    ///
    /// # Errors
    /// When the call cannot be sent at all.
    pub fn submit_buffer(
        &mut self,
        handler: HandlerId,
        request: RequestBuffer,
        tag: u64,
    ) -> Result<Option<RequestBuffer>, CallError> {
        self.lane.check()?;
        let length = request.len();
        let (mut handler, mut body) = (handler, Body::Buffer(request.0));
        if let Some(said) = self.told.says(self.deadline, None) {
            let longest = self.lane.longest();
            (handler, body) = said.put_behind(handler, body, longest, &mut self.copy);
        }
        match self.lane.submit(handler, &mut body, tag) {
            Ok(Some(_)) => Ok(None),
            Ok(None) => match body {
                Body::Buffer(mut buffer) => {
                    // Restored, without a trailer.
                    buffer.resize(length);
                    Ok(Some(RequestBuffer(buffer)))
                }
                Body::Bytes(_) => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    /// Returns a request of `length` bytes to be filled in place.
    ///
    /// # Errors
    /// When `length` exceeds the server's limit.
    pub fn buffer(&mut self, length: usize) -> Result<RequestBuffer, CallError> {
        self.lane.check()?;
        buffer_on(self.lane.as_mut(), length, self.is_plain)
    }
}
