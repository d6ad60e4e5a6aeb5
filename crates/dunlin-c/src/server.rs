//! Servers: an address, handlers by number, and memory that clients may use.
#![allow(unsafe_code)]
// The contract of all functions is stated once, at the top of dunlin.h.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dunlin::process::Generation;
use dunlin::{RunningServer, ServerBuilder};

use crate::error::{text, Code, Error};
use crate::given::{self, Place};
use crate::handlers::{Deferred, DeferredCallback, HandlerCallback, Request, Responder};
use crate::options::{self, ServerOptions};
use crate::stopping::Stopping;

/// A server. It is created, given its handlers and regions, started, and stopped, once each. Any thread may use it.
#[derive(Debug)]
pub struct Server {
    stage: Mutex<Stage>,
    pub(crate) regions: Mutex<Vec<dunlin::Region>>,
    /// Set when it runs.
    address: OnceLock<CString>,
    /// The process that started it, and to which its memory belongs.
    pub(crate) started_in: OnceLock<Generation>,
}

#[derive(Debug)]
enum Stage {
    Building(Box<ServerBuilder>),
    Running(RunningServer),
    Stopping(Arc<Stopping>),
    /// It could not be started.
    Failed,
}

/// The pointer that was given with a callback.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: dunlin.h asks that it is safe to use from any thread, several at once; here it is only handed on.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    /// A method, so that closures capture the whole value and not the pointer in it.
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Changes the server's settings before it starts.
    pub(crate) fn build(
        &self,
        change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Result<Code, Error> {
        let mut stage = lock(&self.stage);
        match std::mem::replace(&mut *stage, Stage::Failed) {
            Stage::Building(builder) => {
                *stage = Stage::Building(Box::new(change(*builder)));
                Ok(Code::Ok)
            }
            other => {
                *stage = other;
                Err(wrong_state(
                    "handlers and regions must be added before the server is started",
                ))
            }
        }
    }
}

pub(crate) fn wrong_state(words: &str) -> Error {
    Error::new(Code::WrongState, words)
}

/// Creates a server for an address such as "dunlin://0.0.0.0:7400"; with port 0 the system chooses one. It does not
/// listen before dunlin_server_start. `options` may be NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_new(
    address: *const c_char,
    options: *const ServerOptions,
    server: *mut *mut Server,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: pointers are as dunlin.h asks, here and in all functions of this file.
        let place = unsafe { Place::for_object(server, "server") }?;
        dunlin_log::start_once();
        // SAFETY: as above.
        let address = unsafe { given::text(address, "address") }?;
        let builder = dunlin::Server::bind(address)?;
        // SAFETY: as above.
        let builder = unsafe { options::server(options, builder) }?;
        place.give(Server {
            stage: Mutex::new(Stage::Building(Box::new(builder))),
            regions: Mutex::default(),
            address: OnceLock::new(),
            started_in: OnceLock::new(),
        });
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Adds a handler that runs on the polling thread: for a few microseconds of work. It must not block: while it runs, no
/// other request is served. If the number is already used or reserved, dunlin_server_start fails.
///
/// `user` is passed to the callback unchanged. What it points to must be safe to use by several threads at once, and
/// stay valid until the server was freed and every callback has returned: dunlin_server_free does not wait for a
/// callback longer than a second.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_handle(
    server: *const Server,
    handler: u16,
    callback: HandlerCallback,
    user: *mut c_void,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        let answer = answering(callback, User(user))?;
        server.build(|builder| builder.handle(handler, answer))
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Adds a handler that runs on a pool of threads: for work that takes long or blocks. Otherwise like
/// dunlin_server_handle.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_handle_on_workers(
    server: *const Server,
    handler: u16,
    callback: HandlerCallback,
    user: *mut c_void,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        let answer = answering(callback, User(user))?;
        server.build(|builder| builder.handle_on_workers(handler, answer))
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Returns a Rust handler that calls one in C.
fn answering(
    callback: HandlerCallback,
    user: User,
) -> Result<
    impl Fn(&dunlin::Request<'_>, &mut dunlin::Responder<'_>) -> Result<(), dunlin::HandlerError>
        + Send
        + Sync
        + 'static,
    Error,
> {
    let callback = given::callback(callback, "callback")?;
    Ok(
        move |request: &dunlin::Request<'_>, reply: &mut dunlin::Responder<'_>| {
            // SAFETY: both are borrowed until this closure returns, and what is made of them ends with it.
            let request = unsafe { Request::lent(request) };
            // SAFETY: as above.
            let mut responder = unsafe { Responder::lent(reply) };
            // SAFETY: the caller's function, which dunlin.h asks to return and to keep neither of the two.
            unsafe { callback(&request, &mut responder, user.pointer()) };
            responder.ended()
        },
    )
}

/// Adds a handler that answers later, from any thread. Its callback is called on the polling thread and receives an
/// object that it owns. Otherwise like dunlin_server_handle.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_handle_deferred(
    server: *const Server,
    handler: u16,
    callback: DeferredCallback,
    user: *mut c_void,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        let callback = given::callback(callback, "callback")?;
        let user = User(user);
        server.build(|builder| {
            builder.handle_deferred(handler, move |request, responder| {
                let deferred = Box::new(Deferred::new(request, responder));
                // SAFETY: the caller's function, which gets the object to keep.
                unsafe { callback(Box::into_raw(deferred), user.pointer()) };
            })
        })
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Binds the port and starts the server's threads. A server that could not be started cannot be used any more.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_start(
    server: *const Server,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        let mut stage = lock(&server.stage);
        match std::mem::replace(&mut *stage, Stage::Failed) {
            Stage::Building(builder) => {
                let running = builder.serve()?;
                let _ = server.started_in.set(Generation::current());
                let _ = server.address.set(text(running.address().to_string()));
                *stage = Stage::Running(running);
                Ok(Code::Ok)
            }
            other => {
                *stage = other;
                Err(wrong_state(
                    "a server can be started only once: create another server",
                ))
            }
        }
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Returns the address on which the server listens, with the port that the system chose, valid as long as the server.
/// NULL before it was started, and for NULL.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_address(server: *const Server) -> *const c_char {
    // SAFETY: as above.
    let server = unsafe { server.as_ref() };
    let address = server.and_then(|server| server.address.get());
    address.map_or(std::ptr::null(), |address| address.as_ptr())
}

/// Stops the server: it accepts no new clients and no new requests, and answers those that it has accepted. Waits at
/// most for `within_us`; 0: for as long as that takes, which is ten seconds at most.
///
/// DUNLIN_CODE_OK: it has stopped, and `drained`, which may be NULL, gets whether everything was answered and read.
/// DUNLIN_CODE_DEADLINE_EXCEEDED: it continues to stop in the background; call this again to wait for it. A handler
/// that does not return is left behind after a second.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_stop(
    server: *const Server,
    within_us: u64,
    drained: *mut bool,
    error: *mut *mut Error,
) -> Code {
    let body = || {
        // SAFETY: as above.
        let server = unsafe { given::shared(server, "server") }?;
        let stopping = stop(server)?;
        let within = (within_us != 0).then(|| Duration::from_micros(within_us));
        let Some(ended) = stopping.wait(within) else {
            let words = format!(
                "timed out: the server has not stopped within {within_us} us and is still stopping: wait again");
            return Err(Error::new(Code::DeadlineExceeded, words));
        };
        // SAFETY: NULL, which is no error here, or valid for a write.
        if let Ok(place) = unsafe { Place::new(drained, "drained") } {
            place.put(ended);
        }
        Ok(Code::Ok)
    };
    // SAFETY: as above.
    unsafe { given::enter(error, body) }
}

/// Begins to stop a server on a separate thread, unless that has been done.
fn stop(server: &Server) -> Result<Arc<Stopping>, Error> {
    let mut stage = lock(&server.stage);
    let stopping = Arc::new(Stopping::default());
    let former = std::mem::replace(&mut *stage, Stage::Stopping(Arc::clone(&stopping)));
    match former {
        Stage::Running(running) => {
            let told = Arc::clone(&stopping);
            let spawned = std::thread::Builder::new()
                .name("dunlin-stop".into())
                .spawn(move || {
                    let ended = catch_unwind(AssertUnwindSafe(|| running.shutdown()));
                    told.ended(ended.unwrap_or(false));
                });
            if let Err(error) = spawned {
                // The closure for the thread has been dropped, which has ended the server.
                stopping.ended(false);
                let words = format!(
                    "cannot start a thread to stop the server, which was ended at once: {error}"
                );
                return Err(Error::new(Code::System, words));
            }
        }
        Stage::Stopping(before) => {
            *stage = Stage::Stopping(Arc::clone(&before));
            return Ok(before);
        }
        Stage::Building(_) | Stage::Failed => stopping.ended(true),
    }
    Ok(stopping)
}

/// Frees a server. A running one is ended at once: outstanding calls fail at their callers. For one that is being
/// stopped this waits ten seconds at most. Its handlers must not call this. A callback that does not return within a
/// second of the end is left behind, and continues to use its `user` pointer.
#[no_mangle]
pub unsafe extern "C" fn dunlin_server_free(server: *mut Server) {
    // SAFETY: NULL or the caller's, which gives it up.
    unsafe { given::take_back(server) }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Stage::Stopping(stopping) = &*lock(&self.stage) {
            stopping.wait(None);
        }
    }
}
