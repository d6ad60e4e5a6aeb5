//! Conversion of what a caller passes: pointers become references, bytes and text; and the boundary across which
//! nothing unwinds.
//!
//! Each function here is unsafe for one reason: it trusts its caller that a pointer is NULL or points to what its type
//! says, for as long as the called function runs. `dunlin.h` demands this of C programs.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_char, c_void, CStr};
use std::mem::{size_of, MaybeUninit};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;

use crate::error::{Code, Error};

/// Runs the body of a function called from C. A panic ends here, as an error; an error is written to `place`, which
/// gets NULL if there is none.
///
/// # Safety
/// `place` is NULL or valid for a write.
pub(crate) unsafe fn enter(
    place: *mut *mut Error,
    body: impl FnOnce() -> Result<Code, Error>,
) -> Code {
    let ended = catch_unwind(AssertUnwindSafe(body));
    let (code, error) = match ended.unwrap_or_else(|panic| Err(Error::defect(panic))) {
        Ok(code) => (code, None),
        Err(error) => (error.code, Some(error)),
    };
    // SAFETY: as this function's.
    unsafe { put_error(place, error) };
    code
}

/// Writes an error to its place, if there is a place for it.
///
/// # Safety
/// `place` is NULL or valid for a write.
pub(crate) unsafe fn put_error(place: *mut *mut Error, error: Option<Error>) {
    if let Some(place) = NonNull::new(place) {
        let error = error.map_or(std::ptr::null_mut(), |error| Box::into_raw(Box::new(error)));
        // SAFETY: it is not NULL, and so valid for a write, which is all that is done: what was there before may be
        // anything.
        unsafe { place.write(error) };
    }
}

/// An object of the caller's.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that lives, and is not changed, for `'a`.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: as this function's.
    unsafe { pointer.as_ref() }.ok_or_else(|| Error::null(name))
}

/// An object that only the caller uses during the call.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that lives, and that nobody else uses, for `'a`.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Error> {
    // SAFETY: as this function's.
    unsafe { pointer.as_mut() }.ok_or_else(|| Error::null(name))
}

/// Bytes of the caller's; NULL if there are none.
///
/// # Safety
/// `data` is NULL or points to `length` bytes that are there, and not changed, for `'a`.
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    length: usize,
    name: &str,
) -> Result<&'a [u8], Error> {
    if length == 0 {
        return Ok(&[]);
    }
    check_length(length, name)?;
    match NonNull::new(data.cast_mut().cast::<u8>()) {
        None => Err(Error::null(name)),
        // SAFETY: it is not NULL, the length is one that Rust takes, and the rest is this function's.
        Some(data) => Ok(unsafe { std::slice::from_raw_parts(data.as_ptr(), length) }),
    }
}

/// Memory of the caller's for `length` bytes, which may be uninitialized.
///
/// # Safety
/// `data` is NULL or points to room for `length` bytes that nobody else uses for `'a`.
pub(crate) unsafe fn room<'a>(
    data: *mut c_void,
    length: usize,
    name: &str,
) -> Result<&'a mut [MaybeUninit<u8>], Error> {
    if length == 0 {
        return Ok(&mut []);
    }
    check_length(length, name)?;
    match NonNull::new(data.cast::<MaybeUninit<u8>>()) {
        None => Err(Error::null(name)),
        // SAFETY: as in `bytes`; bytes that were not written are `MaybeUninit`.
        Some(data) => Ok(unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), length) }),
    }
}

/// Copies into a caller's memory, which has the same length.
pub(crate) fn fill(room: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert_eq!(room.len(), bytes.len(), "the room was made for these bytes");
    // SAFETY: both have this length, and what is borrowed mutably is nothing else's.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len());
    }
}

fn check_length(length: usize, name: &str) -> Result<(), Error> {
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(
            Code::InvalidArgument,
            format!("the length of `{name}` is {length} bytes, more than any object can have"),
        )),
    }
}

/// Text of the caller's.
///
/// # Safety
/// `pointer` is NULL or points to bytes that end with a NUL, and are not changed, for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Error> {
    // SAFETY: as this function's.
    unsafe { optional_text(pointer, name) }?.ok_or_else(|| Error::null(name))
}

/// Optional text; NULL if it is absent.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and the rest is this function's.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| {
        Error::new(
            Code::InvalidArgument,
            format!("`{name}` is not valid UTF-8"),
        )
    })
}

/// Text of the caller's, converted in any case: empty for NULL, and with U+FFFD for what is not UTF-8.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn lossy_text<'a>(pointer: *const c_char) -> Cow<'a, str> {
    if pointer.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: it is not NULL, and the rest is this function's.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
}

/// A callback; passing NULL is an error of the caller's.
pub(crate) fn callback<T>(given: Option<T>, name: &str) -> Result<T, Error> {
    given.ok_or_else(|| Error::null(name))
}

/// A place of the caller's for a result.
pub(crate) struct Place<T>(NonNull<T>);

impl<T> Place<T> {
    /// # Safety
    /// `pointer` is NULL or valid for writes while the value lives.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Error> {
        NonNull::new(pointer)
            .map(Self)
            .ok_or_else(|| Error::null(name))
    }

    /// Writes a value there.
    pub(crate) fn put(&self, value: T) {
        // SAFETY: valid for writes by the contract of `new`; what was there before may be anything and is not dropped.
        unsafe { self.0.write(value) };
    }
}

impl<T> Place<*mut T> {
    /// A place for an object; it holds NULL until there is one.
    ///
    /// # Safety
    /// As for [`Place::new`].
    pub(crate) unsafe fn for_object(pointer: *mut *mut T, name: &str) -> Result<Self, Error> {
        // SAFETY: as this function's.
        let place = unsafe { Self::new(pointer, name) }?;
        place.put(std::ptr::null_mut());
        Ok(place)
    }

    /// Passes ownership of an object to the caller, to be taken back by [`take_back`].
    pub(crate) fn give(&self, object: T) {
        self.put(Box::into_raw(Box::new(object)));
    }
}

/// Takes back an object that [`Place::give`] gave away.
///
/// # Safety
/// As for [`take_back`].
pub(crate) unsafe fn take<T>(pointer: *mut T, name: &str) -> Result<Box<T>, Error> {
    match NonNull::new(pointer) {
        None => Err(Error::null(name)),
        // SAFETY: it came from a box, and by this function's contract nobody has it any more.
        Some(pointer) => Ok(unsafe { Box::from_raw(pointer.as_ptr()) }),
    }
}

/// Takes back an object that [`Place::give`] gave away, and drops it; a panic in the drop ends here.
///
/// # Safety
/// `pointer` is NULL or was given away and not taken back yet, and nobody else uses the object.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if let Some(pointer) = NonNull::new(pointer) {
        // SAFETY: it came from a box, and by this function's contract nobody has it any more.
        let object = unsafe { Box::from_raw(pointer.as_ptr()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(object))).map_err(std::mem::forget);
    }
}

/// A public struct that begins with its own size, which is that in the caller's header.
///
/// # Safety
/// It is `repr(C)` without padding, its first field is a `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Versioned: Copy {}

/// Reads options of the caller's version: shorter ones are from an older header, and the rest is zero; longer ones are
/// from a newer header, and what this version does not know must be zero. NULL: all are zero.
///
/// # Safety
/// `pointer` is NULL or points to a struct of as many bytes as its first field says.
pub(crate) unsafe fn options<T: Versioned>(pointer: *const T, name: &str) -> Result<T, Error> {
    /// No header has a struct of this size: it was not initialized.
    const LONGEST: usize = 4096;
    let mut options = MaybeUninit::<T>::zeroed();
    if pointer.is_null() {
        // SAFETY: any bytes are a value of it, by its trait.
        return Ok(unsafe { options.assume_init() });
    }
    // SAFETY: the struct is there, and begins with a `usize` by its trait.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(size_of::<usize>()..=LONGEST).contains(&size) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("`{name}->struct_size` is {size}: set it to sizeof(*{name})"),
        ));
    }
    // SAFETY: the caller says that so many bytes are there.
    let given = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let (known, unknown) = given.split_at(size.min(size_of::<T>()));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("`{name}` sets a field that this version of libdunlin does not know: use a newer libdunlin"),
        ));
    }
    // SAFETY: as many bytes as the struct has, at most, and any bytes are a value of it.
    Ok(unsafe {
        std::ptr::copy_nonoverlapping(known.as_ptr(), options.as_mut_ptr().cast(), known.len());
        options.assume_init()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_boundary() {
        let mut error = std::ptr::null_mut();
        // SAFETY: a place of ours.
        let code = unsafe { enter(&mut error, || panic!("a defect, numbered {}", 7)) };
        assert_eq!(code, Code::Defect);
        // SAFETY: `enter` has put an error there.
        let words = unsafe { &(*error).message };
        assert!(words.to_string_lossy().ends_with("a defect, numbered 7"));
        // SAFETY: nobody else has it.
        unsafe { take_back(error) };
        // SAFETY: there is no place.
        let code = unsafe { enter(std::ptr::null_mut(), || panic!("another")) };
        assert_eq!(code, Code::Defect);
    }

    #[test]
    fn success_clears_the_place() {
        let mut error = NonNull::<Error>::dangling().as_ptr();
        // SAFETY: a place of ours, whose value is not looked at.
        let code = unsafe { enter(&mut error, || Ok(Code::Full)) };
        assert_eq!(code, Code::Full);
        assert!(error.is_null());
    }
}
