//! How answers come by callback.

use std::ffi::c_void;

use dunlin::CallError;

use crate::error::{Code, Error};

/// Takes an answer. `code` is DUNLIN_CODE_OK, with `length` bytes at `data` as the answer, or what went wrong, with the
/// error. Both are there until the callback returns. `user` is what was given with the callback.
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

/// What a callback is given for one answer.
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
