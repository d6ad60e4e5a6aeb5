//! Functions that query an error.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_char;

use crate::error::{Code, Error, Executed};
use crate::given;

/// Returns the code of an error; DUNLIN_CODE_OK for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_code(error: *const Error) -> Code {
    // SAFETY: NULL or an error of the caller's.
    unsafe { error.as_ref() }.map_or(Code::Ok, |error| error.code)
}

/// Returns the message of an error, valid until that is freed; "no error" for NULL. Never NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_message(error: *const Error) -> *const c_char {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

/// Returns whether the server executed the call; DUNLIN_EXECUTED_NO for NULL. A call that must not be executed twice
/// can be repeated only after DUNLIN_EXECUTED_NO.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_executed(error: *const Error) -> Executed {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(Executed::No, |error| error.executed)
}

/// Returns the code that the handler chose (DUNLIN_CODE_HANDLER); 0 for all other errors.
#[no_mangle]
pub unsafe extern "C" fn dunlin_error_handler_code(error: *const Error) -> u32 {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(0, |error| error.handler_code)
}

/// Returns whether repeating the same call is safe and may succeed: it was not executed, and the cause of the failure
/// is temporary.
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
