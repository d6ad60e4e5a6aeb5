//! Pipelines: one thread that keeps many calls outstanding.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};

use dunlin::CallError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::client::Client;
use crate::payload::with_bytes;
use crate::{errors, waiting};

/// A connection for one loop that keeps many calls outstanding.
#[pyclass(subclass, frozen, module = "dunlin._dunlin")]
pub(crate) struct Pipeline(Mutex<State>);

/// A tag with `bytes` or an exception.
type Answer = (u64, Py<PyAny>);

struct State {
    pipeline: dunlin::Pipeline,
    taken: Taken,
    /// Answers that arrived while the caller waited for another one, the oldest first.
    kept: VecDeque<Answer>,
    next_tag: u64,
    next_of_map: u64,
}

/// First tag of the calls made by maps; those chosen by users, or assigned to their calls, are below it.
const FIRST_OF_MAPS: u64 = 1 << 63;

/// Answers that have not been asked for yet, with their bytes stored consecutively.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    answers: Vec<(u64, Result<Range<usize>, CallError>)>,
    /// Calls whose answers will never be asked for.
    forgotten: HashSet<u64>,
}

impl Taken {
    fn put(&mut self, tag: u64, result: Result<&[u8], CallError>) {
        if self.forgotten.remove(&tag) {
            return;
        }
        let result = result.map(|answer| {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(answer);
            begin..self.bytes.len()
        });
        self.answers.push((tag, result));
    }

    /// Converts the answers to Python objects.
    fn give(&mut self, py: Python<'_>, mut to: impl FnMut(Answer) -> PyResult<()>) -> PyResult<()> {
        for (tag, result) in self.answers.drain(..) {
            let answer = match result {
                Ok(range) => PyBytes::new(py, &self.bytes[range]).into_any().unbind(),
                Err(error) => errors::call(py, &error).into_value(py).into_any(),
            };
            to((tag, answer))?;
        }
        self.bytes.clear();
        Ok(())
    }
}

impl Pipeline {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.0.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "the pipeline is in use by another thread: use one pipeline per thread",
            )),
        }
    }
}

impl State {
    /// Sends the batch and takes the answers that have arrived; waits until there is one, or no call is outstanding.
    fn wait(&mut self, py: Python<'_>) -> PyResult<()> {
        self.poll(py)?;
        while self.taken.answers.is_empty() {
            self.wait_for_more(py)?;
            if self.pipeline.outstanding() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Waits for another answer, even if there are some that have not been asked for.
    fn wait_for_more(&mut self, py: Python<'_>) -> PyResult<()> {
        let Self {
            pipeline, taken, ..
        } = self;
        let before = taken.answers.len();
        let mut answer = |tag, result: Result<&[u8], _>| taken.put(tag, result);
        let waited = match waiting::is_main_thread() {
            true => waiting::wait(py, pipeline.wait_async(&mut answer))?,
            false => waiting::detached(py, || pipeline.wait(&mut answer)),
        };
        self.ended(py, before, waited)
    }

    /// Adds a call to the batch; if there is no room, waits for answers and keeps them.
    fn submit(
        &mut self,
        py: Python<'_>,
        handler: u16,
        payload: Option<&Bound<'_, PyAny>>,
        tag: u64,
    ) -> PyResult<u64> {
        loop {
            let submitted = with_bytes(payload, "payload", |bytes| {
                self.pipeline.submit(handler, bytes, tag)
            })?;
            match submitted {
                Ok(true) => return Ok(tag),
                // There is no room: arriving answers are kept until they are asked for.
                Ok(false) => {
                    let before = self.taken.answers.len();
                    self.poll(py)?;
                    if self.taken.answers.len() == before {
                        self.wait_for_more(py)?;
                    }
                }
                Err(error) => return Err(errors::call(py, &error)),
            }
        }
    }

    /// Returns all answers that have arrived.
    fn give<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let given = PyList::new(py, self.kept.drain(..))?;
        self.taken.give(py, |answer| given.append(answer))?;
        Ok(given)
    }

    fn poll(&mut self, py: Python<'_>) -> PyResult<()> {
        let Self {
            pipeline, taken, ..
        } = self;
        let before = taken.answers.len();
        let polled = pipeline.poll(|tag, result| taken.put(tag, result));
        self.ended(py, before, polled)
    }

    /// When the connection is lost every outstanding call gets an error as its answer, and these answers are returned
    /// first. Answers that were there `before` are not among them.
    fn ended(
        &self,
        py: Python<'_>,
        before: usize,
        result: Result<usize, CallError>,
    ) -> PyResult<()> {
        match result {
            Err(error) if self.taken.answers.len() == before => Err(errors::call(py, &error)),
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl Pipeline {
    #[new]
    fn new(py: Python<'_>, client: &Client, window: usize) -> PyResult<Self> {
        let pipeline = waiting::detached(py, || client.client.pipeline_of(window))
            .map_err(|error| errors::connect(py, &error))?;
        Ok(Self(Mutex::new(State {
            pipeline,
            taken: Taken::default(),
            kept: VecDeque::new(),
            next_tag: 0,
            next_of_map: FIRST_OF_MAPS,
        })))
    }

    /// Adds a call to the batch, which is sent with the next wait or poll, or when it is full, and returns its tag. If
    /// there is no room, waits for answers and keeps them for `wait`. Tags are below 2**63; without one the call gets
    /// the last tag plus one.
    #[pyo3(signature = (handler, payload=None, tag=None))]
    fn submit(
        &self,
        py: Python<'_>,
        handler: u16,
        payload: Option<&Bound<'_, PyAny>>,
        tag: Option<u64>,
    ) -> PyResult<u64> {
        let mut state = self.lock()?;
        let tag = tag.unwrap_or(state.next_tag);
        if tag >= FIRST_OF_MAPS {
            return Err(PyValueError::new_err(format!(
                "tag {tag} is too large: tags must be below 2**63"
            )));
        }
        state.next_tag = (tag + 1) % FIRST_OF_MAPS;
        state.submit(py, handler, payload, tag)
    }

    /// Like `submit`, with a tag from the range of maps.
    #[pyo3(signature = (handler, payload))]
    fn _submit_of_map(
        &self,
        py: Python<'_>,
        handler: u16,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let mut state = self.lock()?;
        let tag = state.next_of_map;
        state.next_of_map = FIRST_OF_MAPS | tag.wrapping_add(1);
        state.submit(py, handler, payload, tag)
    }

    /// Discards the answers with these tags, including those that have not arrived yet.
    fn _forget(&self, tags: Vec<u64>) -> PyResult<()> {
        let mut state = self.lock()?;
        let State { taken, kept, .. } = &mut *state;
        let mut tags: HashSet<u64> = tags.into_iter().collect();
        kept.retain(|(tag, _)| !tags.remove(tag));
        taken.answers.retain(|(tag, _)| !tags.remove(tag));
        if state.pipeline.outstanding() > 0 {
            state.taken.forgotten.extend(tags);
        }
        Ok(())
    }

    /// Sends the batch, and waits until at least one answer has arrived or no call is outstanding. Returns pairs of a
    /// tag and the answer: bytes, or an exception.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut state = self.lock()?;
        if state.kept.is_empty() && state.taken.answers.is_empty() {
            state.wait(py)?;
        }
        state.give(py)
    }

    /// Waits for the answer of one call; others that arrive meanwhile are kept until they are asked for.
    fn _wait_for(&self, py: Python<'_>, tag: u64) -> PyResult<Py<PyAny>> {
        let mut state = self.lock()?;
        loop {
            if let Some(at) = state.kept.iter().position(|(of, _)| *of == tag) {
                if let Some((_, answer)) = state.kept.remove(at) {
                    return Ok(answer);
                }
            }
            if state.taken.answers.is_empty() {
                state.wait(py)?;
            }
            if state.taken.answers.is_empty() && state.pipeline.outstanding() == 0 {
                return Err(PyRuntimeError::new_err(format!(
                    "the answer with the tag {tag} was taken elsewhere, by wait() or poll() of the same pipeline"
                )));
            }
            let State { taken, kept, .. } = &mut *state;
            taken.give(py, |answer| {
                kept.push_back(answer);
                Ok(())
            })?;
        }
    }

    /// Sends the batch, and returns the answers that have arrived, without waiting.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut state = self.lock()?;
        let polled = state.poll(py);
        if state.kept.is_empty() && state.taken.answers.is_empty() {
            polled?;
        }
        state.give(py)
    }

    /// Number of calls that are outstanding or whose answers were not taken.
    #[getter]
    fn outstanding(&self) -> PyResult<usize> {
        let state = self.lock()?;
        Ok(state.pipeline.outstanding() + state.taken.answers.len() + state.kept.len())
    }
}
