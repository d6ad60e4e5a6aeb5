//! Starts handlers that do not run on the polling thread: on the worker pool, on the user's executor, or wherever a
//! deferred handler takes its request and responder. The memory that their requests hold is bounded here for all of
//! them.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::answering::{Answering, Executor};
use super::away::Fate;
use super::caller::Caller;
use super::connection::Outcome;
use super::deferred::{OwnedRequest, OwnedResponder, Way};
use super::handler::{Execution, Exporter, Limits};
use super::workers::{Job, WorkerQueue};
use crate::channel::buffers::Bytes;
use crate::HandlerId;

/// Maximum size in bytes of requests that wait for a worker or are held by handlers that answer later.
const HELD_BYTES: usize = 256 << 20;

/// A call that has been answered outside of the polling thread.
pub(super) struct Finished {
    pub(super) connection: u64,
    pub(super) call: u64,
    pub(super) outcome: Outcome,
}

/// Delivers finished calls to the poller with this number.
pub(super) type Deliver = dyn Fn(usize, Finished) + Send + Sync;

/// The bytes of a request, counted as long as the request is held.
#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Held {
    /// `None` if too many bytes are held. A request that is the only one is taken whatever its length.
    fn take(of: &Arc<AtomicUsize>, bytes: usize) -> Option<Self> {
        let before = of.fetch_add(bytes, Ordering::Relaxed);
        let held = Self {
            bytes,
            of: Arc::clone(of),
        };
        (before == 0 || before + bytes <= HELD_BYTES).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request for a handler outside of the polling thread.
pub(super) struct Apart {
    pub(super) poller: usize,
    pub(super) connection: u64,
    pub(super) caller: Caller,
    pub(super) call: u64,
    pub(super) handler: HandlerId,
    pub(super) payload: Box<dyn Bytes>,
    pub(super) exporter: Box<dyn Exporter>,
    pub(super) limits: Limits,
    pub(super) fate: Arc<Fate>,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Dispatch {
    workers: Option<WorkerQueue>,
    executor: Option<Executor>,
    deliver: Arc<Deliver>,
    held: Arc<AtomicUsize>,
}

impl Dispatch {
    pub(super) fn new(
        workers: Option<WorkerQueue>,
        executor: Option<Executor>,
        deliver: Arc<Deliver>,
    ) -> Self {
        Self {
            workers,
            executor,
            deliver,
            held: Arc::default(),
        }
    }

    pub(super) fn has_workers(&self) -> bool {
        self.workers.is_some()
    }

    /// Starts a handler. Returns `false` if there is no room for the call, or nothing to run it; it was not started
    /// then.
    pub(super) fn start(&self, apart: Apart, execution: &Execution) -> bool {
        let Some(held) = Held::take(&self.held, apart.payload.bytes().len()) else {
            return false;
        };
        let responder = OwnedResponder::new(Way {
            poller: apart.poller,
            connection: apart.connection,
            call: apart.call,
            exporter: apart.exporter,
            limits: apart.limits,
            fate: Arc::clone(&apart.fate),
            deliver: Arc::clone(&self.deliver),
        });
        let request = OwnedRequest {
            handler: apart.handler,
            connection: apart.connection,
            caller: apart.caller,
            payload: apart.payload,
            held: Some(held),
            fate: apart.fate,
        };
        match execution {
            Execution::Inline(function) | Execution::Worker(function) => {
                let job = Job {
                    function: Arc::clone(function),
                    request,
                    responder,
                };
                let refused = match &self.workers {
                    Some(workers) => workers.offer(job),
                    None => Some(job),
                };
                refused.map(|job| job.responder.discard()).is_none()
            }
            Execution::Deferred(function) => {
                // If the handler panics, the responder answers when it is dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| function(request, responder)));
                true
            }
            Execution::Async(function) => {
                match catch_unwind(AssertUnwindSafe(|| function(request))) {
                    Ok(future) => self.spawn(Answering::new(future, responder)),
                    Err(_) => {
                        responder.panicked();
                        true
                    }
                }
            }
        }
    }

    fn spawn(&self, answering: Answering) -> bool {
        match (&self.executor, &self.workers) {
            (Some(Executor(spawn)), _) => {
                // The thread also serves other clients. The task answers its call when the panic drops it.
                let spawned = catch_unwind(AssertUnwindSafe(|| spawn(Box::pin(answering))));
                if spawned.is_err() {
                    tracing::error!(
                        "the executor of async handlers panicked instead of accepting one"
                    );
                }
            }
            (None, Some(workers)) => workers.spawn(answering),
            (None, None) => {
                answering.discard();
                return false;
            }
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::channel::buffers::BytesMut;
    use crate::server::handler::HandlerError;
    use crate::server::workers;
    use dunlin_verbs::thread::Running;
    use std::sync::{mpsc, Mutex};

    struct NoMemory;

    impl Exporter for NoMemory {
        fn export(&self, _: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
            Err(HandlerError::new(0, "none"))
        }
    }

    fn apart(call: u64, bytes: usize) -> Apart {
        Apart {
            poller: 0,
            caller: Caller::new(Default::default(), None, Default::default()),
            connection: 1,
            call,
            handler: 1,
            // Zeroed pages that are never touched cost no memory.
            payload: Box::new(vec![0; bytes].into_boxed_slice()),
            exporter: Box::new(NoMemory),
            limits: Limits {
                eager: 8,
                longest: 8,
            },
            fate: Arc::default(),
        }
    }

    /// How calls ended: their number, and the message of a failure.
    type Ends = mpsc::Receiver<(u64, Option<String>)>;

    fn dispatch(workers: usize) -> (Dispatch, Ends, Vec<Running>) {
        let (ended, ends) = mpsc::channel();
        let ended = Mutex::new(ended);
        let deliver = Arc::new(move |_, finished: Finished| {
            let words = match finished.outcome {
                Outcome::Failure(failure) => Some(failure.message),
                _ => None,
            };
            let _ = ended.lock().unwrap().send((finished.call, words));
        });
        let (queue, threads) = match workers {
            0 => (None, Vec::new()),
            count => {
                let (queue, threads) = workers::start(count, Running::start).unwrap();
                (Some(queue), threads)
            }
        };
        (Dispatch::new(queue, None, deliver), ends, threads)
    }

    #[test]
    fn waiting_requests_are_bounded_by_their_bytes() {
        let (dispatch, ends, threads) = dispatch(1);
        let (started, starts) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (started, released) = (Mutex::new(started), Mutex::new(released));
        let function = Execution::Worker(Arc::new(move |_, _| {
            let _ = started.lock().unwrap().send(());
            let _ = released.lock().unwrap().recv();
            Ok(())
        }));
        let start = |call| dispatch.start(apart(call, 200 << 20), &function);
        assert!(start(1), "alone");
        starts.recv().unwrap();
        assert!(start(2), "the first does not wait any more");
        assert!(!start(3), "200 MiB wait already");
        release.send(()).unwrap();
        assert_eq!(ends.recv().unwrap().0, 1);
        starts.recv().unwrap();
        assert!(start(4), "nothing waits");
        drop((dispatch, release));
        let rest: Vec<u64> = ends.iter().take(2).map(|(call, _)| call).collect();
        assert_eq!(rest, [2, 4]);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_call_that_comes_when_workers_have_ended_is_dropped_and_not_refused_for_want_of_room() {
        let (dispatch, ends, threads) = dispatch(2);
        dispatch.workers.as_ref().unwrap().close();
        for thread in threads {
            thread.join().unwrap();
        }
        let function = Execution::Worker(Arc::new(|_, _| panic!("nobody runs it")));
        assert!(dispatch.start(apart(1, 3), &function));
        // A server that is ending does not deliver this outcome to the caller.
        let (call, words) = ends.recv().unwrap();
        assert!(call == 1 && words.unwrap().contains("without an answer"));
    }

    #[test]
    fn what_is_deferred_is_held_until_it_is_dropped_and_answered_once() {
        let (dispatch, ends, _) = dispatch(0);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        let function = Execution::Deferred(Arc::new(move |request, responder| {
            keeps.lock().unwrap().push((request, responder));
        }));
        let start = |call| dispatch.start(apart(call, 200 << 20), &function);
        assert!(start(1));
        assert!(!start(2), "200 MiB are held already");
        assert!(
            ends.try_recv().is_err(),
            "who was not begun is not answered"
        );
        let (request, responder) = kept.lock().unwrap().pop().unwrap();
        responder.reply(b"8 bytes!");
        assert_eq!(ends.recv().unwrap(), (1, None));
        assert!(!start(3), "the request is still there");
        drop(request);
        assert!(start(4));
        kept.lock().unwrap().clear();
        let (call, words) = ends.recv().unwrap();
        assert!(call == 4 && words.unwrap().contains("without an answer"));
        assert!(start(5));
        let (_, responder) = kept.lock().unwrap().pop().unwrap();
        responder.reply(b"9 bytes!!");
        let (call, words) = ends.recv().unwrap();
        assert!(call == 5 && words.unwrap().contains("9 bytes"));
        assert!(ends.try_recv().is_err());
    }

    #[test]
    fn a_future_runs_on_workers_where_there_is_no_executor_and_nowhere_without_either() {
        let function = Execution::Async(Arc::new(|request| {
            let mut polls = request.payload().len();
            Box::pin(std::future::poll_fn(move |context| {
                if polls == 0 {
                    return std::task::Poll::Ready(Ok(Vec::new()));
                }
                polls -= 1;
                assert_ne!(polls, 100, "a bug in a handler");
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }))
        }));
        let (nowhere, ends, _) = dispatch(0);
        assert!(!nowhere.start(apart(1, 3), &function));
        assert!(ends.try_recv().is_err());
        let (dispatch, ends, threads) = dispatch(2);
        for call in 0..64 {
            assert!(dispatch.start(apart(call, call as usize), &function));
        }
        let mut ended: Vec<u64> = ends.iter().take(64).map(|(call, _)| call).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..64).collect::<Vec<_>>());
        assert!(dispatch.start(apart(64, 101), &function));
        assert_eq!(ends.recv().unwrap(), (64, Some(String::new())), "a panic");
        // The answer is no longer wanted: a future that never ends is dropped.
        let never = Execution::Async(Arc::new(|_| Box::pin(std::future::pending())));
        let mut away = super::super::away::Away::default();
        let fate = away.begin(65, None).unwrap();
        assert!(dispatch.start(
            Apart {
                fate,
                ..apart(65, 0)
            },
            &never
        ));
        away.cancel(65);
        assert_eq!(ends.recv().unwrap(), (65, Some(String::new())));
        drop(dispatch);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
