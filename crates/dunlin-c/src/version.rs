//! The version of the library and of its binary interface.
#![allow(unsafe_code)]

use std::ffi::{c_char, CStr};

/// The version of the binary interface that this header describes. It changes if programs compiled with an earlier
/// header would not run with this library; additions do not change it.
pub const DUNLIN_ABI_VERSION: u32 = 0;

/// The version as text.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version without a NUL inside"),
    };

/// Returns the version of the library, such as "0.1.0".
#[no_mangle]
pub extern "C" fn dunlin_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the DUNLIN_ABI_VERSION that the library was built with: if it differs from the header's, the two are not
/// compatible.
#[no_mangle]
pub extern "C" fn dunlin_abi_version() -> u32 {
    DUNLIN_ABI_VERSION
}
