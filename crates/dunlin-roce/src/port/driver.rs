//! The device's thread: it receives packets and handles timers while nobody polls, so that a queue pair answers its
//! peer as on a NIC, whatever its process does. While others poll it only checks periodically whether that is still so.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_verbs::VerbsError;
use rustix::event::{poll, PollFd, PollFlags};

use super::Port;
use crate::channel::timespec;
use crate::sync::{now_ns, system};

/// Interval at which it checks whether others poll.
const ATTENDED: Duration = Duration::from_millis(2);
/// Minimum number of polls by others since the last check, and their maximum average distance, in nanoseconds.
const ATTENDED_POLLS: u64 = 20;
const ATTENDED_GAP_NS: u64 = 100_000;
/// How long it keeps polling after a train of packets, in nanoseconds. A train is likely to be part of a long message,
/// and waking a core that has gone to sleep takes as long as sending a window of packets.
const LOOKS_ON_NS: u64 = 100_000;

/// The running thread; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    port: Arc<Port>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(crate) fn start(port: &Arc<Port>) -> Result<Self, VerbsError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_port, thread_stop) = (Arc::clone(port), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("dunlin-roce".to_owned())
            .spawn(move || run(&thread_port, &thread_stop))
            .map_err(system("starting the device's thread"))?;
        Ok(Self {
            port: Arc::clone(port),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.port.core.made_in.is_current() {
            // A child has no such thread.
            return std::mem::forget(thread);
        }
        self.stop.store(true, Ordering::SeqCst);
        self.port.core.call.raise();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn run(port: &Port, stop: &AtomicBool) {
    let core = &port.core;
    let (mut polls, mut since_ns) = (port.polls(), now_ns());
    let (mut trains, mut looks_until_ns) = (core.socket.trains(), 0);
    while !stop.load(Ordering::SeqCst) {
        // First of all: what woke this thread may be for a completion queue that is armed.
        let armed = core.armed.load(Ordering::SeqCst);
        let is_behind = port.look_for_all();
        let now_ns = now_ns();
        let looks = port.polls().wrapping_sub(polls);
        let passed_ns = now_ns - since_ns;
        let is_attended =
            looks >= ATTENDED_POLLS && passed_ns < looks * ATTENDED_GAP_NS && !is_behind;
        if is_attended || passed_ns > ATTENDED.as_nanos() as u64 {
            (polls, since_ns) = (polls.wrapping_add(looks), now_ns);
        }
        if is_attended {
            // Threads that poll also receive the packets of sleeping threads, and handle the timers. From now on, a
            // thread that goes to sleep raises the event, because it may have been the only one that polled. One that
            // has just gone to sleep did not raise it.
            core.wakes_ns.store(0, Ordering::SeqCst);
            let slept = core.armed.load(Ordering::SeqCst) != armed;
            if !slept {
                wait(
                    &mut [PollFd::new(&core.call, PollFlags::IN)],
                    Some(ATTENDED),
                );
            }
            if core.call.consume().unwrap_or(false) || slept {
                (polls, since_ns) = (port.polls(), crate::sync::now_ns());
            }
            continue;
        }
        let moved = core.socket.trains();
        if moved != trains {
            (trains, looks_until_ns) = (moved, now_ns + LOOKS_ON_NS);
        }
        if now_ns < looks_until_ns {
            std::thread::yield_now();
            continue;
        }
        // From now on, setting a timer that expires earlier than what is seen here raises the event.
        core.wakes_ns.store(u64::MAX, Ordering::SeqCst);
        port.send_postponed();
        let next_ns = core.timers().next_ns();
        let timeout = next_ns.map(|next_ns| {
            core.wakes_ns.store(next_ns, Ordering::SeqCst);
            Duration::from_nanos(next_ns.saturating_sub(crate::sync::now_ns()))
        });
        let socket = core.socket.as_fd();
        let mut both = [
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
            PollFd::new(&core.call, PollFlags::IN),
        ];
        wait(&mut both, timeout);
        // Timers that this thread sets while it polls need not wake it.
        core.wakes_ns.store(0, Ordering::SeqCst);
        if !both[1].revents().is_empty() {
            let _ = core.call.consume();
        }
    }
}

fn wait(set: &mut [PollFd<'_>], timeout: Option<Duration>) {
    // An interruption is treated like an event.
    let _ = poll(set, timeout.map(timespec).as_ref());
}
