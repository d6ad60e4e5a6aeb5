//! Pipelines: a loop that keeps many calls outstanding.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::answers::{told, AnswerCallback};
use crate::client::Client;
use crate::error::{Code, Error};
use crate::given::{self, Place};

/// A connection for one loop that keeps many calls outstanding: the fastest way to call. Threads may use it one after
/// the other, but not at the same time, and its callback must not use it: in both cases functions return
/// DUNLIN_CODE_BUSY.
///
/// It does not reconnect: when its connection is lost, every outstanding call ends with an error, and the pipeline
/// cannot be used any more.
#[derive(Debug)]
pub struct Pipeline(Arc<Mutex<dunlin::Pipeline>>);

impl Pipeline {
    fn lock(&self) -> Result<MutexGuard<'_, dunlin::Pipeline>, Error> {
        match self.0.try_lock() {
            Ok(pipeline) => Ok(pipeline),
            Err(TryLockError::Poisoned(_)) => Err(Error::new(
                Code::Defect,
                "the pipeline cannot be used any more: Dunlin panicked in it earlier",
            )),
            Err(TryLockError::WouldBlock) => Err(Error::new(
                Code::Busy,
                "the pipeline is in use by another thread, or by the callback that makes this call",
            )),
        }
    }
}

/// Creates a pipeline that keeps about `window` calls outstanding; 0: as many as options say. More may be submitted, as
/// long as there is room. Deadlines are the client's.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_new(
    client: *const Client,
    window: usize,
    pipeline: *mut *mut Pipeline,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let place = unsafe { Place::for_object(pipeline, "pipeline") }?;
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        let made = match window {
            0 => client.client.pipeline(),
            window => client.client.pipeline_of(window),
        }?;
        place.give(Pipeline(Arc::new(Mutex::new(made))));
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Frees a pipeline. Outstanding calls are given up silently; the server may have executed them. Its callback may free
/// it, too.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_free(pipeline: *mut Pipeline) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(pipeline) }
}

/// Adds a call to the batch, which is sent by the next poll or wait, or when it is full. DUNLIN_CODE_FULL: there is no
/// room, take answers first. The bytes at `request` are copied before this function returns, and `tag` is returned with
/// the answer.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_submit(
    pipeline: *const Pipeline,
    handler: u16,
    request: *const c_void,
    length: usize,
    tag: u64,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let pipeline = unsafe { given::shared(pipeline, "pipeline") }?;
        // SAFETY: as above.
        let request = unsafe { given::bytes(request, length, "request") }?;
        match pipeline.lock()?.submit(handler, request, tag)? {
            true => Ok(Code::Ok),
            false => Ok(Code::Full),
        }
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Sends the batch, and passes the answers that have arrived to `callback` without waiting. `answered`, which may be
/// NULL, gets their number.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_poll(
    pipeline: *const Pipeline,
    callback: AnswerCallback,
    user: *mut c_void,
    answered: *mut usize,
    error: *mut *mut Error,
) -> Code {
    // SAFETY: as above.
    unsafe { take_answers(pipeline, (callback, user), answered, error, false) }
}

/// Sends the batch, and waits until at least one answer has arrived or no call is outstanding; otherwise like
/// dunlin_pipeline_poll. DUNLIN_CODE_DEADLINE_EXCEEDED: none arrived within the client's deadline. The calls are then
/// still outstanding.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_wait(
    pipeline: *const Pipeline,
    callback: AnswerCallback,
    user: *mut c_void,
    answered: *mut usize,
    error: *mut *mut Error,
) -> Code {
    // SAFETY: as above.
    unsafe { take_answers(pipeline, (callback, user), answered, error, true) }
}

/// # Safety
/// As dunlin.h asks.
unsafe fn take_answers(
    pipeline: *const Pipeline,
    (callback, user): (AnswerCallback, *mut c_void),
    answered: *mut usize,
    error: *mut *mut Error,
    waits: bool,
) -> Code {
    let body = || {
        let mut count = 0;
        // SAFETY: as above. The handle is not looked at again: its callback may free it.
        let pipeline = Pipeline(Arc::clone(
            &unsafe { given::shared(pipeline, "pipeline") }?.0,
        ));
        let callback = given::callback(callback, "callback")?;
        let answer = |tag, result: Result<&[u8], _>| {
            count += 1;
            told(result, |code, data, length, error| {
                // SAFETY: the caller's function, which dunlin.h asks to return; what it is given lives until then.
                unsafe { callback(tag, code, data, length, error, user) }
            });
        };
        let mut locked = pipeline.lock()?;
        let ended = match waits {
            true => locked.wait(answer),
            false => locked.poll(answer),
        };
        drop(locked);
        // SAFETY: NULL, which is no error here, or valid for a write.
        if let Ok(place) = unsafe { Place::new(answered, "answered") } {
            place.put(count);
        }
        ended?;
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Number of outstanding calls; 0 for NULL, and for a pipeline that is in use.
#[no_mangle]
pub unsafe extern "C" fn dunlin_pipeline_outstanding(pipeline: *const Pipeline) -> usize {
    // SAFETY: as above.
    let pipeline = unsafe { pipeline.as_ref() };
    pipeline.map_or(0, |pipeline| {
        pipeline.lock().map_or(0, |pipeline| pipeline.outstanding())
    })
}
