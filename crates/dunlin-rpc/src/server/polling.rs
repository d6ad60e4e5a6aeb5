//! The polling threads of a device's service. Each polls clients of all kinds of channel, so that no kind waits for the
//! core while another's thread has it; the poller of a kind joins the threads when the first client of that kind comes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{CompletionChannel, Device, VerbsError};

use super::rounds::{self, Rounds};
use super::service::ServiceSetup;
use super::thread_task::ThreadTask;
use super::threads::{wait_for, Arrivals};
use super::workers::{self, WorkerQueue};
use crate::admission::Passes;
use crate::error::ServeError;

/// Makes, on the thread, what serves the clients of one kind there.
pub(super) type MakeRounds<R> = Box<dyn FnOnce() -> R + Send>;

/// The polling threads.
pub(super) struct PollingThreads<D: Device> {
    pub(super) device: D,
    pub(super) setup: Arc<ServiceSetup>,
    threads: Vec<Arc<Thread<D::CompletionChannel>>>,
    running: Mutex<Vec<Running>>,
    /// Clients that are being accepted.
    arrivals: Arc<Arrivals>,
}

/// The part of a polling thread that other threads use.
struct Thread<W> {
    /// What it sleeps on.
    wake: W,
    joining: Mutex<Joining>,
    has_joining: AtomicBool,
    passes: Arc<Passes>,
}

/// What is to be served on the thread in addition.
#[derive(Default)]
struct Joining {
    new: Vec<(MakeRounds<Box<dyn Rounds>>, Served)>,
    /// Whether the thread was started.
    has_begun: bool,
    /// Whether it has ended or is to end: nothing joins it any more.
    is_over: bool,
}

/// Counts one kind as being served as long as this lives; correct also after a panic.
pub(super) struct Served(Arc<AtomicUsize>);

impl Served {
    pub(super) fn begin(of: &Arc<AtomicUsize>) -> Self {
        of.fetch_add(1, Ordering::Release);
        Self(Arc::clone(of))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<D: Device> PollingThreads<D> {
    /// Makes the threads' state; none of them is started yet.
    ///
    /// # Errors
    /// If the device provides no completion channel to sleep on.
    pub(super) fn new(device: D, setup: Arc<ServiceSetup>) -> Result<Self, VerbsError> {
        let new = |_| -> Result<_, VerbsError> {
            Ok(Arc::new(Thread {
                wake: device.create_completion_channel()?,
                joining: Mutex::default(),
                has_joining: AtomicBool::new(false),
                passes: Arc::default(),
            }))
        };
        let threads = (0..setup.pollers).map(new).collect::<Result<_, _>>()?;
        Ok(Self {
            threads,
            device,
            setup,
            running: Mutex::default(),
            arrivals: Arc::default(),
        })
    }

    /// The clients of all kinds that are being accepted.
    pub(super) fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// What the thread with this number sleeps on.
    pub(super) fn wake(&self, index: usize) -> D::CompletionChannel {
        self.threads[index].wake.clone()
    }

    /// The counts of all threads' passes.
    pub(super) fn passes(&self) -> Vec<Arc<Passes>> {
        let all = self.threads.iter();
        all.map(|thread| Arc::clone(&thread.passes)).collect()
    }

    /// Serves a kind of clients on the thread with this number, which is started for the first kind.
    ///
    /// # Errors
    /// If it cannot be started, or has ended.
    pub(super) fn serve<R: Rounds + 'static>(
        &self,
        index: usize,
        make: MakeRounds<R>,
        served: Served,
    ) -> Result<(), ServeError> {
        let thread = &self.threads[index];
        let mut joining = thread::lock(&thread.joining);
        if joining.is_over {
            let ended = VerbsError::Peer("the server has stopped".into());
            return Err(ServeError::Device(ended));
        }
        if joining.has_begun {
            let boxed = move || -> Box<dyn Rounds> { Box::new(make()) };
            joining.new.push((Box::new(boxed), served));
            thread.has_joining.store(true, Ordering::Release);
            drop(joining);
            thread.wake.wake();
            return Ok(());
        }
        let running = self.spawn(index, make, served)?;
        joining.has_begun = true;
        drop(joining);
        thread::lock(&self.running).push(running);
        Ok(())
    }

    fn spawn<R: Rounds + 'static>(
        &self,
        index: usize,
        make: MakeRounds<R>,
        served: Served,
    ) -> std::io::Result<Running> {
        let thread = Arc::clone(&self.threads[index]);
        let (wait, identity) = (self.setup.channel.wait, self.setup.identity);
        let core = self.setup.affinity.map(|first| first + index);
        let tasks = self.setup.tasks.as_ref();
        let task = tasks.and_then(|tasks| tasks.claim(index, thread.wake.clone()));
        let run = move || {
            identity.mark_thread();
            if let Some(core) = core.filter(|_| !thread::is_simulated()) {
                super::pin(core);
            }
            let wake = thread.wake.clone();
            let mut all = All {
                first: None,
                others: Vec::new(),
                thread,
            };
            all.first = Some((make(), served));
            rounds::run(all, ThreadTask::start(task), wait, &wake);
        };
        let name = format!("dunlin-poller-{index}");
        self.device.spawn(name, core, Box::new(run))
    }

    /// Starts the worker pool.
    ///
    /// # Errors
    /// If they cannot be started.
    pub(super) fn start_workers(&self) -> std::io::Result<(WorkerQueue, Vec<Running>)> {
        let spawn = |name, run| self.device.spawn(name, None, run);
        workers::start(self.setup.workers, spawn)
    }

    /// Lets nothing join the threads from now on; called before what they serve is told to end.
    pub(super) fn close(&self) {
        for thread in &self.threads {
            thread::lock(&thread.joining).is_over = true;
        }
    }

    /// Waits until `deadline` for the threads, which were told to end; then calls `abandon` with the number of each
    /// that is stuck in a handler.
    pub(super) fn end(&self, deadline: Instant, abandon: impl Fn(usize)) {
        let running = std::mem::take(&mut *thread::lock(&self.running));
        for (index, thread) in running.into_iter().enumerate() {
            if !wait_for(thread, deadline) {
                tracing::error!(
                    "a poller is stuck in a handler: its thread is abandoned, and its clients' connections end");
                abandon(index);
            }
        }
    }
}

/// All that a thread serves. The kind that came first, usually rings, is statically dispatched.
struct All<R, W> {
    first: Option<(R, Served)>,
    others: Vec<(Box<dyn Rounds>, Served)>,
    thread: Arc<Thread<W>>,
}

/// Even after a panic nothing joins a thread that has ended.
impl<R, W> Drop for All<R, W> {
    fn drop(&mut self) {
        let mut joining = thread::lock(&self.thread.joining);
        joining.is_over = true;
        let left = std::mem::take(&mut joining.new);
        drop(joining);
        drop(left);
    }
}

impl<R: Rounds, W> All<R, W> {
    #[cold]
    fn take_joining(&mut self) {
        let mut joining = thread::lock(&self.thread.joining);
        self.thread.has_joining.store(false, Ordering::Relaxed);
        let new = std::mem::take(&mut joining.new);
        drop(joining);
        let made = new.into_iter().map(|(make, served)| (make(), served));
        self.others.extend(made);
    }

    fn each(&mut self) -> impl Iterator<Item = &mut dyn Rounds> {
        let first = self.first.iter_mut();
        let first = first.map(|(rounds, _)| -> &mut dyn Rounds { rounds });
        let others = self.others.iter_mut();
        first.chain(others.map(|(rounds, _)| -> &mut dyn Rounds { rounds.as_mut() }))
    }

    fn any(&self, is_so: impl Fn(&dyn Rounds) -> bool) -> bool {
        self.first.as_ref().is_some_and(|(rounds, _)| is_so(rounds))
            || self.others.iter().any(|(rounds, _)| is_so(rounds.as_ref()))
    }

    /// Ends the kinds that are over, and returns whether nothing is left.
    #[cold]
    fn end_what_is_over(&mut self) -> bool {
        if let Some((mut first, _served)) = self.first.take_if(|(first, _)| first.is_over()) {
            first.close();
        }
        self.others.retain_mut(|(rounds, _)| {
            let is_over = rounds.is_over();
            if is_over {
                rounds.close();
            }
            !is_over
        });
        let mut joining = thread::lock(&self.thread.joining);
        let is_over = self.first.is_none() && self.others.is_empty() && joining.new.is_empty();
        joining.is_over |= is_over;
        is_over
    }
}

impl<R: Rounds, W> Rounds for All<R, W> {
    #[inline]
    fn pass(&mut self) -> usize {
        let mut work = 0;
        if let Some((first, _)) = &mut self.first {
            work += first.pass();
        }
        if self.thread.has_joining.load(Ordering::Acquire) {
            self.take_joining();
        }
        for (rounds, _) in &mut self.others {
            work += rounds.pass();
        }
        // A thread without other work polls all clients, and may sleep after that.
        if work == 0 {
            work = self.pass_quiet();
        }
        self.thread.passes.passed(work > 0);
        work
    }

    #[inline]
    fn pass_quiet(&mut self) -> usize {
        let first = self.first.as_mut();
        let first = first.map_or(0, |(first, _)| first.pass_quiet());
        let others = self.others.iter_mut();
        first + others.map(|(rounds, _)| rounds.pass_quiet()).sum::<usize>()
    }

    fn check(&mut self) {
        self.each().for_each(|rounds| rounds.check());
    }

    fn has_clients(&self) -> bool {
        self.any(|rounds| rounds.has_clients())
    }

    #[inline]
    fn is_over(&mut self) -> bool {
        let first = self.first.as_mut();
        let some = first.is_none_or(|(first, _)| first.is_over())
            || self.others.iter_mut().any(|(rounds, _)| rounds.is_over());
        some && self.end_what_is_over()
    }

    fn is_ending(&self) -> bool {
        self.any(|rounds| rounds.is_ending())
    }

    fn has_work(&mut self) -> bool {
        self.thread.has_joining.load(Ordering::Acquire)
            || self.each().any(|rounds| rounds.has_work())
    }

    fn longest_sleep(&mut self) -> Duration {
        let each = self.each().map(|rounds| rounds.longest_sleep());
        each.min().unwrap_or(rounds::LONGEST)
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut known = true;
        for rounds in self.each() {
            // Kinds without clients learn of the next one by mail.
            known &= !rounds.has_clients() || rounds.prepare_sleep();
        }
        known
    }

    fn close(&mut self) {
        self.each().for_each(|rounds| rounds.close());
    }
}
