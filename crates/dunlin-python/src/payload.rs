//! Bytes read from Python objects, and written to them.

use dunlin::{Client, RequestBuffer};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};

use crate::{errors, waiting};

/// Payloads of at least this size that are not `bytes` are copied once, directly into registered memory. For shorter
/// ones an intermediate copy costs less than the accounting of registered memory.
const LONG_BYTES: usize = 16 << 10;

/// The payload of a call that waits without the GIL.
pub(crate) enum Payload<'a> {
    /// The bytes of an immutable object.
    Lent(&'a [u8]),
    /// A short copy of a mutable object.
    Copied(Vec<u8>),
    /// A long copy, in the memory from which the server reads it.
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
        // This may have to make a connection.
        let mut room = waiting::detached(py, || client.buffer(length))
            .map_err(|error| errors::call(py, &error))?;
        room.copy_from_slice(lent(&buffer));
        Ok(Self::InPlace(room))
    }
}

/// Lends the bytes of an object to an operation that completes while the GIL is held: starting a call, filling a batch.
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

/// Returns an object's memory, whatever the type of its items.
fn contiguous(object: &Bound<'_, PyAny>, name: &str) -> PyResult<PyUntypedBuffer> {
    // Some objects, such as those of ctypes, provide strides only through a memoryview.
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

/// The bytes of a contiguous buffer. They may only be used by Rust code that does not release the GIL before it is done
/// with them.
#[allow(unsafe_code)]
fn lent(buffer: &PyUntypedBuffer) -> &[u8] {
    let length = buffer.len_bytes();
    if length == 0 || !buffer.is_c_contiguous() {
        return &[];
    }
    // SAFETY: a contiguous buffer has this many bytes from its pointer on, which is not null since there are any. Its
    // exporter keeps them in place while the buffer is held, which the borrow ensures. Every caller in this file holds
    // the GIL and passes the bytes to code that copies or sends them at once, without releasing it: no Python code that
    // could change them runs meanwhile. Code that writes to them from C without the GIL must not do so while they are
    // given to a function that reads them, here as with every extension (docs/python.md).
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), length) }
}

/// A buffer of the caller's that receives an answer.
pub(crate) struct Into<'py> {
    /// A view as bytes; `None` if the buffer is empty.
    view: Option<Bound<'py, PyAny>>,
    room: usize,
}

impl<'py> Into<'py> {
    /// Checks the buffer, so that errors are reported before anything is sent.
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

    /// Writes an answer to the beginning of the buffer, and returns its length.
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

/// Returns an answer as `bytes`, or writes it to the caller's buffer.
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
