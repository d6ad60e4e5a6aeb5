//! One side of a session with a lock: the operations on its streams, and the wake-ups that follow them.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin::{thread, OwnedResponder};

use super::frame::{self, verdict, PULL_PREFIX};
use super::mux::{Mux, Opened, Side, Violation};
use crate::tasks::Task;
use crate::Status;

/// One side of a session, behind a lock.
pub(crate) struct Session(Mutex<Inner>);

struct Inner {
    mux: Mux,
    link: Link,
}

/// The state of each side in addition to the streams.
enum Link {
    Client(ClientLink),
    Server(ServerLink),
}

/// The state shared with the client's driver.
#[derive(Default)]
pub(crate) struct ClientLink {
    driver: Option<Waker>,
    /// A push is outstanding: frames wait for the next one.
    pushing: bool,
    /// New tasks that send the messages of their streams.
    pumps: Vec<Task>,
    /// The channel was dropped: the session ends with its last stream.
    closing: bool,
    /// No more streams may be opened.
    over: bool,
}

/// The server's side of the two calls.
struct ServerLink {
    /// The pull that waits, and the time of its arrival.
    parked: Option<OwnedResponder>,
    since: Instant,
    /// Whether the client has given up the last pull.
    given_up: bool,
    /// The last answer to a pull, until the client acknowledges it.
    unacknowledged: Option<Vec<u8>>,
    answered: u32,
    /// Number of the last push that was taken.
    taken: u32,
    heard: Instant,
    /// Whether the server has forgotten the session.
    over: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// What the driver has to do.
pub(crate) struct Turn {
    pub(crate) pumps: Vec<Task>,
    pub(crate) closing: bool,
    pub(crate) first_deadline: Option<Instant>,
}

impl Session {
    pub(crate) fn client() -> Self {
        Self::new(Side::Client, Link::Client(ClientLink::default()))
    }

    pub(crate) fn server() -> Self {
        let link = ServerLink {
            parked: None,
            since: thread::now(),
            given_up: false,
            unacknowledged: None,
            answered: 0,
            taken: 0,
            heard: thread::now(),
            over: false,
        };
        Self::new(Side::Server, Link::Server(link))
    }

    fn new(side: Side, link: Link) -> Self {
        Self(Mutex::new(Inner {
            mux: Mux::new(side),
            link,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the streams, and then performs the wake-ups.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Mux) -> T) -> T {
        let mut inner = self.lock();
        let done = act(&mut inner.mux);
        give_back(inner);
        done
    }

    fn with_client<T>(&self, act: impl FnOnce(&mut Mux, &mut ClientLink) -> T) -> Option<T> {
        let mut inner = self.lock();
        let Inner { mux, link } = &mut *inner;
        let done = match link {
            Link::Client(link) => Some(act(mux, link)),
            Link::Server(_) => None,
        };
        give_back(inner);
        done
    }

    /// Opens a client's stream; `None` if the session is over.
    pub(crate) fn open(
        &self,
        body: &[u8],
        (first, window): (usize, usize),
        until: Option<Instant>,
        pump: impl FnOnce(u64) -> Option<Task>,
    ) -> Option<u64> {
        let opened = self.with_client(|mux, link| {
            if link.over {
                return None;
            }
            let id = mux.open(body, first, window);
            if let Some(until) = until {
                mux.set_deadline(id, until);
            }
            link.pumps.extend(pump(id));
            Some(id)
        });
        opened.flatten()
    }

    /// Called by the driver: returns new tasks, and ends streams whose deadline has passed.
    pub(crate) fn turn(&self, waker: &Waker) -> Option<Turn> {
        let mut inner = self.lock();
        let Inner { mux, link } = &mut *inner;
        let turn = match link {
            Link::Client(link) => Some(link.turn(mux, waker)),
            Link::Server(_) => None,
        };
        // The driver itself is awake.
        let woken = std::mem::take(&mut mux.woken);
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
        turn
    }
    /// Called by the driver: takes the next chunk to push, if there is one.
    pub(crate) fn take_chunk(&self) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let chunk = inner.mux.take_chunk();
        if let Link::Client(link) = &mut inner.link {
            link.pushing = chunk.is_some();
        }
        let woken = std::mem::take(&mut inner.mux.woken);
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
        chunk
    }

    /// Called by the driver: ends the session if no stream is left. Returns `false` if there is one.
    pub(crate) fn end_if_idle(&self) -> bool {
        let ended = self.with_client(|mux, link| {
            link.over |= mux.len() == 0 && link.pumps.is_empty() && !mux.has_chunk();
            link.over
        });
        ended.unwrap_or(true)
    }

    /// The channel was dropped.
    pub(crate) fn close(&self) {
        let driver = self.with_client(|_, link| {
            link.closing = true;
            link.driver.take()
        });
        if let Some(driver) = driver.flatten() {
            driver.wake();
        }
    }

    /// Returns what a client sends to give up all its streams, as one chunk per push; nothing else is sent after it.
    pub(crate) fn give_up_all(&self) -> Vec<Vec<u8>> {
        let mut inner = self.lock();
        inner.mux.give_up_all();
        std::iter::from_fn(|| inner.mux.take_chunk()).collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        match &self.lock().link {
            Link::Client(link) => link.over,
            Link::Server(_) => false,
        }
    }

    /// Ends all streams.
    pub(crate) fn end(&self, status: &Status) {
        let mut inner = self.lock();
        let Inner { mux, link } = &mut *inner;
        mux.end_all(status);
        let (parked, pumps) = match link {
            Link::Client(link) => {
                link.over = true;
                (None, std::mem::take(&mut link.pumps))
            }
            Link::Server(link) => {
                link.over = true;
                (link.parked.take(), Vec::new())
            }
        };
        give_back(inner);
        if let Some(parked) = parked {
            parked.reply(vec![verdict::UNKNOWN_SESSION]);
        }
        // They hold the user's values.
        drop(pumps);
    }
}

/// The server's decision about a push.
pub(crate) enum Pushed {
    /// It was taken, now or earlier.
    Taken,
    /// The session has ended.
    Unknown,
    Violation(&'static str),
}

/// The server's side.
impl Session {
    /// Takes a push. Pushes arrive one after the other; a repeated one was taken before, but its answer was lost or its
    /// client did not wait for it.
    pub(crate) fn push(
        &self,
        number: u32,
        frames: &[u8],
        opened: impl FnMut(&mut Mux, Opened),
    ) -> Pushed {
        let mut inner = self.lock();
        let Inner { mux, link } = &mut *inner;
        let Link::Server(link) = link else {
            return Pushed::Violation("not a server");
        };
        link.heard = thread::now();
        let ahead = number.wrapping_sub(link.taken);
        let pushed = if link.over {
            Pushed::Unknown
        } else if ahead == 0 || ahead > u32::MAX / 2 {
            Pushed::Taken
        } else if ahead == 1 {
            link.taken = number;
            match mux.receive(frames, opened) {
                Ok(()) => Pushed::Taken,
                Err(Violation(why)) => Pushed::Violation(why),
            }
        } else {
            Pushed::Violation("a push is missing")
        };
        give_back(inner);
        pushed
    }

    /// Answers a pull, or keeps it until there is something to send. `has`: the number of the last answer that the
    /// client has received.
    pub(crate) fn pull(&self, has: u32, responder: OwnedResponder) -> Option<&'static str> {
        let mut inner = self.lock();
        let Link::Server(link) = &mut inner.link else {
            return Some("not a server");
        };
        if link.over {
            drop(inner);
            responder.reply(vec![verdict::UNKNOWN_SESSION]);
            return None;
        }
        link.heard = thread::now();
        if has == link.answered {
            link.unacknowledged = None;
            link.since = link.heard;
            link.given_up = false;
            let before = link.parked.replace(responder);
            give_back(inner);
            drop(before);
            return None;
        }
        // The answer was lost: it is sent again.
        let again = link.unacknowledged.clone();
        match again.filter(|_| has.wrapping_add(1) == link.answered) {
            Some(answer) => {
                drop(inner);
                responder.reply(answer);
                None
            }
            None => {
                drop(inner);
                Some("a pull for an answer that does not exist")
            }
        }
    }

    /// The earliest deadline of the client's streams.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.lock().mux.first_deadline()
    }

    /// Ends streams whose deadline has passed: their clients would have given them up by now, if they could.
    pub(crate) fn end_overdue(&self, status: &Status) {
        self.with(|mux| {
            while let Some(id) = overdue(mux) {
                mux.finish(id, status);
            }
        });
    }

    /// How long the client has been silent, if it has no streams, has received their ends, and has no pull waiting.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let inner = self.lock();
        let Link::Server(link) = &inner.link else {
            return None;
        };
        // For a new session the first push is on its way.
        let is_idle = inner.mux.len() == 0 && link.parked.is_none() && link.taken > 0;
        let is_idle = is_idle && !inner.mux.has_ends() && !link.has_unheard_end();
        is_idle.then(|| thread::now().saturating_duration_since(link.heard))
    }

    /// Periodic check: a pull that has waited for long is answered without frames, which shows the client that the
    /// server is there, and keeps a shutdown from waiting for it; one that was given up is released. Returns how long
    /// the client has been silent, and whether it gave up its pull; `None` while a pull is waiting.
    pub(crate) fn look(&self, longest: Duration) -> Option<(Duration, bool)> {
        let mut inner = self.lock();
        let Inner { mux, link } = &mut *inner;
        let Link::Server(link) = link else {
            return None;
        };
        let mut answer = None;
        let given_up = link.take_given_up(mux);
        if link.parked.is_some() && thread::now().saturating_duration_since(link.since) >= longest {
            answer = link.answer(mux.nothing());
        }
        let silent = link.parked.is_none().then(|| {
            (
                thread::now().saturating_duration_since(link.heard),
                link.given_up,
            )
        });
        drop(inner);
        for (responder, bytes) in given_up.into_iter().chain(answer) {
            responder.reply(bytes);
        }
        silent
    }
}

/// Returns a stream whose deadline has passed. Without deadlines the clock is not read.
fn overdue(mux: &mut Mux) -> Option<u64> {
    mux.first_deadline()?;
    mux.take_overdue(thread::now())
}

/// Releases the lock and then performs the wake-ups: wakers and replies run code of others.
fn give_back(mut inner: MutexGuard<'_, Inner>) {
    let Inner { mux, link } = &mut *inner;
    let (mut answer, mut given_up) = (None, None);
    match link {
        Link::Client(link) => {
            if !link.pushing && mux.has_chunk() || !link.pumps.is_empty() {
                mux.woken.extend(link.driver.take());
            }
        }
        Link::Server(link) => {
            // Waiting frames are kept for the next pull.
            given_up = link.take_given_up(mux);
            if let Some(parked) = &link.parked {
                let most = parked.max_reply_bytes();
                let chunk = mux.take_chunk().map(|chunk| match chunk.len() <= most {
                    true => chunk,
                    false => mux.divide(&chunk, most),
                });
                answer = chunk.and_then(|chunk| link.answer(chunk));
            }
        }
    }
    let woken = std::mem::take(&mut mux.woken);
    drop(inner);
    woken.into_iter().for_each(Waker::wake);
    for (responder, bytes) in given_up.into_iter().chain(answer) {
        responder.reply(bytes);
    }
}

impl ClientLink {
    fn turn(&mut self, mux: &mut Mux, waker: &Waker) -> Turn {
        match &mut self.driver {
            Some(known) => known.clone_from(waker),
            None => self.driver = Some(waker.clone()),
        }
        while let Some(id) = overdue(mux) {
            mux.end_locally(
                id,
                Status::deadline_exceeded("the deadline of the stream expired"),
            );
        }
        Turn {
            pumps: std::mem::take(&mut self.pumps),
            closing: self.closing,
            first_deadline: mux.first_deadline(),
        }
    }
}

impl ServerLink {
    /// Takes the waiting pull if nobody waits for its answer any more; returns it with the answer to give. A client
    /// that has given up does not see the answer. One that is late, and notices only later that its time is over, sees
    /// an answer without news: it must not be given the next numbered answer, which it may not have taken.
    fn take_given_up(&mut self, mux: &Mux) -> Option<(OwnedResponder, Vec<u8>)> {
        let given_up = self.parked.take_if(|parked| parked.is_cancelled())?;
        self.given_up = true;
        Some((given_up, self.numbered(mux.nothing())))
    }

    /// Whether the client may not yet have received the end of a stream, and what precedes it.
    fn has_unheard_end(&self) -> bool {
        let answer = self.unacknowledged.as_deref().unwrap_or_default();
        answer.get(PULL_PREFIX..).is_some_and(frame::has_end)
    }

    /// An answer without a new number: it repeats the last one.
    fn numbered(&self, mut chunk: Vec<u8>) -> Vec<u8> {
        chunk[0] = verdict::TAKEN;
        chunk[1..PULL_PREFIX].copy_from_slice(&self.answered.to_le_bytes());
        chunk
    }

    fn answer(&mut self, chunk: Vec<u8>) -> Option<(OwnedResponder, Vec<u8>)> {
        let responder = self.parked.take()?;
        self.answered = self.answered.wrapping_add(1);
        let chunk = self.numbered(chunk);
        self.unacknowledged = Some(chunk.clone());
        Some((responder, chunk))
    }
}
