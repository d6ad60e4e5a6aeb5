//! A connection to a server, and blocking calls.

use std::time::Duration;

use pyo3::prelude::*;

use crate::payload::{give, with_bytes, Into, Payload};
use crate::{errors, options, waiting};

/// A connection to a server; any thread may call through it.
#[pyclass(subclass, frozen, module = "dunlin._dunlin")]
pub(crate) struct Client {
    pub(crate) client: dunlin::Client,
    pub(crate) deadline: Duration,
    pub(crate) max_outstanding: usize,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address, *, preset=None, device=None, secret=None, deadline=10.0, connect_timeout=5.0,
        max_message_bytes=None, max_outstanding=None, spin=None))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        preset: Option<&str>,
        device: Option<&str>,
        secret: Option<Vec<u8>>,
        deadline: f64,
        connect_timeout: f64,
        max_message_bytes: Option<usize>,
        max_outstanding: Option<usize>,
        spin: Option<f64>,
    ) -> PyResult<Self> {
        let channel = options::channel(max_message_bytes, max_outstanding, spin)?;
        let max_outstanding = channel.max_outstanding;
        let deadline = options::seconds("deadline", deadline)?;
        let mut builder = dunlin::Client::builder()
            .channel(channel)
            .deadline(deadline)
            .connect_timeout(options::seconds("connect_timeout", connect_timeout)?);
        if let Some(name) = preset {
            builder = builder.preset(options::preset(name)?);
        }
        if let Some(device) = device {
            builder = builder.device(device);
        }
        if let Some(secret) = secret {
            builder = builder.secret(options::secret(secret)?);
        }
        let client = waiting::wait(py, builder.connect_async(address))?
            .map_err(|error| errors::connect(py, &error))?;
        Ok(Self {
            client,
            deadline,
            max_outstanding,
        })
    }

    /// Calls a handler and waits for its answer, at most for `timeout` seconds (by default the client's deadline).
    /// Returns the answer as bytes, or its length if it was written to the writable buffer `into`.
    #[pyo3(signature = (handler, payload=None, *, timeout=None, into=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        handler: u16,
        payload: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
        into: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let into = into.map(Into::new).transpose()?;
        let deadline = options::timeout(timeout, self.deadline)?;
        let client = self.client.within(deadline);
        let answer = if waiting::is_main_thread() {
            let call = with_bytes(payload, "payload", |bytes| {
                client.call_async(handler, bytes)
            })?;
            waiting::wait(py, call)?
        } else {
            let payload = Payload::of(py, payload, &client)?;
            waiting::detached(py, || match payload {
                Payload::Lent(bytes) => client.call(handler, bytes),
                Payload::Copied(bytes) => client.call(handler, &bytes),
                Payload::InPlace(request) => client.call_buffer(handler, request),
            })
        };
        let answer = answer.map_err(|error| errors::call(py, &error))?;
        give(py, &answer, into)
    }

    /// The longest request that the server accepts, in bytes.
    fn max_message_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        waiting::detached(py, || self.client.max_message_bytes())
            .map_err(|error| errors::call(py, &error))
    }

    fn close(&self, py: Python<'_>) {
        waiting::detached(py, || self.client.close());
    }

    /// The device that the connection uses, such as "shm".
    #[getter]
    fn device(&self) -> String {
        self.client.info().device
    }

    /// The preset that the connection uses.
    #[getter]
    fn preset(&self) -> String {
        self.client.info().preset.to_string()
    }

    /// Why the connection uses this device.
    #[getter]
    fn why(&self) -> String {
        self.client.info().why
    }

    /// Maximum duration of a call without a timeout of its own, in seconds.
    #[getter]
    fn deadline(&self) -> f64 {
        self.deadline.as_secs_f64()
    }
}
