//! The real thread that simulates a part of a cluster: stacks of its simulated threads belong to it.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread::JoinHandle;

type Task = Box<dyn FnOnce() + Send>;

/// A real thread that runs tasks one after the other until it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    tasks: Option<mpsc::Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// A task that a worker is running.
#[derive(Debug)]
pub(crate) struct Doing<R>(mpsc::Receiver<std::thread::Result<R>>);

impl Worker {
    /// Starts the worker of a part.
    ///
    /// # Panics
    /// When the system gives no thread.
    pub(crate) fn new(part: usize) -> Self {
        let (tasks, those) = mpsc::channel::<Task>();
        let thread = std::thread::Builder::new()
            .name(format!("simulated part {part}"))
            .spawn(move || those.into_iter().for_each(|task| task()))
            .expect("a thread for a part of the cluster");
        Self {
            tasks: Some(tasks),
            thread: Some(thread),
        }
    }

    /// Starts a task.
    pub(crate) fn begin<R: Send + 'static>(
        &self,
        task: impl FnOnce() -> R + Send + 'static,
    ) -> Doing<R> {
        let (done, result) = mpsc::channel();
        let task = move || {
            // The thread that waits for it may have panicked.
            let _ = done.send(catch_unwind(AssertUnwindSafe(task)));
        };
        let tasks = self.tasks.as_ref().expect("there until it is dropped");
        tasks.send(Box::new(task)).expect("it outlives all tasks");
        Doing(result)
    }
}

impl<R> Doing<R> {
    /// Waits for the end; returns a panic as an error.
    pub(crate) fn end(self) -> Result<R, Box<dyn Any + Send>> {
        self.0.recv().expect("every task ends with a result")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.tasks.take());
        // The last handle of a cluster may be dropped by one of the cluster's own threads.
        let thread = self.thread.take();
        let other = thread.filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = other {
            let _ = thread.join();
        }
    }
}
