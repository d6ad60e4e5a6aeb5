//! Callbacks for answers.

use std::ffi::c_void;

use dunlin::CallError;

use crate::error::{Code, Error};

/// Receives an answer. `code` is DUNLIN_CODE_OK, with the answer's `length` bytes at `data`, or the code of the error
/// at `error`. Both are valid until the callback returns. `user` is the pointer that was given with the callback.
pub type AnswerCallback = Option<
    unsafe extern "C" fn(
        tag: u64,
        code: Code,
        data: *const c_void,
        length: usize,
        error: *const Error,
        user: *mut c_void,
    ),
>;

/// Passes one answer to a callback.
pub(crate) fn told(
    result: Result<&[u8], CallError>,
    tell: impl FnOnce(Code, *const c_void, usize, *const Error),
) {
    match result {
        Ok(bytes) => tell(
            Code::Ok,
            bytes.as_ptr().cast(),
            bytes.len(),
            std::ptr::null(),
        ),
        Err(error) => {
            let error = Error::from(error);
            tell(error.code, std::ptr::null(), 0, &error);
        }
    }
}
