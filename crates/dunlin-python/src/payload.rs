//! Bytes from Python's objects, and into them.

use dunlin::{Client, RequestBuffer};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};

use crate::{errors, waiting};

/// From so many bytes on a payload that is not `bytes` is copied into registered memory and nowhere else. Below that a
/// copy on the way costs less than registered memory's account.
const LONG_BYTES: usize = 16 << 10;

/// What a call sends that waits without Python's lock.
pub(crate) enum Payload<'a> {
    /// An immutable object's own bytes.
    Lent(&'a [u8]),
    /// A short copy of what may change.
    Copied(Vec<u8>),
    /// A long copy, where the server reads it from.
    InPlace(RequestBuffer),
}

impl<'a> Payload<'a> {
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
        let buffer = contiguous(object, "payload")?;
        let length = buffer.len_bytes();
        if length < LONG_BYTES {
            return Ok(Self::Copied(lent(&buffer).to_vec()));
        }
        // It may have to make a connection.
        let mut room = waiting::detached(py, || client.buffer(length))
            .map_err(|error| errors::call(py, &error))?;
        room.copy_from_slice(lent(&buffer));
        Ok(Self::InPlace(room))
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
    let buffer = contiguous(object, name)?;
    Ok(take(lent(&buffer)))
}

/// What an object has in memory, whatever its items are.
fn contiguous(object: &Bound<'_, PyAny>, name: &str) -> PyResult<PyUntypedBuffer> {
    // Some objects, those of ctypes among them, leave their strides to a memoryview.
    let buffer = PyUntypedBuffer::get(object)
        .or_else(|_| PyMemoryView::from(object).and_then(|view| PyUntypedBuffer::get(&view)))
        .map_err(|_| no_buffer(object, name))?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(not_contiguous(name)),
    }
}

#[cold]
fn no_buffer(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let kind = object.get_type();
    let kind = kind
        .name()
        .map_or_else(|_| "this".into(), |name| name.to_string());
    PyTypeError::new_err(format!(
        "{name} must be bytes-like (bytes, bytearray, memoryview, a numpy array), not {kind}"
    ))
}

#[cold]
fn not_contiguous(name: &str) -> PyErr {
    PyBufferError::new_err(format!(
        "{name} must be contiguous in memory, as numpy.ascontiguousarray or bytes() makes it"
    ))
}

/// The bytes of a contiguous buffer. They are for Rust code alone that does not give Python's lock up before they go.
#[allow(unsafe_code)]
fn lent(buffer: &PyUntypedBuffer) -> &[u8] {
    let length = buffer.len_bytes();
    if length == 0 || !buffer.is_c_contiguous() {
        return &[];
    }
    // SAFETY: a contiguous buffer has so many bytes from its pointer on, which is not null as there are any. Its
    // exporter keeps them in their place while the buffer is held, which the borrow sees to. Every caller in this file
    // holds Python's lock and hands the bytes to code that copies or sends them at once, without giving the lock up: no
    // code of Python's runs meanwhile that could change them. What writes to them from C without the lock must not,
    // while they are given to a function that reads them, here as with every extension (docs/python.md).
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), length) }
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
        let view = PyMemoryView::from(object).map_err(|_| no_buffer(object, "into"))?;
        if view.getattr("readonly")?.is_truthy()? {
            return Err(PyTypeError::new_err(
                "into must be writable, such as a bytearray: this object is read-only",
            ));
        }
        if !view.getattr("c_contiguous")?.is_truthy()? {
            return Err(not_contiguous("into"));
        }
        let room = view.getattr("nbytes")?.extract()?;
        let view = match room {
            0 => None,
            _ => Some(view.call_method1("cast", ("B",))?),
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
                false => {
                    let begin = PySlice::new(py, 0, answer.len() as isize, 1);
                    PyBuffer::get(&view.get_item(begin)?)?
                }
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
