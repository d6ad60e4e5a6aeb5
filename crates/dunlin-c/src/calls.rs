//! Asynchronous calls: started with a tag, and answered through a descriptor that a program polls with its others.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dunlin::{CallError, Completions};

use crate::client::{Client, Reply};
use crate::error::{Code, Error};
use crate::given::{self, Place};

impl Client {
    fn completions(&self) -> Result<&Arc<Completions>, Error> {
        if self.completions.get().is_none() {
            let made = Completions::new(self.max_outstanding).map_err(|error| {
                let words = format!(
                    "cannot create a descriptor for the answers of asynchronous calls: {error}"
                );
                Error::new(Code::System, words)
            })?;
            // If another thread has set it meanwhile, that one is used.
            let _ = self.completions.set(made);
        }
        let completions = self.completions.get().ok_or_else(|| {
            Error::new(
                Code::System,
                "there is no descriptor for the answers of asynchronous calls",
            )
        })?;
        match completions.is_here() {
            true => Ok(completions),
            false => Err(CallError::Forked.into()),
        }
    }
}

/// Starts a call and returns at once. dunlin_client_next returns the answer with `tag`, which the caller chooses. The
/// bytes at `request` are copied before this function returns.
///
/// A call that could not be started fails here, and is not reported by dunlin_client_next:
/// DUNLIN_CODE_TOO_MANY_OUTSTANDING if the number of calls that are outstanding or whose answers were not taken has
/// reached the limit in the options.
#[no_mangle]
pub unsafe extern "C" fn dunlin_call_start(
    client: *const Client,
    handler: u16,
    request: *const c_void,
    length: usize,
    deadline_us: u64,
    tag: u64,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let client = unsafe { given::shared(client, "client") }?;
        // SAFETY: as above.
        let request = unsafe { given::bytes(request, length, "request") }?;
        let within = client.within(deadline_us);
        let begin = || within.call_async(handler, request);
        client.completions()?.start(tag, begin)?;
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Returns a descriptor for poll, select or epoll that is readable when there is something for dunlin_client_next. It
/// belongs to the client: do not read, write or close it. It may be readable although there is no answer yet.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_fd(
    client: *const Client,
    fd: *mut c_int,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let place = unsafe { Place::new(fd, "fd") }?;
        place.put(-1);
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        place.put(client.completions()?.as_raw_fd());
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Takes one answer of an asynchronous call, without waiting. DUNLIN_CODE_EMPTY: there is none now.
///
/// DUNLIN_CODE_OK: an answer was taken. `tag` is the tag of its call and `status` the result of the call: if it is
/// DUNLIN_CODE_OK, `reply` gets the answer; otherwise `reply` gets NULL and `error` the error, as from dunlin_call.
/// Every call that was started is answered once, at its deadline at the latest.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_next(
    client: *const Client,
    tag: *mut u64,
    status: *mut Code,
    reply: *mut *mut Reply,
    error: *mut *mut Error,
) -> Code {
    let mut failure = None;
    let body = || {
        // SAFETY: as above.
        let reply = unsafe { Place::for_object(reply, "reply") }?;
        // SAFETY: as above.
        let tag = unsafe { Place::new(tag, "tag") }?;
        // SAFETY: as above.
        let status = unsafe { Place::new(status, "status") }?;
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        let Some(ended) = client.completions()?.next() else {
            return Ok(Code::Empty);
        };
        tag.put(ended.tag);
        match ended.result {
            Ok(answer) => {
                reply.give(Reply(answer));
                status.put(Code::Ok);
            }
            Err(error) => {
                let error = Error::from(error);
                status.put(error.code);
                failure = Some(error);
            }
        }
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    let code = unsafe { given::enter(error, body) };
    if failure.is_some() {
        // SAFETY: as above; it holds NULL now.
        unsafe { given::put_error(error, failure) };
    }
    code
}

/// Number of asynchronous calls that are outstanding or whose answers were not taken; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_outstanding(client: *const Client) -> usize {
    // SAFETY: as above.
    let client = unsafe { client.as_ref() };
    let completions = client.and_then(|client| client.completions.get());
    completions.map_or(0, |completions| completions.outstanding())
}
