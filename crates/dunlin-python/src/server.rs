//! Servers: an address, inboxes for handlers by number, and memory that clients may use.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dunlin::process::Generation;
use dunlin::{RunningServer, ServerBuilder};
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::inbox::Inbox;
use crate::payload::with_bytes;
use crate::{errors, options, waiting};

/// A server: created, given handlers and regions, started, and stopped, once each.
#[pyclass(subclass, frozen, module = "dunlin._dunlin")]
pub(crate) struct Server {
    stage: Mutex<Stage>,
    regions: Mutex<Vec<dunlin::Region>>,
    /// The process that started it, and to which the memory of its regions belongs.
    started_in: OnceLock<Generation>,
}

enum Stage {
    Building(Box<ServerBuilder>),
    Running(RunningServer),
    Over,
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(&self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> PyResult<()> {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Building(builder) => {
                *stage = Stage::Building(Box::new(change(*builder)));
                Ok(())
            }
            other => {
                *stage = other;
                Err(PyRuntimeError::new_err(
                    "handlers and regions must be added before the server is started",
                ))
            }
        }
    }

    /// Runs a function on a region's memory, if `length` bytes at `offset` are within it.
    fn with_memory<T>(
        &self,
        py: Python<'_>,
        name: &str,
        (offset, length): (usize, usize),
        work: impl FnOnce(&dunlin::Memory) -> T,
    ) -> PyResult<T> {
        let started_in = self.started_in.get();
        if started_in.is_some_and(|process| !process.is_current()) {
            return Err(errors::forked_server(py));
        }
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let region = regions.iter().find(|region| region.name() == name);
        let region = region
            .ok_or_else(|| PyKeyError::new_err(format!("the server has no region '{name}'")))?;
        let memory = region.memory().ok_or_else(|| {
            PyRuntimeError::new_err("regions have no memory until the server is started")
        })?;
        if !memory.contains(offset, length) {
            return Err(PyValueError::new_err(format!(
                "{length} bytes at offset {offset} exceed the region '{name}' of {} bytes",
                memory.len()
            )));
        }
        Ok(work(memory))
    }
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (address, *, device=None, secret=None, pollers=None, max_connections=None,
        max_message_bytes=None, spin=None))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        device: Option<&str>,
        secret: Option<Vec<u8>>,
        pollers: Option<usize>,
        max_connections: Option<usize>,
        max_message_bytes: Option<usize>,
        spin: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = dunlin::Server::bind(address)
            .map_err(|error| errors::serve(py, &error))?
            .channel(options::channel(max_message_bytes, None, spin)?);
        if let Some(device) = device {
            builder = builder.device(device);
        }
        if let Some(secret) = secret {
            builder = builder.secret(options::secret(secret)?);
        }
        if let Some(pollers) = pollers {
            builder = builder.pollers(pollers);
        }
        if let Some(most) = max_connections {
            builder = builder.max_connections(most);
        }
        Ok(Self {
            stage: Mutex::new(Stage::Building(Box::new(builder))),
            regions: Mutex::default(),
            started_in: OnceLock::new(),
        })
    }

    /// Puts requests for this handler into an inbox.
    fn _handle(&self, handler: u16, inbox: &Inbox) -> PyResult<()> {
        let queue = inbox.0.clone();
        self.build(|builder| {
            builder.handle_deferred(handler, move |request, responder| {
                queue.put(request, responder);
            })
        })
    }

    /// Grants `length` bytes of memory to clients under a name: they may read it, and use it as the arguments allow. It
    /// is allocated, filled with zeros, when the server starts.
    #[pyo3(signature = (name, length, *, writable=false, atomic=false))]
    fn region(&self, name: &str, length: usize, writable: bool, atomic: bool) -> PyResult<()> {
        let mut region = dunlin::Region::new(name, length);
        if writable {
            region = region.writable();
        }
        if atomic {
            region = region.atomic();
        }
        self.build(|builder| builder.region(&region))?;
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(region);
        Ok(())
    }

    /// Copies from a region. Clients may change it meanwhile.
    fn region_read<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        offset: usize,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with_memory(py, name, (offset, length), |memory| {
            PyBytes::new_with(py, length, |target| {
                memory.read(offset, target);
                Ok(())
            })
        })?
    }

    /// Copies into a region. Clients may see a partial copy.
    fn region_write(
        &self,
        py: Python<'_>,
        name: &str,
        offset: usize,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        with_bytes(Some(data), "data", |bytes| {
            self.with_memory(py, name, (offset, bytes.len()), |memory| {
                memory.write(offset, bytes);
            })
        })?
    }

    /// Binds the port and starts the server's threads.
    fn _start(&self, py: Python<'_>) -> PyResult<()> {
        let former = std::mem::replace(&mut *self.lock(), Stage::Over);
        let builder = match former {
            Stage::Building(builder) => builder,
            other => {
                *self.lock() = other;
                return Err(PyRuntimeError::new_err(
                    "a server can be started only once: create another server",
                ));
            }
        };
        // No lock is held meanwhile: a thread that holds the GIL may query this server.
        let running =
            waiting::detached(py, || builder.serve()).map_err(|error| errors::serve(py, &error))?;
        let _ = self.started_in.set(Generation::current());
        *self.lock() = Stage::Running(running);
        Ok(())
    }

    /// Stops the server and returns whether everything was answered. Waits for ten seconds at most; the main thread
    /// leaves it to another.
    fn _stop(&self, py: Python<'_>) -> bool {
        let former = std::mem::replace(&mut *self.lock(), Stage::Over);
        match former {
            Stage::Running(running) => waiting::detached(py, || running.shutdown()),
            Stage::Building(_) | Stage::Over => true,
        }
    }

    /// The address on which the server listens, with the port that the system chose.
    #[getter]
    fn address(&self) -> PyResult<String> {
        match &*self.lock() {
            Stage::Running(running) => Ok(running.address().to_string()),
            _ => Err(PyRuntimeError::new_err(
                "a server has an address only while it runs: start it first",
            )),
        }
    }

    /// Current number of connections.
    #[getter]
    fn connections(&self) -> usize {
        match &*self.lock() {
            Stage::Running(running) => running.connections(),
            _ => 0,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.lock(), Stage::Over);
        if let Stage::Running(running) = stage {
            // This waits for the server's threads, none of which needs the GIL.
            drop(running);
        }
    }
}
