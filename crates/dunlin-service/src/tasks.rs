//! Where futures run that nobody awaits: handlers, and what drives streams.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_executor::LocalPool;
use futures_util::future::LocalFutureObj;
use futures_util::stream::StreamExt;
use futures_util::task::LocalSpawn;

/// A future that runs to its end by itself.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Tasks {
    /// The user's own.
    Custom(Arc<dyn Fn(Task) + Send + Sync>),
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Handle),
    /// A thread of its own, started with the first task. It has no timers and no sockets.
    Thread(Arc<OwnThread>),
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Custom(_) => "Tasks(custom)",
            #[cfg(feature = "tokio")]
            Self::Tokio(_) => "Tasks(tokio)",
            Self::Thread(_) => "Tasks(thread)",
        })
    }
}

impl Default for Tasks {
    /// The tokio runtime around the caller, with the feature `tokio`, or else a thread.
    fn default() -> Self {
        #[cfg(feature = "tokio")]
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(runtime);
        }
        Self::Thread(Arc::default())
    }
}

impl Tasks {
    /// Runs a task.
    pub(crate) fn spawn(&self, task: Task) {
        match self {
            Self::Custom(spawn) => spawn(task),
            #[cfg(feature = "tokio")]
            Self::Tokio(runtime) => drop(runtime.spawn(task)),
            Self::Thread(thread) => thread.spawn(task),
        }
    }
}

/// A thread that polls tasks.
#[derive(Default)]
pub(crate) struct OwnThread(Mutex<Option<futures_channel::mpsc::UnboundedSender<Task>>>);

impl OwnThread {
    fn spawn(&self, task: Task) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match &*place {
            Some(tasks) => match tasks.unbounded_send(task) {
                Ok(()) => return,
                // Its thread has ended.
                Err(unsent) => unsent.into_inner(),
            },
            None => task,
        };
        let (tasks, coming) = futures_channel::mpsc::unbounded();
        let _ = tasks.unbounded_send(unsent);
        let started = std::thread::Builder::new()
            .name("dunlin-service".into())
            .spawn(move || run(coming));
        match started {
            Ok(_) => *place = Some(tasks),
            // Whoever waits for the task sees that it was dropped.
            Err(_) => *place = None,
        }
    }
}

/// Runs what comes, until nothing can come and all has ended.
fn run(mut coming: futures_channel::mpsc::UnboundedReceiver<Task>) {
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    pool.run_until(async move {
        while let Some(task) = coming.next().await {
            let _ = spawner.spawn_local_obj(LocalFutureObj::from(
                task as Pin<Box<dyn Future<Output = ()>>>,
            ));
        }
    });
    pool.run();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_its_own_runs_tasks_together() {
        let tasks = Tasks::Thread(Arc::default());
        let (first, second) = (
            futures_channel::oneshot::channel(),
            futures_channel::oneshot::channel(),
        );
        let (tell, told) = std::sync::mpsc::channel();
        tasks.spawn(Box::pin(async move {
            let number: u32 = first.1.await.unwrap();
            second.0.send(number + 1).unwrap();
        }));
        tasks.spawn(Box::pin(async move {
            first.0.send(1).unwrap();
            tell.send(second.1.await.unwrap()).unwrap();
        }));
        assert_eq!(told.recv().unwrap(), 2);
    }
}
