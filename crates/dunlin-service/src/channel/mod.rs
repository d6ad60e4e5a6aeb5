//! A channel: a connection to a server of typed services, from which the clients of services are created.

mod bytes;
mod call;
mod callee;
mod caller;
mod local;
mod pipeline;
mod stream;

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dunlin::{thread, CallError, Client, HandlerId};

pub use local::LocalChannel;
pub use pipeline::{Answer, Pipeline};

use callee::Callee;
use caller::Caller;

use crate::directory::{self, Directory};
use crate::method::Kind;
use crate::observer::Observer;
use crate::stream::frame::{MOST_CREDIT, WINDOW};
use crate::stream::session::Session;
use crate::tasks::{Task, Tasks, Threads};
use crate::wire::DIRECTORY;
use crate::Status;

/// Age from which the directory is requested again when a method is not in it.
const DIRECTORY_AGE: Duration = Duration::from_secs(1);

/// A connection to a server of typed services. Cheap to clone; any thread and any task may call through any clone.
#[derive(Clone)]
pub struct Channel(Arc<Shared>, Observer);

struct Shared {
    client: Client,
    known: RwLock<Known>,
    tasks: Mutex<Tasks>,
    /// The session of the channel's streams, created with the first of them.
    session: Mutex<Option<Arc<Session>>>,
    /// Window of each new stream, in bytes.
    window: AtomicUsize,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let session = self
            .session
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = session.take() {
            session.close();
        }
    }
}

struct Known {
    directory: Directory,
    since: Instant,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("client", &self.0.client)
            .finish_non_exhaustive()
    }
}

/// The numbers of a service's methods at the server, by their index in the service; zero if not yet looked up.
#[derive(Debug)]
pub struct Routes(Box<[AtomicU16]>);

impl Routes {
    /// Creates the routes of a service with this number of methods.
    pub fn new(methods: usize) -> Self {
        Self((0..methods).map(|_| AtomicU16::new(0)).collect())
    }

    #[inline]
    fn get(&self, index: usize) -> Option<HandlerId> {
        let number = self.0.get(index)?.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }

    fn set(&self, index: usize, number: HandlerId) {
        if let Some(place) = self.0.get(index) {
            place.store(number, Ordering::Relaxed);
        }
    }
}

impl Channel {
    /// Connects to a server with all defaults, such as `dunlin://db1:7400`. Does not block.
    ///
    /// # Errors
    /// `Unavailable` if no connection can be made; otherwise as for [`Channel::from_client`].
    pub async fn connect(address: &str) -> Result<Self, Status> {
        let client = Client::connect_async(address).await?;
        Self::from_client(client).await
    }

    /// Like [`Channel::connect`], but blocks.
    ///
    /// # Errors
    /// As for [`Channel::connect`].
    pub fn connect_blocking(address: &str) -> Result<Self, Status> {
        Self::from_client_blocking(Client::connect(address)?)
    }

    /// Creates a channel from a client with any preset, device, deadline or secret, which `Client::builder()` sets.
    ///
    /// # Errors
    /// `Unimplemented` if the server has no typed services, `FailedPrecondition` if the client and the server support
    /// no common version of them; otherwise the error of the call that requests the directory.
    pub async fn from_client(client: Client) -> Result<Self, Status> {
        let answer = client.call_async(DIRECTORY, &directory::question()).await;
        Self::with(client, answer)
    }

    /// Like [`Channel::from_client`], but blocks.
    ///
    /// # Errors
    /// As for [`Channel::from_client`].
    pub fn from_client_blocking(client: Client) -> Result<Self, Status> {
        let answer = client.call(DIRECTORY, &directory::question());
        Self::with(client, answer)
    }

    fn with(client: Client, answer: Result<dunlin::Reply, CallError>) -> Result<Self, Status> {
        let directory = read_directory(answer)?;
        let shared = Shared {
            client,
            known: RwLock::new(Known {
                directory,
                since: thread::now(),
            }),
            tasks: Mutex::default(),
            session: Mutex::default(),
            window: AtomicUsize::new(WINDOW),
        };
        Ok(Self(Arc::new(shared), Observer::default()))
    }

    /// Reports the calls of this channel to OpenTelemetry, and those of clients that are created from it from now on.
    #[cfg(feature = "opentelemetry")]
    #[must_use]
    pub fn telemetry(self, telemetry: &crate::telemetry::Telemetry) -> Self {
        Self(self.0, telemetry.into())
    }

    /// Sets the executor of the tasks that drive this channel's streams, for executors other than tokio's. By default
    /// it is the tokio runtime in which the channel was created (feature `tokio`), or else a dedicated thread. Streams
    /// that are already open are not affected.
    #[must_use]
    pub fn executor(self, spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        let tasks = &self.0.tasks;
        *tasks.lock().unwrap_or_else(PoisonError::into_inner) = Tasks::Custom(Arc::new(spawn));
        self
    }

    /// Sets how the dedicated thread is started: simulated hosts need simulated threads, because a thread of the
    /// operating system does not run in virtual time.
    #[doc(hidden)]
    #[must_use]
    pub fn threads(self, threads: Threads) -> Self {
        let tasks = &self.0.tasks;
        *tasks.lock().unwrap_or_else(PoisonError::into_inner) = Tasks::on(threads);
        self
    }

    /// Bytes that each stream opened from now on buffers for its reader, in addition to one message; anything beyond
    /// that waits at the server. 64 KiB by default; from 1 KiB to 16 MiB.
    #[must_use]
    pub fn stream_window(self, bytes: usize) -> Self {
        self.0
            .window
            .store(bytes.clamp(1 << 10, MOST_CREDIT), Ordering::Relaxed);
        self
    }

    /// The underlying client.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The version of typed services that this client and its server use.
    pub fn version(&self) -> u16 {
        self.known().directory.version
    }

    /// Whether the server has a method of this name (`/helloworld.Greeter/SayHello`), as far as is known.
    pub fn has_method(&self, path: &str) -> bool {
        self.known().directory.methods.contains_key(path)
    }

    /// Discards the known methods: the next call of a method that is not known requests the directory again.
    fn forget(&self) {
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        known.directory.methods.clear();
        known.since = known
            .since
            .checked_sub(DIRECTORY_AGE)
            .unwrap_or(known.since);
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The method's number, if the server has it; `Ok(None)` if the directory is old enough that the server may have it
    /// by now.
    fn look_up(&self, callee: &impl Callee) -> Result<Option<HandlerId>, Status> {
        let known = self.known();
        match known.directory.methods.get(callee.path()) {
            Some(entry) if entry.kind == callee.kind() => {
                callee.learn(Some(entry.number));
                Ok(Some(entry.number))
            }
            Some(entry) => Err(other_kind(callee, entry.kind)),
            None if is_young(known.since) => Err(no_such_method(callee.path(), &known.directory)),
            None => Ok(None),
        }
    }

    /// Replaces the directory by the one in the server's answer.
    fn renew(&self, answer: Result<dunlin::Reply, CallError>) -> Result<(), Status> {
        let directory = read_directory(answer)?;
        let since = thread::now();
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        *known = Known { directory, since };
        Ok(())
    }

    fn learn(
        &self,
        callee: &impl Callee,
        answer: Result<dunlin::Reply, CallError>,
    ) -> Result<HandlerId, Status> {
        self.renew(answer)?;
        let known = self.look_up(callee)?;
        known.ok_or_else(|| Status::unimplemented(callee.path()))
    }

    /// The method's number, requested from the server if it is not known. `again`: the known number is wrong; `left`:
    /// the remaining time of the call that needs it.
    async fn find(
        &self,
        callee: &impl Callee,
        again: bool,
        left: Option<Duration>,
    ) -> Result<HandlerId, Status> {
        if !again {
            if let Some(number) = self.look_up(callee)? {
                return Ok(number);
            }
        }
        let question = directory::question();
        let answer = self.client().send(left, DIRECTORY, &question).await;
        self.learn(callee, answer)
    }

    fn find_blocking(
        &self,
        callee: &impl Callee,
        again: bool,
        left: Option<Duration>,
    ) -> Result<HandlerId, Status> {
        if !again {
            if let Some(number) = self.look_up(callee)? {
                return Ok(number);
            }
        }
        let left = left.unwrap_or(self.client().deadline());
        let question = directory::question();
        let answer = self.client().call_within(left, DIRECTORY, &question);
        self.learn(callee, answer)
    }
}

fn is_young(since: Instant) -> bool {
    thread::now().saturating_duration_since(since) < DIRECTORY_AGE
}

fn read_directory(answer: Result<dunlin::Reply, CallError>) -> Result<Directory, Status> {
    match answer {
        Ok(answer) => Directory::decode(&answer),
        Err(CallError::UnknownHandler(_)) => {
            Err(Status::unimplemented("the server has no typed services"))
        }
        Err(error) => Err(error.into()),
    }
}

#[cold]
fn no_such_method(path: &str, directory: &Directory) -> Status {
    let service = path.rsplit_once('/').map_or(path, |(service, _)| service);
    let has = |path: &String| {
        path.rsplit_once('/')
            .is_some_and(|(other, _)| other == service)
    };
    Status::unimplemented(match directory.methods.keys().any(has) {
        true => format!("the server has no method {path}"),
        false => format!(
            "the server has no service {}",
            service.trim_start_matches('/')
        ),
    })
}

#[cold]
fn other_kind(callee: &impl Callee, kind: Kind) -> Status {
    Status::unimplemented(format!(
        "{} is {kind:?} at the server but {:?} here: one side has an older definition",
        callee.path(),
        callee.kind()
    ))
}
