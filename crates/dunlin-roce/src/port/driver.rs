//! The device's thread: it takes packets and keeps the time where nobody polls, so that a queue pair answers its peer
//! like a NIC's, whatever its process does. While somebody polls it only looks now and then whether that is still so.

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

/// How often it looks whether somebody polls.
const ATTENDED: Duration = Duration::from_millis(2);
/// How often somebody has to have polled since the last look, and how far apart at most, in nanoseconds.
const ATTENDED_POLLS: u64 = 20;
const ATTENDED_GAP_NS: u64 = 100_000;
/// How long it looks on after a train of packets, in nanoseconds. More is likely to come of a long message, and a core
/// that goes to sleep in between takes as long to wake as a window of packets to send.
const LOOKS_ON_NS: u64 = 100_000;

/// The running thread; ends when dropped.
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
            // There is no such thread in a child.
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
        // Before anything is decided: what woke us may be for somebody who sleeps.
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
            // Who polls takes the packets of those who sleep, too, and keeps the time. Who goes to sleep raises the
            // event from now on: it may have been the only one. Who has just done so did not.
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
        // What is set from now on and comes earlier than what is seen here raises the event.
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
        // What this thread sets while it looks is no reason to wake it.
        core.wakes_ns.store(0, Ordering::SeqCst);
        if !both[1].revents().is_empty() {
            let _ = core.call.consume();
        }
    }
}

fn wait(set: &mut [PollFd<'_>], timeout: Option<Duration>) {
    // An interruption is as good as an event.
    let _ = poll(set, timeout.map(timespec).as_ref());
}
