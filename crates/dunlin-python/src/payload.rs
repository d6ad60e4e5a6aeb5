//! Bytes from Python's objects, and into them.

use std::ptr::NonNull;

use dunlin::{Client, RequestBuffer};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::errors;
use crate::waiting;

/// From so many bytes on a payload that is not `bytes` is copied into registered memory and nowhere else. Below that a
/// copy on the way costs less than registered memory's account.
const LONG_BYTES: usize = 16 << 10;

/// What a call sends.
pub(crate) enum Payload<'a> {
    /// An immutable object's own bytes.
    Lent(&'a [u8]),
    /// A short copy of what may change.
    Copied(Vec<u8>),
    /// A long copy, where the server reads it from.
    InPlace(RequestBuffer),
}

impl<'a> Payload<'a> {
    /// For a call that waits without Python's lock.
    pub(crate) fn of(
        py: Python<'_>,
        object: Option<&'a Bound<'_, PyAny>>,
        client: &Client,
    ) -> PyResult<Self> {
        let Some(object) = object else {
            return Ok(Self::Lent(&[]));
        };
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Lent(bytes.as_bytes()));
        }
        match buffer(object, "payload")? {
            None => Ok(Self::Lent(&[])),
            Some(buffer) if buffer.len_bytes() < LONG_BYTES => Ok(Self::Copied(buffer.to_vec(py)?)),
            Some(buffer) => {
                let length = buffer.len_bytes();
                // It may have to make a connection.
                let mut room = waiting::detached(py, || client.buffer(length))
                    .map_err(|error| errors::call(py, &error))?;
                buffer.copy_to_slice(py, &mut room)?;
                Ok(Self::InPlace(room))
            }
        }
    }
}

/// Lends the bytes of an object to what is done at once, with Python's lock held: a call is begun, a batch filled.
/// Nothing is copied on the way.
pub(crate) fn with_bytes<T>(
    object: Option<&Bound<'_, PyAny>>,
    name: &str,
    take: impl FnOnce(&[u8]) -> T,
) -> PyResult<T> {
    let Some(object) = object else {
        return Ok(take(&[]));
    };
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(take(bytes.as_bytes()));
    }
    let Some(buffer) = buffer(object, name)? else {
        return Ok(take(&[]));
    };
    match buffer.as_slice_ptr() {
        Some(bytes) => Ok(take(lent(&buffer, bytes))),
        // With gaps between its bytes.
        None => Ok(take(&buffer.to_vec(object.py())?)),
    }
}

/// What `buffer` looks at, as bytes.
#[allow(unsafe_code)]
fn lent(buffer: &PyBuffer<u8>, bytes: NonNull<[u8]>) -> &[u8] {
    debug_assert_eq!(buffer.buf_ptr().cast(), bytes.as_ptr().cast::<u8>());
    // SAFETY: the buffer's own pointer and length, whose memory its exporter keeps in its place while the buffer is
    // held, which the borrow sees to. `with_bytes` holds Python's lock and hands the bytes to Rust code alone, which
    // does not give it up: no code of Python's runs meanwhile that could change them. What changes them without the
    // lock, from C, is told by docs/python.md not to, as by every other extension that reads a buffer.
    unsafe { bytes.as_ref() }
}

/// The bytes of anything with a buffer, whatever its items; `None`: it has none.
pub(crate) fn buffer(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<PyBuffer<u8>>> {
    if let Ok(buffer) = PyBuffer::get(object) {
        return Ok(Some(buffer));
    }
    let view = view(object, name)?;
    if view.getattr("nbytes")?.extract::<usize>()? == 0 {
        return Ok(None);
    }
    let cast = view.call_method1("cast", ("B",)).map_err(|error| {
        PyBufferError::new_err(format!(
            "{name} must be contiguous, such as numpy.ascontiguousarray makes it: {error}"
        ))
    })?;
    PyBuffer::get(&cast).map(Some)
}

fn view<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(object).map_err(|_| {
        let kind = object.get_type();
        let kind = kind.name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "{name} must be bytes-like (bytes, bytearray, memoryview, a numpy array), not {kind}"
        ))
    })
}

/// A buffer of the caller's to put an answer into.
pub(crate) struct Into<'py> {
    /// Of bytes; `None`: it has no room at all.
    view: Option<Bound<'py, PyAny>>,
    room: usize,
}

impl<'py> Into<'py> {
    /// Refused before anything is sent.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let view = view(object, "into")?;
        if view.getattr("readonly")?.is_truthy()? {
            return Err(PyTypeError::new_err(
                "into must be writable, such as a bytearray: this object is read-only",
            ));
        }
        let room = view.getattr("nbytes")?.extract()?;
        let view = match room {
            0 => None,
            _ => Some(view.call_method1("cast", ("B",)).map_err(|error| {
                PyBufferError::new_err(format!("into must be contiguous: {error}"))
            })?),
        };
        Ok(Self { view, room })
    }

    /// Puts an answer to its beginning, and says how many bytes it has.
    pub(crate) fn put(&self, py: Python<'py>, answer: &[u8]) -> PyResult<usize> {
        if answer.len() > self.room {
            return Err(errors::does_not_fit(py, answer.len(), self.room));
        }
        if let Some(view) = self.view.as_ref().filter(|_| !answer.is_empty()) {
            let buffer = match answer.len() == self.room {
                true => PyBuffer::<u8>::get(view)?,
                false => PyBuffer::get(&view.get_item(pyo3::types::PySlice::new(
                    py,
                    0,
                    answer.len() as isize,
                    1,
                ))?)?,
            };
            buffer.copy_from_slice(py, answer)?;
        }
        Ok(answer.len())
    }
}

/// An answer, as `bytes` or in the caller's buffer.
pub(crate) fn give<'py>(
    py: Python<'py>,
    answer: &[u8],
    into: Option<Into<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    match into {
        None => Ok(PyBytes::new(py, answer).into_any()),
        Some(into) => Ok(into.put(py, answer)?.into_pyobject(py)?.into_any()),
    }
}
