//! Clients, blocking calls, and answers.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void, CString};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dunlin::Completions;

use crate::error::{text, Code, Error};
use crate::given::{self, Place};
use crate::options::{self, ClientOptions};

/// A connection to a server. Any thread may call through it, several at once: threads do not wait for each other.
#[derive(Debug)]
pub struct Client {
    pub(crate) client: dunlin::Client,
    pub(crate) deadline: Duration,
    /// Asynchronous calls; set by the first of them.
    pub(crate) completions: OnceLock<Arc<Completions>>,
    pub(crate) max_outstanding: usize,
    device: CString,
}

impl Client {
    /// Returns the client with another deadline, unless that is 0.
    pub(crate) fn within(&self, deadline_us: u64) -> dunlin::Client {
        self.client
            .within(options::deadline(deadline_us, self.deadline))
    }
}

/// An answer: bytes that do not change until it is freed.
#[derive(Debug)]
pub struct Reply(pub(crate) dunlin::Reply);

/// Connects to the server at an address such as "dunlin://127.0.0.1:7400". `options` may be NULL.
///
/// A connection that is lost later is re-established by the next call, within that call's deadline.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_connect(
    address: *const c_char,
    options: *const ClientOptions,
    client: *mut *mut Client,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let place = unsafe { Place::for_object(client, "client") }?;
        dunlin_log::start_once();
        // SAFETY: as above.
        let address = unsafe { given::text(address, "address") }?;
        // SAFETY: as above.
        let (builder, deadline, max_outstanding) = unsafe { options::client(options) }?;
        let client = builder.connect(address)?;
        place.give(Client {
            device: text(client.info().device),
            client,
            deadline,
            completions: OnceLock::new(),
            max_outstanding,
        });
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Frees a client. Its outstanding asynchronous calls are given up: their answers are discarded when they arrive, and
/// the server may have executed them. Regions and pipelines that were created from it stay usable, and keep its
/// connections.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_free(client: *mut Client) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(client) }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(completions) = self.completions.get() {
            completions.give_up();
        }
    }
}

/// Returns the device that the connection uses, such as "shm", valid as long as the client; NULL for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_device(client: *const Client) -> *const c_char {
    // SAFETY: as above.
    unsafe { client.as_ref() }.map_or(std::ptr::null(), |client| client.device.as_ptr())
}

/// Calls a handler with `length` bytes at `request` and waits for the answer, at most for `deadline_us`. This limit
/// includes the time for reconnecting if the connection was lost.
///
/// A request and an answer may have up to 16 MiB each unless options say otherwise. dunlin_error_executed tells whether
/// the server executed a call that failed.
#[no_mangle]
pub unsafe extern "C" fn dunlin_call(
    client: *const Client,
    handler: u16,
    request: *const c_void,
    length: usize,
    deadline_us: u64,
    reply: *mut *mut Reply,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let place = unsafe { Place::for_object(reply, "reply") }?;
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        // SAFETY: as above.
        let request = unsafe { given::bytes(request, length, "request") }?;
        let deadline = options::deadline(deadline_us, client.deadline);
        let answer = client.client.call_within(deadline, handler, request)?;
        place.give(Reply(answer));
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Returns the longest request that the server accepts, in bytes.
#[no_mangle]
pub unsafe extern "C" fn dunlin_client_max_message_bytes(
    client: *const Client,
    bytes: *mut usize,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let place = unsafe { Place::new(bytes, "bytes") }?;
        // SAFETY: as above.
        let client = unsafe { given::shared(client, "client") }?;
        place.put(client.client.max_message_bytes()?);
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Returns the bytes of an answer, valid as long as the answer; NULL for NULL. An answer may be empty: see
/// dunlin_reply_length.
#[no_mangle]
pub unsafe extern "C" fn dunlin_reply_data(reply: *const Reply) -> *const c_void {
    // SAFETY: as above.
    unsafe { reply.as_ref() }.map_or(std::ptr::null(), |reply| reply.0.as_ptr().cast())
}

/// Returns the number of bytes of an answer; 0 for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_reply_length(reply: *const Reply) -> usize {
    // SAFETY: as above.
    unsafe { reply.as_ref() }.map_or(0, |reply| reply.0.len())
}

/// Frees an answer.
#[no_mangle]
pub unsafe extern "C" fn dunlin_reply_free(reply: *mut Reply) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(reply) }
}
