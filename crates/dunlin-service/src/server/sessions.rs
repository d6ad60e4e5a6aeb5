//! The sessions of a server: frames that clients push are passed to streams, and what streams send goes out in the
//! answers to waiting pulls.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin::{thread, HandlerId, OwnedRequest, OwnedResponder, Presence, ServerBuilder};

use super::streams::{Begin, Begun};
use super::unary::late;
use crate::observer::Observer;
use crate::stream::frame::{self, verdict, Open, FIRST_CREDIT};
use crate::stream::session::{Pushed, Session};
use crate::tasks::{Tasks, Threads};
use crate::wire::{Header, PULL, PUSH};
use crate::Status;

/// Limits for streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of clients with streams.
    pub(super) sessions: usize,
    /// Maximum number of them on one connection.
    pub(super) of_connection: usize,
    /// Maximum number of streams of each client.
    pub(super) streams: usize,
    /// Bytes that each stream buffers for its handler.
    pub(super) window: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            of_connection: 16,
            streams: 16_384,
            window: frame::WINDOW,
        }
    }
}

/// Maximum silence of a client that has given up its pull, since it makes the next one immediately, or whose connection
/// has ended, since it may make another.
const GONE_AFTER: Duration = Duration::from_secs(3);
/// Maximum silence of a client that has been answered and does not make its next pull: its threads may be busy.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// Maximum time that a pull waits for something to send.
const LONGEST_PULL: Duration = Duration::from_secs(2);
/// Interval of the checks.
const LOOK: Duration = Duration::from_millis(500);
/// Minimum interval of the checks, however many deadlines there are: each check visits all sessions.
const GRAIN: Duration = Duration::from_millis(10);

/// A method with streams.
struct StreamMethod {
    path: &'static str,
    /// The check of its name.
    check: u32,
    begin: Begin,
}

/// The sessions of a server.
pub(super) struct Sessions {
    methods: HashMap<HandlerId, StreamMethod>,
    tasks: Tasks,
    threads: Threads,
    limits: Limits,
    pub(super) observer: Observer,
    known: Mutex<Known>,
}

struct Entry {
    session: Arc<Session>,
    /// The connection for whose limit it counts, and whether that still exists.
    connection: u64,
    maker: Presence,
    /// Whether the connection of its last push or pull still exists.
    presence: Presence,
}

#[derive(Default)]
struct Known {
    by_id: BTreeMap<u128, Entry>,
    /// Whether a thread checks for clients that are gone and deadlines that have passed.
    is_watched: bool,
    /// Set once that thread has made its first check.
    watch: Option<Watch>,
}

/// The checking thread, and the times of its checks.
struct Watch {
    waker: Waker,
    looked: Instant,
    next: Instant,
}

impl Known {
    /// Makes room for one more session of this kind, of which there may be `most`, by ending one without streams. Its
    /// client has most likely abandoned it, and the server would keep it for a while.
    ///
    /// # Errors
    /// If all of them have streams.
    fn make_room(
        &mut self,
        most: usize,
        is_of_kind: impl Fn(&Entry) -> bool,
    ) -> Result<Option<Arc<Session>>, u8> {
        let of_kind = || self.by_id.iter().filter(|(_, entry)| is_of_kind(entry));
        if of_kind().count() < most {
            return Ok(None);
        }
        let idle = of_kind().filter_map(|(id, entry)| Some((entry.session.idle_for()?, *id)));
        let (_, longest) = idle.max().ok_or(verdict::TOO_MANY)?;
        Ok(self.by_id.remove(&longest).map(|entry| entry.session))
    }

    /// Schedules the next check for a stream that ends at this time, or as soon as possible after it.
    fn look_at(&mut self, deadline: Instant) {
        if let Some(watch) = &mut self.watch {
            let next = deadline.max(watch.looked + GRAIN);
            if next < watch.next {
                watch.next = next;
                watch.waker.wake_by_ref();
            }
        }
    }
}

impl Sessions {
    pub(super) fn new(tasks: Tasks, threads: Threads, limits: Limits) -> Self {
        Self {
            methods: HashMap::new(),
            tasks,
            threads,
            limits,
            observer: Observer::default(),
            known: Mutex::default(),
        }
    }

    /// Registers a streaming method under this number.
    pub(super) fn add(&mut self, number: HandlerId, path: &'static str, check: u32, begin: Begin) {
        let method = StreamMethod { path, check, begin };
        self.methods.insert(number, method);
    }

    /// Adds the push and pull handlers to a server.
    pub(super) fn on(self, server: ServerBuilder) -> ServerBuilder {
        let sessions = Arc::new(self);
        let pulled = Arc::clone(&sessions);
        server
            // Each stream is a call of its method, and its right is checked when the stream is opened.
            .checks_rights_itself(PUSH)
            .checks_rights_itself(PULL)
            .handle(PUSH, move |request, reply| {
                reply.write(&sessions.push(request))
            })
            .handle_deferred(PULL, move |request, responder| {
                pulled.pull(&request, responder)
            })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, request: &dunlin::Request<'_>) -> Vec<u8> {
        let Some((id, number, frames)) = frame::read_prefix(request.payload()) else {
            return violation("a push without a number");
        };
        let session = match self.find(id, number == 1, request) {
            Ok(session) => session,
            Err(verdict) => return vec![verdict],
        };
        let mut begun = Vec::new();
        let mut first_deadline: Option<Instant> = None;
        let pushed = session.push(number, frames, |mux, opened| {
            let stream = opened.stream;
            let accepted = Open::decode(&opened.body).and_then(|open| {
                let header = Header::decode(open.header)?;
                Some((open, header))
            });
            let Some((open, header)) = accepted else {
                return mux.refuse(stream, &Status::invalid_argument("malformed stream header"));
            };
            let method = self
                .methods
                .get(&open.method)
                .filter(|method| method.check == open.check);
            let Some(method) = method else {
                let words = "the server has no method with this number: fetch its directory again";
                return mux.refuse(stream, &Status::unimplemented(words));
            };
            if !request.may_call(open.method) {
                let words = format!("{} has no right to call {}", request.peer(), method.path);
                return mux.refuse(stream, &Status::permission_denied(words));
            }
            if mux.len() >= self.limits.streams {
                let words = format!(
                    "limit reached: a client may have {} streams (max_streams)",
                    self.limits.streams
                );
                return mux.refuse(stream, &Status::resource_exhausted(words));
            }
            if mux.accept(stream, open.credit, FIRST_CREDIT, self.limits.window) {
                let deadline = header.deadline();
                if let Some(deadline) = deadline {
                    mux.set_deadline(stream, deadline);
                    first_deadline = Some(first_deadline.unwrap_or(deadline).min(deadline));
                }
                // Limits the list for a push that opens streams and gives them up again and again.
                if begun.len() >= 2 * self.limits.streams {
                    begun.retain(|(_, begun): &(Begin, Begun)| mux.contains(begun.stream));
                }
                let session = Arc::clone(&session);
                begun.push((
                    Arc::clone(&method.begin),
                    Begun {
                        session,
                        stream,
                        metadata: header.metadata,
                        deadline,
                        connection: request.connection(),
                        peer: Arc::clone(request.peer()),
                        observer: self.observer.clone(),
                    },
                ));
            }
        });
        if let Some(deadline) = first_deadline {
            self.lock().look_at(deadline);
        }
        for (begin, begun) in begun {
            self.tasks.spawn(begin(begun));
        }
        match pushed {
            Pushed::Taken => vec![verdict::TAKEN],
            Pushed::Unknown => vec![verdict::UNKNOWN_SESSION],
            Pushed::Violation(why) => {
                self.lock().by_id.remove(&id);
                session.end(&Status::cancelled(
                    "the client violated the protocol of streams",
                ));
                violation(why)
            }
        }
    }

    fn pull(&self, request: &OwnedRequest, responder: OwnedResponder) {
        let Some((id, has, _)) = frame::read_prefix(request.payload()) else {
            return responder.reply(violation("a pull without a number"));
        };
        let mut known = self.lock();
        let session = known.by_id.get_mut(&id).map(|entry| {
            entry.presence = request.presence();
            Arc::clone(&entry.session)
        });
        drop(known);
        match session {
            None => responder.reply(vec![verdict::UNKNOWN_SESSION]),
            Some(session) => {
                if let Some(why) = session.pull(has, responder) {
                    // Its next push or pull is told that there is no such session.
                    self.lock().by_id.remove(&id);
                    session.end(&Status::cancelled(why));
                }
            }
        }
    }

    /// Returns the session with this number; a first push creates it.
    fn find(
        self: &Arc<Self>,
        id: u128,
        is_first: bool,
        request: &dunlin::Request<'_>,
    ) -> Result<Arc<Session>, u8> {
        let (connection, presence) = (request.connection(), request.presence());
        let mut known = self.lock();
        let is_its_own = |entry: &Entry| entry.connection == connection;
        if let Some(entry) = known.by_id.get(&id) {
            // A session belongs to the connection that created it until that has ended.
            let moves = !is_its_own(entry) && !entry.maker.is_there();
            let idle = match moves {
                true => known.make_room(self.limits.of_connection, is_its_own)?,
                false => None,
            };
            let Some(entry) = known.by_id.get_mut(&id) else {
                return Err(verdict::UNKNOWN_SESSION);
            };
            if moves {
                (entry.connection, entry.maker) = (connection, presence.clone());
            }
            entry.presence = presence;
            let session = Arc::clone(&entry.session);
            drop(known);
            if let Some(idle) = idle {
                idle.end(&Status::cancelled("closed to make room for other sessions"));
            }
            return Ok(session);
        }
        if !is_first {
            return Err(verdict::UNKNOWN_SESSION);
        }
        let its_own = known.make_room(self.limits.of_connection, is_its_own)?;
        let others = known.make_room(self.limits.sessions, |_| true)?;
        let session = Arc::new(Session::server());
        let entry = Entry {
            session: Arc::clone(&session),
            connection,
            maker: presence.clone(),
            presence,
        };
        known.by_id.insert(id, entry);
        if !known.is_watched {
            let watched = Arc::downgrade(self);
            let watch = Box::new(move || watch(&watched));
            known.is_watched = self.threads.start("dunlin-sessions", watch).is_ok();
        }
        drop(known);
        for session in its_own.into_iter().chain(others) {
            session.end(&Status::cancelled("closed to make room for other sessions"));
        }
        Ok(session)
    }

    /// Runs the check if it is due; returns the time until the next one, or `None` if there is nothing left to check.
    fn watch(&self, waker: &Waker) -> Option<Duration> {
        let next = self.lock().watch.as_ref().map(|watch| watch.next);
        let left = next.map(|next| next.saturating_duration_since(thread::now()));
        match left.filter(|left| !left.is_zero()) {
            Some(left) => Some(left),
            None => self.look(waker),
        }
    }

    /// Ends streams whose deadline has passed, and sessions whose clients are gone.
    fn look(&self, waker: &Waker) -> Option<Duration> {
        let mut gone = Vec::new();
        let looked = thread::now();
        let mut overdue = self.sessions();
        overdue.retain(|session| {
            session
                .first_deadline()
                .is_some_and(|first| first <= looked)
        });
        for session in overdue {
            session.end_overdue(&late());
        }
        let mut known = self.lock();
        let mut next = looked + LOOK;
        known.by_id.retain(|_, entry| {
            let Entry {
                session, presence, ..
            } = entry;
            let is_there = session.look(LONGEST_PULL).is_none_or(|(silent, given_up)| {
                let is_gone = given_up || !presence.is_there();
                silent < if is_gone { GONE_AFTER } else { SILENT_FOR }
            });
            match is_there {
                true => next = session.first_deadline().unwrap_or(next).min(next),
                false => gone.push(Arc::clone(session)),
            }
            is_there
        });
        known.is_watched = !known.by_id.is_empty();
        next = next.max(looked + GRAIN);
        known.watch = known.is_watched.then(|| Watch {
            waker: waker.clone(),
            looked,
            next,
        });
        let is_watched = known.is_watched;
        drop(known);
        for session in gone {
            session.end(&Status::cancelled("the client has disconnected"));
        }
        is_watched.then(|| next.saturating_duration_since(thread::now()))
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        let known = self.lock();
        let sessions = known.by_id.values().map(|entry| &entry.session);
        sessions.map(Arc::clone).collect()
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let sessions = std::mem::take(&mut self.lock().by_id);
        for Entry { session, .. } in sessions.into_values() {
            session.end(&Status::cancelled("the server has stopped"));
        }
    }
}

fn watch(sessions: &Weak<Sessions>) {
    let waker = thread::waker();
    while let Some(left) = sessions
        .upgrade()
        .and_then(|sessions| sessions.watch(&waker))
    {
        thread::park(left);
    }
}

fn violation(why: &str) -> Vec<u8> {
    let mut answer = vec![verdict::VIOLATION];
    answer.extend_from_slice(why.as_bytes());
    answer
}
