//! What a handler in C receives: the request, and an object to answer with.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use dunlin::{HandlerError, OwnedRequest, OwnedResponder};

use crate::error::{Code, Error};
use crate::given::{self, Place};

/// Answers one request. It is called on threads of the server, several at once: what `user` points to must be safe for
/// that. `request` and `responder` are valid until it returns. Returning without an answer sends an empty one.
pub type HandlerCallback = Option<
    unsafe extern "C" fn(request: *const Request, responder: *mut Responder, user: *mut c_void),
>;

/// Takes one request, which may be answered from any thread at any time by dunlin_deferred_reply or
/// dunlin_deferred_fail. It must return soon.
pub type DeferredCallback =
    Option<unsafe extern "C" fn(deferred: *mut Deferred, user: *mut c_void)>;

/// A request, as a handler receives it.
#[derive(Debug)]
pub struct Request(Asked);

#[derive(Debug)]
enum Asked {
    /// Of a running handler; it lives in the frame that calls the callback.
    Lent(*const dunlin::Request<'static>),
    /// Of a handler that answers later.
    Owned(OwnedRequest),
}

impl Request {
    /// For a callback that is called with it.
    ///
    /// # Safety
    /// The value must not be used after what it was made of has ended.
    pub(crate) unsafe fn lent(request: &dunlin::Request<'_>) -> Self {
        Self(Asked::Lent(std::ptr::from_ref(request).cast()))
    }

    fn payload(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: by the contract of `lent`, what it was made of still exists; the lifetime that was cast away is
            // restored as that of `self`. The same holds for all functions below.
            Asked::Lent(request) => unsafe { (**request).payload() },
            Asked::Owned(request) => request.payload(),
        }
    }

    fn handler(&self) -> u16 {
        match &self.0 {
            // SAFETY: as in `payload`.
            Asked::Lent(request) => unsafe { (**request).handler() },
            Asked::Owned(request) => request.handler(),
        }
    }

    fn connection(&self) -> u64 {
        match &self.0 {
            // SAFETY: as in `payload`.
            Asked::Lent(request) => unsafe { (**request).connection() },
            Asked::Owned(request) => request.connection(),
        }
    }

    fn remaining(&self) -> Option<Duration> {
        match &self.0 {
            // SAFETY: as in `payload`.
            Asked::Lent(request) => unsafe { (**request).remaining() },
            Asked::Owned(request) => request.remaining(),
        }
    }

    fn is_cancelled(&self) -> bool {
        match &self.0 {
            // SAFETY: as in `payload`.
            Asked::Lent(request) => unsafe { (**request).is_cancelled() },
            Asked::Owned(request) => request.is_cancelled(),
        }
    }
}

/// The destination of a handler's answer. Only one thread may use it at a time.
#[derive(Debug)]
pub struct Responder {
    /// Lives in the frame that calls the callback, like a [`Request`].
    responder: *mut dunlin::Responder<'static>,
    /// The error with which the handler fails.
    failed: Option<HandlerError>,
    /// The handler has tried to answer with more than is accepted; its caller then receives this error.
    refused: Option<HandlerError>,
}

impl Responder {
    /// For a callback that is called with it.
    ///
    /// # Safety
    /// The value must not be used after what it was made of has ended, and nobody else may use that meanwhile.
    pub(crate) unsafe fn lent(responder: &mut dunlin::Responder<'_>) -> Self {
        Self {
            responder: std::ptr::from_mut(responder).cast(),
            failed: None,
            refused: None,
        }
    }

    pub(crate) fn ended(self) -> Result<(), HandlerError> {
        self.refused.or(self.failed).map_or(Ok(()), Err)
    }

    /// The responder to write to, and the place for an error of a write that was too long.
    fn parts(&mut self) -> (&mut dunlin::Responder<'static>, &mut Option<HandlerError>) {
        // SAFETY: by the contract of `lent`, what it was made of still exists and is used by this value alone; and the
        // reference lives no longer than `self`.
        (unsafe { &mut *self.responder }, &mut self.refused)
    }
}

/// A request that is answered later. It belongs to the program, from the callback that receives it until
/// dunlin_deferred_reply or dunlin_deferred_fail consumes it. Only one thread may use it at a time.
#[derive(Debug)]
pub struct Deferred {
    request: Request,
    responder: OwnedResponder,
}

impl Deferred {
    pub(crate) fn new(request: OwnedRequest, responder: OwnedResponder) -> Self {
        Self {
            request: Request(Asked::Owned(request)),
            responder,
        }
    }
}

/// Returns the bytes of a request; NULL for NULL. They are private to the server: the caller can no longer change them.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_data(request: *const Request) -> *const c_void {
    // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
    unsafe { request.as_ref() }.map_or(std::ptr::null(), |request| {
        request.payload().as_ptr().cast()
    })
}

/// Returns the number of bytes of a request; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_length(request: *const Request) -> usize {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, |request| request.payload().len())
}

/// Returns the number of the handler that was called; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_handler(request: *const Request) -> u16 {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, Request::handler)
}

/// Returns the server's number of the connection on which a request arrived; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_connection(request: *const Request) -> u64 {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, Request::connection)
}

/// Returns how much longer the caller waits; UINT64_MAX if it sent no deadline, and for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_remaining_us(request: *const Request) -> u64 {
    // SAFETY: as above.
    let remaining = unsafe { request.as_ref() }.and_then(Request::remaining);
    remaining.map_or(u64::MAX, |left| {
        u64::try_from(left.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Returns whether nobody waits for the answer any more; true for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_is_cancelled(request: *const Request) -> bool {
    // SAFETY: as above.
    unsafe { request.as_ref() }.is_none_or(Request::is_cancelled)
}

/// Appends to the answer. DUNLIN_CODE_TOO_LONG: it would be longer than the caller accepts, or there is no memory for
/// it; the caller then receives that error, whatever follows.
#[no_mangle]
pub unsafe extern "C" fn dunlin_respond(
    responder: *mut Responder,
    data: *const c_void,
    length: usize,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let responder = unsafe { given::exclusive(responder, "responder") }?;
        // SAFETY: as above.
        let bytes = unsafe { given::bytes(data, length, "data") }?;
        let (responder, told) = responder.parts();
        responder
            .write(bytes)
            .map_err(|refused| too_long(refused, told))?;
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Answers with exactly `length` bytes that are filled in place: `data` gets their address, valid until the next call
/// with this responder or the callback's return. Fill them before that: dunlin_respond appends to the current contents,
/// and may move them. A long answer is not copied. It replaces the answer so far. The bytes are not cleared: fill all
/// of them. Otherwise like dunlin_respond.
#[no_mangle]
pub unsafe extern "C" fn dunlin_respond_in_place(
    responder: *mut Responder,
    length: usize,
    data: *mut *mut c_void,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let place = unsafe { Place::for_object(data, "data") }?;
        // SAFETY: as above.
        let responder = unsafe { given::exclusive(responder, "responder") }?;
        let (responder, told) = responder.parts();
        let room = responder
            .in_place(length)
            .map_err(|refused| too_long(refused, told))?;
        place.put(room.as_mut_ptr().cast());
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Answers with an error instead: the caller gets DUNLIN_CODE_HANDLER, this code and this message, of which at most
/// 1000 bytes are sent. The code and its meaning are up to the service. The error is also sent when this function fails
/// because of the message: bytes that are not UTF-8 are replaced by U+FFFD, and NULL is an empty message.
#[no_mangle]
pub unsafe extern "C" fn dunlin_respond_error(
    responder: *mut Responder,
    code: u32,
    message: *const c_char,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let responder = unsafe { given::exclusive(responder, "responder") }?;
        // SAFETY: as above.
        let (failed, words) = unsafe { failure(code, message) };
        responder.failed = Some(failed);
        words
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// A handler's error, which is sent to the caller whatever the message; and whether the message is text.
///
/// # Safety
/// As for [`given::text`].
unsafe fn failure(code: u32, message: *const c_char) -> (HandlerError, Result<Code, Error>) {
    // SAFETY: as this function's.
    let (words, text) = unsafe {
        (
            given::lossy_text(message),
            given::text(message, "message").map(|_| Code::Ok),
        )
    };
    (HandlerError::new(code, words), text)
}

/// Stores the error for the caller, and returns it for the handler.
fn too_long(refused: HandlerError, told: &mut Option<HandlerError>) -> Error {
    let words = refused.to_string();
    *told = Some(refused);
    Error::new(Code::TooLong, words)
}

/// Returns the request of a deferred call, valid as long as the call; NULL for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_deferred_request(deferred: *const Deferred) -> *const Request {
    // SAFETY: as above.
    unsafe { deferred.as_ref() }.map_or(std::ptr::null(), |deferred| &deferred.request)
}

/// Answers with `length` bytes at `data`, and frees `deferred`, even if this fails. If the answer is longer than the
/// caller accepts, the caller receives an error. An answer whose caller is gone is discarded silently.
#[no_mangle]
pub unsafe extern "C" fn dunlin_deferred_reply(
    deferred: *mut Deferred,
    data: *const c_void,
    length: usize,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above; the caller gives it up.
        let deferred = unsafe { given::take(deferred, "deferred") }?;
        // SAFETY: as above.
        let bytes = unsafe { given::bytes(data, length, "data") }?;
        deferred.responder.answer(|reply| reply.write(bytes));
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Like dunlin_deferred_reply, with an error; see dunlin_respond_error.
#[no_mangle]
pub unsafe extern "C" fn dunlin_deferred_fail(
    deferred: *mut Deferred,
    code: u32,
    message: *const c_char,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above; the caller gives it up.
        let deferred = unsafe { given::take(deferred, "deferred") }?;
        // SAFETY: as above.
        let (failed, words) = unsafe { failure(code, message) };
        deferred.responder.fail(failed);
        words
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}
