//! Requests for handlers in Python: a queue between the server's polling threads, which never take the GIL, and the
//! threads of Python or the event loop that run the handlers.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dunlin::process::Generation;
use dunlin::{HandlerError, OwnedRequest, OwnedResponder};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};
use rustix::event::{eventfd, EventfdFlags};

use crate::payload::with_bytes;
use crate::waiting;

/// Maximum number of requests that an event loop takes at once, so that its other work gets its turn.
const REQUESTS_AT_ONCE: usize = 256;

/// Requests that have not been taken yet. Their number is bounded by the server. A process that was forked since has
/// none: they belong to the parent, and so does the event's count.
pub(crate) struct Queue {
    made_in: Generation,
    state: Mutex<State>,
    changed: Condvar,
    /// Its count is not zero while there are requests.
    event: OwnedFd,
}

#[derive(Default)]
struct State {
    requests: VecDeque<(OwnedRequest, OwnedResponder)>,
    closed: bool,
    signalled: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, request: OwnedRequest, responder: OwnedResponder) {
        let mut state = self.lock();
        if state.closed {
            // The caller is told that nobody answers.
            return;
        }
        state.requests.push_back((request, responder));
        if !state.signalled {
            // A write to an event whose count is zero cannot fail.
            state.signalled = rustix::io::write(&self.event, &1u64.to_ne_bytes()).is_ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    fn take(&self, state: &mut State) -> Option<(OwnedRequest, OwnedResponder)> {
        let taken = state.requests.pop_front();
        if state.requests.is_empty() && state.signalled {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            state.signalled = false;
        }
        taken
    }

    /// Takes the first request, if there is one; `None` in a child process, where the lock may be held forever.
    fn try_take(&self) -> Option<(OwnedRequest, OwnedResponder)> {
        self.made_in
            .is_current()
            .then(|| self.take(&mut self.lock()))
            .flatten()
    }

    fn wait(&self) -> Option<(OwnedRequest, OwnedResponder)> {
        if !self.made_in.is_current() {
            return None;
        }
        let mut state = self.lock();
        loop {
            if let Some(taken) = self.take(&mut state) {
                return Some(taken);
            }
            if state.closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The queue of requests for some handlers of a server.
#[pyclass(frozen, module = "dunlin._dunlin")]
pub(crate) struct Inbox(pub(crate) Arc<Queue>);

#[pymethods]
impl Inbox {
    #[new]
    fn new() -> PyResult<Self> {
        let event =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
                PyOSError::new_err(format!("cannot create a descriptor for requests: {error}"))
            })?;
        Ok(Self(Arc::new(Queue {
            made_in: Generation::current(),
            state: Mutex::default(),
            changed: Condvar::new(),
            event,
        })))
    }

    fn fileno(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }

    /// Returns the next request; waits for one, and returns `None` when the inbox is closed. Not for the main thread.
    fn next(&self, py: Python<'_>) -> Option<Request> {
        let here = self.0.try_take();
        let taken = here.or_else(|| waiting::detached(py, || self.0.wait()));
        taken.map(Request::new)
    }

    /// Takes the requests that are waiting.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let given = PyList::empty(py);
        for _ in 0..REQUESTS_AT_ONCE {
            let Some(taken) = self.0.try_take() else {
                break;
            };
            given.append(Request::new(taken))?;
        }
        Ok(given)
    }

    /// Closes the inbox: no more requests are taken, and the callers of waiting ones are told.
    fn close(&self) {
        if !self.0.made_in.is_current() {
            return;
        }
        let mut state = self.0.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.requests);
        drop(state);
        drop(left);
        self.0.changed.notify_all();
    }
}

/// A request, as a handler receives it.
#[pyclass(frozen, module = "dunlin")]
pub(crate) struct Request {
    request: OwnedRequest,
    /// Created on first use.
    payload: PyOnceLock<Py<PyBytes>>,
    responder: Mutex<Option<OwnedResponder>>,
}

impl Request {
    fn new((request, responder): (OwnedRequest, OwnedResponder)) -> Self {
        Self {
            request,
            payload: PyOnceLock::new(),
            responder: Mutex::new(Some(responder)),
        }
    }

    fn responder(&self) -> PyResult<OwnedResponder> {
        let mut responder = self
            .responder
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        responder
            .take()
            .ok_or_else(|| PyRuntimeError::new_err("the request has already been answered"))
    }
}

#[pymethods]
impl Request {
    /// The bytes that the caller sent.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        let payload = self
            .payload
            .get_or_init(py, || PyBytes::new(py, self.request.payload()).unbind());
        payload.clone_ref(py)
    }

    fn __len__(&self) -> usize {
        self.request.payload().len()
    }

    /// The number of the handler.
    #[getter]
    fn handler(&self) -> u16 {
        self.request.handler()
    }

    /// The server's number of the connection on which the request arrived.
    #[getter]
    fn connection(&self) -> u64 {
        self.request.connection()
    }

    /// How much longer the caller waits, in seconds; None if it sent no deadline.
    #[getter]
    fn remaining(&self) -> Option<f64> {
        self.request.remaining().map(|left| left.as_secs_f64())
    }

    /// Whether nobody waits for the answer any more.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.request.is_cancelled()
    }

    /// Sends the answer.
    fn _reply(&self, answer: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        // If the answer is not bytes, the request can still be answered otherwise.
        with_bytes(answer, "a handler's answer", |bytes| {
            self.responder()
                .map(|responder| responder.answer(|reply| reply.write(bytes)))
        })?
    }

    /// Answers with an error.
    fn _fail(&self, code: u32, message: String) -> PyResult<()> {
        self.responder()?.fail(HandlerError::new(code, message));
        Ok(())
    }
}
