//! Completion channels: an event of this process and one socket end for each peer that may wake it, behind one epoll
//! descriptor.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{CompletionChannel, VerbsError};
use rustix::event::{epoll, eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::core::lock;
use crate::system;
use crate::wake::{self, End};

/// Identifies our own event in the set; those of peers follow.
const OWN: u64 = 0;
/// Number of ends handled in one wait; the others are found by the next one.
const ENDS_PER_WAIT: usize = 32;

/// A completion channel, on which a thread sleeps until a completion arrives.
#[derive(Clone, Debug)]
pub struct ShmCompletionChannel {
    inner: Arc<Inner>,
}

/// A weak reference to a channel.
#[derive(Clone, Debug)]
pub(crate) struct WeakChannel(Weak<Inner>);

#[derive(Debug)]
struct Inner {
    made_in: Generation,
    set: OwnedFd,
    /// Raised by this process alone, and sent to nobody: a peer that holds a descriptor can block everyone else who
    /// reads or writes it.
    event: OwnedFd,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    next: u64,
    ends: HashMap<u64, End>,
}

/// Raises an event of this process. A failure is ignored, and a full counter is an event too.
pub(crate) fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Consumes such an event.
pub(crate) fn consume(event: &OwnedFd) -> Result<bool, Errno> {
    let mut count = [0; 8];
    match rustix::io::read(event, &mut count) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Creates an event, which must not leave this process.
pub(crate) fn create_event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

impl ShmCompletionChannel {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let event = create_event().map_err(system("eventfd for a completion channel"))?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(system("epoll for a completion channel"))?;
        let own = epoll::EventData::new_u64(OWN);
        epoll::add(&set, &event, own, epoll::EventFlags::IN)
            .map_err(system("epoll for a completion channel"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                made_in: Generation::current(),
                set,
                event,
                ends: Mutex::new(Ends {
                    next: OWN + 1,
                    ends: HashMap::new(),
                }),
            }),
        })
    }

    pub(crate) fn downgrade(&self) -> WeakChannel {
        WeakChannel(Arc::downgrade(&self.inner))
    }

    /// Lets another peer wake this channel: returns its name here, and the descriptor to send to it.
    pub(crate) fn admit(&self) -> Result<(u64, OwnedFd), Errno> {
        let (ours, theirs) = wake::pair()?;
        let mut ends = lock(&self.inner.ends);
        let name = ends.next;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(
            &self.inner.set,
            &ours,
            epoll::EventData::new_u64(name),
            flags,
        )?;
        ends.next += 1;
        ends.ends.insert(name, ours);
        Ok((name, theirs))
    }

    /// Whether the peer with this name can still wake the channel.
    pub(crate) fn hears(&self, name: u64) -> bool {
        let ends = lock(&self.inner.ends);
        let Some(end) = ends.ends.get(&name) else {
            return false;
        };
        let mut one = [PollFd::new(end, PollFlags::RDHUP)];
        poll(&mut one, Some(&Timespec::default())) == Ok(0)
    }
}

impl WeakChannel {
    pub(crate) fn upgrade(&self) -> Option<ShmCompletionChannel> {
        let inner = self.0.upgrade()?;
        Some(ShmCompletionChannel { inner })
    }

    pub(crate) fn is(&self, channel: &ShmCompletionChannel) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&channel.inner))
    }

    /// Removes the peer with this name, which is gone.
    pub(crate) fn dismiss(&self, name: u64) {
        if let Some(inner) = self.0.upgrade() {
            let end = inner.remove(&mut lock(&inner.ends), name);
            drop(end);
        }
    }
}

impl Inner {
    /// Removes an end from the set, to be dropped outside of the lock.
    fn remove(&self, ends: &mut Ends, name: u64) -> Option<End> {
        let end = ends.ends.remove(&name)?;
        // It may be closed some time later.
        let _ = epoll::delete(&self.set, &end);
        Some(end)
    }

    /// Waits until something is ready, a signal arrives (`true` in both cases) or the time is over.
    fn await_readiness(&self, timeout: Duration) -> Result<bool, VerbsError> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // With `poll`, whose timeout is not in milliseconds.
        let mut set = [PollFd::new(&self.set, PollFlags::IN)];
        match poll(&mut set, Some(&timeout)) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(system("poll of a completion channel")(errno)),
        }
    }

    /// Consumes what is ready; `false` if there was nothing.
    fn take_ready(&self) -> Result<bool, VerbsError> {
        let nothing = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(OWN),
        };
        let mut events = [nothing; ENDS_PER_WAIT];
        let ready = match epoll::wait(&self.set, &mut events, Some(&Timespec::default())) {
            Ok(ready) => ready,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(system("epoll_wait of a completion channel")(errno)),
        };
        let mut any = false;
        for event in &events[..ready] {
            any |= self
                .take(event.data.u64())
                .map_err(system("read of a completion channel"))?;
        }
        Ok(any)
    }

    /// Consumes the event of `name`; `false` if there was none.
    fn take(&self, name: u64) -> Result<bool, Errno> {
        if name == OWN {
            return consume(&self.event);
        }
        let mut ends = lock(&self.ends);
        let mut gone = None;
        if !ends.ends.get(&name).is_some_and(End::drain) {
            gone = self.remove(&mut ends, name);
        }
        drop(ends);
        drop(gone);
        Ok(true)
    }
}

impl AsFd for ShmCompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.set.as_fd()
    }
}

impl CompletionChannel for ShmCompletionChannel {
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        // A child would take its parent's events.
        self.inner.made_in.check()?;
        let began = Instant::now();
        let mut left = timeout;
        loop {
            if !self.inner.await_readiness(left)? {
                return Ok(false);
            }
            if self.inner.take_ready()? {
                return Ok(true);
            }
            // What was ready no longer is: the end of a peer that is gone, which the control thread has removed
            // meanwhile, or an event that another thread has taken.
            left = timeout.saturating_sub(began.elapsed());
        }
    }

    fn wake(&self) {
        if self.inner.made_in.is_current() {
            raise(&self.inner.event);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A peer's end becomes ready when the peer is gone, and is removed by the control thread: a wait that has seen the
    /// former but not the latter must not end early.
    #[test]
    fn peers_that_go_do_not_end_a_wait_before_its_time() {
        const ROUNDS: usize = 2000;
        let channel = ShmCompletionChannel::new().unwrap();
        let timeout = Duration::from_millis(20);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let (name, theirs) = channel.admit().unwrap();
                    drop(theirs);
                    channel.downgrade().dismiss(name);
                }
            });
            for _ in 0..ROUNDS {
                let began = Instant::now();
                let early = !channel.wait(timeout).unwrap() && began.elapsed() < timeout;
                if early {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("it has ended after {:?}", began.elapsed());
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
