//! What a handler in C is given: the request, and something to answer with.
#![allow(unsafe_code)]
// The contract of all functions stands once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void};
use std::time::Duration;

use dunlin::{HandlerError, OwnedRequest, OwnedResponder};

use crate::error::{Code, Error};
use crate::given::{self, Place};

/// Answers one request. It runs on threads of the server, several at once: what `user` points to must be safe for that.
/// `request` and `responder` are its own until it returns. Returning without a word answers with no bytes.
pub type HandlerCallback = Option<
    unsafe extern "C" fn(request: *const Request, responder: *mut Responder, user: *mut c_void),
>;

/// Takes one request, to be answered from anywhere, at any time, by dunlin_deferred_reply or dunlin_deferred_fail. It
/// must return soon.
pub type DeferredCallback =
    Option<unsafe extern "C" fn(deferred: *mut Deferred, user: *mut c_void)>;

/// A request in a handler's hands.
#[derive(Debug)]
pub struct Request(Asked);

#[derive(Debug)]
enum Asked {
    /// Of a handler that runs; it lives in the frame that calls the callback.
    Lent(*const dunlin::Request<'static>),
    /// Of one that answers later.
    Owned(OwnedRequest),
}

impl Request {
    /// For a callback that is called with it.
    ///
    /// # Safety
    /// The value must not be used after what it was made of.
    pub(crate) unsafe fn lent(request: &dunlin::Request<'_>) -> Self {
        Self(Asked::Lent(std::ptr::from_ref(request).cast()))
    }

    fn payload(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: by the contract of `lent` what it was made of is there; the lifetime that was cast away comes
            // back as that of `self`. So in all functions below.
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

/// Where a handler puts its answer. One thread at a time.
#[derive(Debug)]
pub struct Responder {
    /// In the frame that calls the callback, as a [`Request`] is.
    responder: *mut dunlin::Responder<'static>,
    /// The handler fails.
    failed: Option<HandlerError>,
    /// It has tried to answer with more than goes, which is what its caller hears then.
    refused: Option<HandlerError>,
}

impl Responder {
    /// For a callback that is called with it.
    ///
    /// # Safety
    /// The value must not be used after what it was made of, and that by nobody else meanwhile.
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

    /// What is written into; and where it is said that it was too much.
    fn parts(&mut self) -> (&mut dunlin::Responder<'static>, &mut Option<HandlerError>) {
        // SAFETY: by the contract of `lent` what it was made of is there, and this value's alone; and the reference
        // lives no longer than `self`.
        (unsafe { &mut *self.responder }, &mut self.refused)
    }
}

/// A request that is answered later. It belongs to who got it, who gives it up by dunlin_deferred_reply or
/// dunlin_deferred_fail. One thread at a time.
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

/// The bytes of a request; NULL for NULL. They are private to the server: the caller cannot change them any more.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_data(request: *const Request) -> *const c_void {
    // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
    unsafe { request.as_ref() }.map_or(std::ptr::null(), |request| {
        request.payload().as_ptr().cast()
    })
}

/// How many bytes a request has; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_length(request: *const Request) -> usize {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, |request| request.payload().len())
}

/// The number of the handler that was called; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_handler(request: *const Request) -> u16 {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, Request::handler)
}

/// Which connection of the server a request came by; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_connection(request: *const Request) -> u64 {
    // SAFETY: as above.
    unsafe { request.as_ref() }.map_or(0, Request::connection)
}

/// How long the caller goes on waiting; UINT64_MAX when it did not say, and for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_remaining_us(request: *const Request) -> u64 {
    // SAFETY: as above.
    let remaining = unsafe { request.as_ref() }.and_then(Request::remaining);
    remaining.map_or(u64::MAX, |left| {
        u64::try_from(left.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Whether nobody waits for the answer any more; true for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_request_is_cancelled(request: *const Request) -> bool {
    // SAFETY: as above.
    unsafe { request.as_ref() }.is_none_or(Request::is_cancelled)
}

/// Appends to the answer. DUNLIN_CODE_TOO_LONG: it would be longer than the caller takes, or there is no memory for it;
/// the caller is told so then, whatever comes after.
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

/// An answer of exactly `length` bytes that is filled in place: `data` gets where, until the next call with this
/// responder or the callback's return. Fill them before that: dunlin_respond appends to what stands there then, and may
/// move it. No copy is made of a long one. It replaces what was answered before. The bytes are not cleared: fill all of
/// them. Otherwise as dunlin_respond.
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

/// Answers with an error instead: the caller gets DUNLIN_CODE_HANDLER, this number and these words, of which at most
/// 1000 bytes travel. The number and its meaning are the service's own. That is so also when this fails for the words:
/// what is not UTF-8 in them is replaced by U+FFFD, and NULL is none.
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

/// A handler's error, which goes to the caller whatever its words are; and whether they are text.
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

/// Remembers for the caller what the handler hears now.
fn too_long(refused: HandlerError, told: &mut Option<HandlerError>) -> Error {
    let words = refused.to_string();
    *told = Some(refused);
    Error::new(Code::TooLong, words)
}

/// The request of a call that is answered later, as long as that lives; NULL for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_deferred_request(deferred: *const Deferred) -> *const Request {
    // SAFETY: as above.
    unsafe { deferred.as_ref() }.map_or(std::ptr::null(), |deferred| &deferred.request)
}

/// Answers with `length` bytes at `data`, and frees `deferred`, which is gone also when this fails. More bytes than the
/// caller takes are an error there. An answer whose caller has gone is lost without a word.
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

/// As dunlin_deferred_reply, with an error; see dunlin_respond_error.
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
