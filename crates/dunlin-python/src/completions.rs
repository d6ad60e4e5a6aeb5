//! Calls of an event loop: asyncio polls the descriptor with its others, and takes all answers that have arrived at
//! once.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::client::Client;
use crate::payload::with_bytes;
use crate::region::Region;
use crate::{errors, options};

/// Maximum number of answers taken at once, so that the loop's other work gets its turn.
const ANSWERS_AT_ONCE: usize = 256;

/// The outstanding calls of one event loop through one client.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub(crate) struct Completions {
    completions: Arc<dunlin::Completions>,
    client: dunlin::Client,
    deadline: Duration,
}

impl Completions {
    fn start(&self, py: Python<'_>, begin: impl FnOnce() -> dunlin::CallFuture) -> PyResult<u64> {
        self.completions
            .start(0, begin)
            .map_err(|error| errors::call(py, &error))
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new(client: &Client) -> PyResult<Self> {
        let completions = dunlin::Completions::new(client.max_outstanding).map_err(|error| {
            PyOSError::new_err(format!("cannot create a descriptor for answers: {error}"))
        })?;
        Ok(Self {
            completions,
            client: client.client.clone(),
            deadline: client.deadline,
        })
    }

    fn fileno(&self) -> RawFd {
        self.completions.as_raw_fd()
    }

    /// Starts a call and returns its number.
    fn call(
        &self,
        py: Python<'_>,
        handler: u16,
        payload: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let client = self
            .client
            .within(options::timeout(timeout, self.deadline)?);
        with_bytes(payload, "payload", |bytes| {
            self.start(py, || client.call_async(handler, bytes))
        })?
    }

    fn read(
        &self,
        py: Python<'_>,
        region: &Region,
        offset: u64,
        length: usize,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let region = region.within(timeout)?;
        self.start(py, || region.read_async(offset, length))
    }

    fn write(
        &self,
        py: Python<'_>,
        region: &Region,
        offset: u64,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let region = region.within(timeout)?;
        with_bytes(Some(data), "data", |bytes| {
            self.start(py, || region.write_async(offset, bytes))
        })?
    }

    /// Takes the calls that have ended, without waiting: numbers with `bytes`, or with an exception.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let taken = PyList::empty(py);
        for _ in 0..ANSWERS_AT_ONCE {
            let Some(ended) = self.completions.next() else {
                break;
            };
            match ended.result {
                Ok(reply) => taken.append((ended.number, PyBytes::new(py, &reply), py.None()))?,
                Err(error) => {
                    taken.append((ended.number, py.None(), errors::call(py, &error)))?;
                }
            }
        }
        Ok(taken)
    }

    /// Gives up a call.
    fn cancel(&self, number: u64) {
        self.completions.cancel(number);
    }

    /// Gives up all calls.
    fn give_up(&self) {
        self.completions.give_up();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.completions.give_up();
    }
}
