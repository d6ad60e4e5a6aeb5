//! What C asks an error.
#![allow(unsafe_code)]
// The contract of all functions stands once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_char;

use crate::error::{Code, Error, Executed};
use crate::given;

/// The error's number; DUNLIN_CODE_OK for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_code(error: *const Error) -> Code {
    // SAFETY: NULL or an error of the caller's.
    unsafe { error.as_ref() }.map_or(Code::Ok, |error| error.code)
}

/// The error in words, until it is freed; "no error" for NULL. Never NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_message(error: *const Error) -> *const c_char {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

/// Whether the server executed the call; no for NULL. A call that must not be executed twice can be made again
/// only after DUNLIN_EXECUTED_NO.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_executed(error: *const Error) -> Executed {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(Executed::No, |error| error.executed)
}

/// The number that the handler gave (DUNLIN_CODE_HANDLER); 0 for all other errors.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_handler_code(error: *const Error) -> u32 {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(0, |error| error.handler_code)
}

/// Whether the same call may well succeed when it is made again, and does no harm: it was not executed, and what
/// stood against it passes.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_is_retryable(error: *const Error) -> bool {
    // SAFETY: as above.
    unsafe { error.as_ref() }.is_some_and(|error| error.is_retryable)
}

/// Frees an error.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_free(error: *mut Error) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(error) }
}
