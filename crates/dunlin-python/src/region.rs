//! Regions: memory of a server that clients read and write without involving its processor.

use std::time::Duration;

use dunlin::{CallFuture, RemoteRegion};
use pyo3::prelude::*;

use crate::client::Client;
use crate::payload::{give, with_bytes, Into};
use crate::{errors, options, waiting};

/// A region of a server's memory, attached by a client.
#[pyclass(subclass, frozen, module = "dunlin._dunlin")]
pub(crate) struct Region {
    region: RemoteRegion,
    deadline: Duration,
}

impl Region {
    pub(crate) fn within(&self, timeout: Option<f64>) -> PyResult<RemoteRegion> {
        Ok(self
            .region
            .within(options::timeout(timeout, self.deadline)?))
    }
}

fn ended(py: Python<'_>, operation: CallFuture) -> PyResult<dunlin::Reply> {
    waiting::wait(py, operation)?.map_err(|error| errors::call(py, &error))
}

/// The previous value of the 8 bytes of an atomic, in the machine's byte order.
fn word(reply: &[u8]) -> u64 {
    reply.try_into().map_or(0, u64::from_ne_bytes)
}

#[pymethods]
impl Region {
    #[new]
    fn new(py: Python<'_>, client: &Client, name: &str) -> PyResult<Self> {
        let region = waiting::wait(py, client.client.attach_async(name))?
            .map_err(|error| errors::call(py, &error))?;
        Ok(Self {
            region,
            deadline: client.deadline,
        })
    }

    /// The name under which the server grants it.
    #[getter]
    fn name(&self) -> &str {
        self.region.name()
    }

    fn __len__(&self) -> usize {
        self.region.len() as usize
    }

    /// Reads `length` bytes: returns them, or their number if they were written to the writable buffer `into`.
    #[pyo3(signature = (offset, length, *, timeout=None, into=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
        timeout: Option<f64>,
        into: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let into = into.map(Into::new).transpose()?;
        let region = self.within(timeout)?;
        let read = match waiting::is_main_thread() {
            true => ended(py, region.read_async(offset, length))?,
            false => waiting::detached(py, || region.read(offset, length))
                .map_err(|error| errors::call(py, &error))?,
        };
        give(py, &read, into)
    }

    /// Writes bytes. When it returns they are in the region; if the connection was lost they may or may not be.
    #[pyo3(signature = (offset, data, *, timeout=None))]
    fn write(
        &self,
        py: Python<'_>,
        offset: u64,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let region = self.within(timeout)?;
        let written = with_bytes(Some(data), "data", |bytes| {
            region.write_async(offset, bytes)
        })?;
        ended(py, written).map(drop)
    }

    /// Adds to the 8 bytes at an offset, a number in the byte order of the server's machine, and returns the previous
    /// value.
    #[pyo3(signature = (offset, add, *, timeout=None))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        offset: u64,
        add: u64,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let region = self.within(timeout)?;
        ended(py, region.fetch_add_async(offset, add)).map(|before| word(&before))
    }

    /// Replaces the 8 bytes at an offset by `swap` if they are equal to `compare`, and returns the previous value.
    #[pyo3(signature = (offset, compare, swap, *, timeout=None))]
    fn compare_swap(
        &self,
        py: Python<'_>,
        offset: u64,
        compare: u64,
        swap: u64,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let region = self.within(timeout)?;
        ended(py, region.compare_and_swap_async(offset, compare, swap)).map(|before| word(&before))
    }
}
