//! The list of the clients that a server may call.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Wake, Waker};

use dunlin_bootstrap::Peer;
use dunlin_verbs::{thread, VerbsError};

use super::way_back::WayBack;
use crate::call::callbacks::{Ask, Opened};
use crate::client::{Client, ClientBuilder};
use crate::devices;
use crate::fabric::Fabric;
use crate::preset::Preset;
use crate::server::caller::Caller;
use crate::server::{HandlerError, OwnedRequest, OwnedResponder};

/// The reason reported for the choice of device for connections to such clients.
const WHY: &str = "the device that the client connected over";

/// Returns the server's device of a given name, for connections to its clients.
pub(crate) type Devices = dyn Fn(&str) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync;

/// The clients that a server may call, while they are connected ([`crate::ServerBuilder::callable_clients`]). Clones
/// are the same list; each server needs its own.
///
/// ```
/// use dunlin_rpc::{CallableClients, Client, Server};
/// const SUBSCRIBE: u16 = 1;
/// const PRICE: u16 = 2;
///
/// let subscribers = CallableClients::new(1000);
/// let server = Server::bind("dunlin://127.0.0.1:0")?
///     .callable_clients(&subscribers)
///     .handle(SUBSCRIBE, |request, _| {
///         // Calls from other threads, as long as it is there: `subscribers.list()` has it, too.
///         println!("{:?} wants prices", request.caller());
///         Ok(())
///     })
///     .serve()?;
///
/// let client = Client::connect(&server.address().to_string())?;
/// let prices = Server::unbound().handle(PRICE, |request, reply| reply.write(request.payload())).serve_to(&client)?;
/// client.call(SUBSCRIBE, b"")?;
///
/// for subscriber in subscribers.list() {
///     assert_eq!(&*subscriber.client().call(PRICE, b"42")?, b"42");
/// }
/// # drop(prices);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CallableClients(Arc<Registry>);

type Watch = dyn Fn(CallableChange) + Send + Sync;

struct Registry {
    most: usize,
    /// Makes the clients by which they are called.
    builder: ClientBuilder,
    watch: Mutex<Option<Arc<Watch>>>,
    /// The server that has the list, and its devices.
    ground: OnceLock<(u64, Box<Devices>)>,
    closed: AtomicBool,
    next: AtomicU64,
    /// By a number that only the client and its server know.
    clients: Mutex<BTreeMap<u64, CallableClient>>,
}

/// A client that a server may call while it is connected. Clones are the same client.
#[derive(Clone)]
pub struct CallableClient(Arc<Inner>);

struct Inner {
    number: u64,
    peer: Arc<Peer>,
    way_back: Arc<WayBack>,
    client: Client,
    told: AtomicU8,
}

/// What was reported about a client. It may go while its coming is being reported: either both are reported, in order,
/// or neither.
mod told {
    pub(super) const NOTHING: u8 = 0;
    /// Its coming is being reported; the same thread reports what follows.
    pub(super) const COMING: u8 = 1;
    pub(super) const CAME: u8 = 2;
    pub(super) const GONE: u8 = 3;
}

/// A client has come or gone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallableChange {
    /// It may be called from now on.
    Came(CallableClient),
    /// Calls to it end with an error from now on.
    Gone(CallableClient),
}

impl CallableChange {
    fn client(&self) -> &CallableClient {
        match self {
            Self::Came(client) | Self::Gone(client) => client,
        }
    }
}

impl fmt::Debug for CallableClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallableClient")
            .field("number", &self.0.number)
            .field("peer", &self.0.peer)
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

impl CallableClient {
    /// The client object for calling it, in every way that clients call servers: blocking, as futures, in pipelines. It
    /// also attaches regions that the client grants, and clients of typed services can be made from it. Connections are
    /// made as needed.
    ///
    /// A handler that runs on a polling thread of the server cannot block on calls to its caller: it would wait for
    /// what the same thread must deliver ([`crate::CallError::OwnServer`]). Handlers on workers and async ones can, and
    /// futures can be made anywhere.
    ///
    /// After the client has gone, calls end with [`crate::CallError::Connect`] and [`crate::ConnectError::CallerGone`],
    /// and those that were outstanding with [`crate::CallError::ConnectionLost`].
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// Its identity, as far as its handshake established it.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.0.peer
    }

    /// Its number in the list of its server, starting at 1. A client that reconnects gets a new number.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether it has gone.
    pub fn is_gone(&self) -> bool {
        self.0.way_back.is_gone()
    }

    /// Advances what was reported about it from `from` to `to`. Returns `false` if the state was not `from`.
    fn is_told(&self, from: u8, to: u8) -> bool {
        let told = &self.0.told;
        told.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl fmt::Debug for CallableClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallableClients")
            .field("most", &self.0.most)
            .field("clients", &self.list())
            .finish_non_exhaustive()
    }
}

impl CallableClients {
    /// An empty list for at most `most` clients. Further ones are refused, with an error that names the limit.
    pub fn new(most: usize) -> Self {
        Self::called_by(most, Client::builder())
    }

    /// As [`CallableClients::new`], with a builder for the deadline, preset and limits of calls to the clients. Its
    /// settings of devices, secrets and certificates are ignored: connections use the device of the client's own
    /// connection, whose handshake has already established its identity.
    pub fn called_by(most: usize, builder: ClientBuilder) -> Self {
        Self(Arc::new(Registry {
            most,
            builder,
            watch: Mutex::default(),
            ground: OnceLock::new(),
            closed: AtomicBool::new(false),
            next: AtomicU64::new(1),
            clients: Mutex::default(),
        }))
    }

    /// Calls `watch` for each client that comes and, later, when it has gone. It runs on threads of the server and must
    /// return soon. If it panics, the server goes on and calls it for the next change.
    pub fn on_change(&self, watch: impl Fn(CallableChange) + Send + Sync + 'static) {
        *thread::lock(&self.0.watch) = Some(Arc::new(watch));
    }

    /// The clients that are connected, in the order in which they came.
    pub fn list(&self) -> Vec<CallableClient> {
        let mut all: Vec<_> = self.0.clients().values().cloned().collect();
        all.sort_by_key(CallableClient::number);
        all
    }

    /// Number of clients.
    pub fn len(&self) -> usize {
        self.0.clients().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it the list of this server, which has these devices. Returns `false` if it is another server's.
    pub(crate) fn belong(&self, server: u64, devices: Box<Devices>) -> bool {
        self.0.ground.set((server, devices)).is_ok()
    }

    /// Whether it already belongs to a server.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.ground.get().is_some()
    }

    /// Returns the client that a request came from, over any of its connections, by [`crate::Request::peer`] or the
    /// peer of a typed service's request. `None` if it has not registered, or has gone.
    pub fn find(&self, peer: &Peer) -> Option<CallableClient> {
        let client = self.0.clients().get(&peer.client()?).cloned();
        client.filter(|client| client.0.peer.is_like(peer))
    }

    /// The handler of [`crate::CALLBACKS`].
    pub(crate) fn take(&self, request: &OwnedRequest, responder: OwnedResponder) {
        if let Err((responder, words)) = self.heard(request, responder) {
            responder.fail(HandlerError::new(0, words));
        }
    }

    fn heard(
        &self,
        request: &OwnedRequest,
        responder: OwnedResponder,
    ) -> Result<(), (OwnedResponder, String)> {
        match Ask::decode(request.payload()) {
            Err(words) => Err((responder, words)),
            Ok(Ask::Stay { .. }) => match self.admit(request.connected()) {
                Ok(client) => {
                    self.stay(client, responder);
                    Ok(())
                }
                Err(words) => Err((responder, words)),
            },
            Ok(Ask::Next { opened }) => {
                let Some(client) = self.find(request.peer()) else {
                    return Err((responder, "the client is not registered".to_owned()));
                };
                if let Some(Opened { serial, reply }) = opened {
                    if let Err(words) = client.0.way_back.opened(serial, reply) {
                        return Err((responder, words));
                    }
                }
                client.0.way_back.next(responder);
                Ok(())
            }
            Ok(Ask::Leave) => {
                if let Some(client) = self.find(request.peer()) {
                    self.0.leave(&client.0.peer, &client.0.way_back);
                }
                responder.reply(Vec::new());
                Ok(())
            }
        }
    }

    /// Registers a client that wants to be called.
    fn admit(&self, caller: &Caller) -> Result<CallableClient, String> {
        let number = caller
            .peer()
            .client()
            .ok_or("the client has no client number")?;
        let client = self.make(caller)?;
        let mut clients = self.0.clients();
        if self.0.closed.load(Ordering::Acquire) {
            return Err("the server is shutting down".to_owned());
        }
        let former = clients.get(&number);
        if former.is_some_and(|former| !former.0.peer.is_like(caller.peer())) {
            return Err("the client number is in use by another client".to_owned());
        }
        if former.is_none() && clients.len() >= self.0.most {
            let most = self.0.most;
            return Err(format!(
                "it already calls {most} clients, its limit (CallableClients::new)"
            ));
        }
        let former = clients.insert(number, client.clone());
        drop(clients);
        // The client has come again before its end was noticed.
        if let Some(former) = former {
            self.0.has_gone(former);
        }
        Ok(client)
    }

    fn make(&self, caller: &Caller) -> Result<CallableClient, String> {
        let (server, _) = self.0.ground.get().ok_or("the server has not started")?;
        let arrival = caller.arrival();
        let (registry, device) = (Arc::downgrade(&self.0), arrival.device.clone());
        let is_flor = devices::is_flor(&device);
        let builder = &self.0.builder;
        let way_back = Arc::new(WayBack::new(builder.connecting(), arrival.endpoint));
        let builder = builder.clone().preset(builder.preset_on(is_flor));
        let given = move |preset: Preset| match registry.upgrade() {
            Some(registry) if preset.is_over_flor() == is_flor => registry.device(&device),
            Some(_) => Err(other_device(&device, preset)),
            None => Err(VerbsError::Peer("its server has stopped".to_owned())),
        };
        let opener = Arc::clone(&way_back);
        let client = builder.given(opener, given, (*server, WHY));
        Ok(CallableClient(Arc::new(Inner {
            number: self.0.next.fetch_add(1, Ordering::Relaxed),
            peer: Arc::clone(caller.peer()),
            way_back,
            client: client.map_err(|error| error.to_string())?,
            told: AtomicU8::new(told::NOTHING),
        })))
    }

    fn stay(&self, client: CallableClient, responder: OwnedResponder) {
        let peer = Arc::clone(&client.0.peer);
        let waker = Waker::from(Arc::new(Leaving {
            registry: Arc::downgrade(&self.0),
            peer: Arc::clone(&peer),
            way_back: Arc::downgrade(&client.0.way_back),
        }));
        let way_back = Arc::clone(&client.0.way_back);
        self.0.has_come(client);
        if !way_back.stay(responder, &waker) {
            self.0.leave(&peer, &way_back);
        }
    }

    /// Called when the server ends: it calls clients no longer.
    pub(crate) fn close(&self) {
        let mut clients = self.0.clients();
        self.0.closed.store(true, Ordering::Release);
        let all = std::mem::take(&mut *clients);
        drop(clients);
        // Sorted, since the keys are random numbers.
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(CallableClient::number);
        all.into_iter().for_each(|client| self.0.has_gone(client));
    }
}

fn other_device(device: &str, preset: Preset) -> VerbsError {
    VerbsError::Invalid {
        argument: "preset",
        why: format!(
            "{preset} cannot be used on {device}, the device that the client connected over"
        ),
    }
}

impl Registry {
    fn clients(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, CallableClient>> {
        thread::lock(&self.clients)
    }

    fn device(&self, name: &str) -> Result<Arc<dyn Fabric>, VerbsError> {
        match self.ground.get() {
            Some((_, devices)) => devices(name),
            None => Err(VerbsError::Peer("its server has not started".to_owned())),
        }
    }

    /// Removes a client that has gone, unless it has come again since.
    fn leave(&self, peer: &Peer, way_back: &Arc<WayBack>) {
        let Some(number) = peer.client() else { return };
        let mut clients = self.clients();
        let is_it = clients
            .get(&number)
            .is_some_and(|known| Arc::ptr_eq(&known.0.way_back, way_back));
        let gone = is_it.then(|| clients.remove(&number)).flatten();
        drop(clients);
        if let Some(gone) = gone {
            self.has_gone(gone);
        }
    }

    fn has_come(&self, client: CallableClient) {
        if !client.is_told(told::NOTHING, told::COMING) {
            // The client went before its coming was reported.
            return;
        }
        self.tell(CallableChange::Came(client.clone()));
        if !client.is_told(told::COMING, told::CAME) {
            self.tell(CallableChange::Gone(client));
        }
    }

    fn has_gone(&self, client: CallableClient) {
        client.0.way_back.close();
        if client.0.told.swap(told::GONE, Ordering::AcqRel) == told::CAME {
            self.tell(CallableChange::Gone(client));
        }
    }

    fn tell(&self, change: CallableChange) {
        let watch = thread::lock(&self.watch).clone();
        let Some(watch) = watch else { return };
        let number = change.client().number();
        // The list is consistent whatever the function does, and its thread also serves other clients.
        if catch_unwind(AssertUnwindSafe(|| watch(change))).is_err() {
            tracing::error!(client = number, "CallableClients::on_change panicked");
        }
    }
}

/// Woken when a client may have gone.
struct Leaving {
    registry: Weak<Registry>,
    peer: Arc<Peer>,
    way_back: Weak<WayBack>,
}

impl Wake for Leaving {
    fn wake(self: Arc<Self>) {
        let (Some(registry), Some(way_back)) = (self.registry.upgrade(), self.way_back.upgrade())
        else {
            return;
        };
        if way_back.has_ended(&Waker::from(Arc::clone(&self))) {
            registry.leave(&self.peer, &way_back);
        }
    }
}
