//! The methods of a server, and how each becomes a handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use dunlin::{HandlerError, HandlerId, Responder, ServerBuilder};

use futures_core::Stream;

use super::streams::{self, Begin};
use super::unary;
use super::view::{self, Reply, RequestView, Sent};
use crate::layers::{layered, Layers};
use crate::method::{Kind, Method};
use crate::observer::Observer;
use crate::tasks::Tasks;
use crate::{Request, Response, Status, Streaming};

/// A service that can be added to a server; `service!` generates one for a user's type.
pub trait Service {
    /// The name, as in gRPC: `helloworld.Greeter`.
    const NAME: &'static str;

    /// Adds its methods.
    fn register(self, registry: &mut Registry);
}

/// Where handlers that are not futures run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the polling thread, as with [`ServerBuilder::handle`]: for some microseconds of work.
    Inline,
    /// On the worker pool, as with [`ServerBuilder::handle_on_workers`]: for work that takes long or blocks.
    Workers,
}

impl Place {
    fn put(
        self,
        server: ServerBuilder,
        number: HandlerId,
        handler: impl Fn(&dunlin::Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError>
            + Send
            + Sync
            + 'static,
    ) -> ServerBuilder {
        match self {
            Self::Inline => server.handle(number, handler),
            Self::Workers => server.handle_on_workers(number, handler),
        }
    }
}

/// The methods of a server, to which services add theirs.
#[derive(Default)]
pub struct Registry {
    pub(super) methods: Vec<Registered>,
    layers: Option<Layers>,
}

/// What the handlers of a server share.
pub(super) struct Ground {
    pub(super) tasks: Tasks,
    /// Handlers that are futures are first polled on the polling thread.
    pub(super) poll_inline: bool,
    pub(super) observer: Observer,
}

/// Adds the handler of a method to a server, under this number.
type AddCall = Box<dyn FnOnce(ServerBuilder, HandlerId, &Ground) -> ServerBuilder + Send>;

/// How a method is added to a server.
pub(super) enum Add {
    Call(AddCall),
    /// A streaming method, with the check of its name.
    Stream(u32, Begin),
}

pub(super) struct Registered {
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    pub(super) add: Add,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.methods.iter().map(|method| method.path))
            .finish()
    }
}

impl Registry {
    fn add<M: Method>(&mut self, add: AddCall) {
        self.insert::<M>(Add::Call(add));
    }

    fn add_stream<M: Method>(&mut self, begin: Begin) {
        self.insert::<M>(Add::Stream(M::CHECK, begin));
    }

    fn insert<M: Method>(&mut self, add: Add) {
        self.methods.push(Registered {
            path: M::PATH,
            kind: M::KIND,
            add,
        });
    }

    /// Adds a unary method whose handler is not a future: it borrows a request and fills a response, both in memory
    /// that is reused. Data that it passes on can be swapped out of the request instead of being copied.
    pub fn sync<M: Method>(
        &mut self,
        place: Place,
        handler: impl Fn(&mut Request<M::Request>, &mut Response<M::Response>) -> Result<(), Status>
            + Send
            + Sync
            + 'static,
    ) {
        self.add::<M>(Box::new(move |server, number, ground| {
            let observer = ground.observer.clone();
            place.put(server, number, move |request, reply| {
                unary::serve::<M>(request, reply, &observer, &handler)
            })
        }));
    }

    /// Adds a unary method whose handler is not a future, reads the request in place, and writes the answer directly
    /// into the memory it is sent from.
    pub fn view<M: Method>(
        &mut self,
        place: Place,
        handler: impl Fn(RequestView<'_, M>, Reply<'_, M>) -> Result<Sent, Status>
            + Send
            + Sync
            + 'static,
    ) {
        self.add::<M>(Box::new(move |server, number, ground| {
            let observer = ground.observer.clone();
            place.put(server, number, move |request, reply| {
                view::serve::<M>(request, reply, &observer, &handler)
            })
        }));
    }

    /// Puts services that are added from now on behind this layer, too.
    #[cfg(feature = "tower")]
    pub(super) fn add_layer(&mut self, outer: Layers) {
        self.layers = Some(match self.layers.take() {
            None => outer,
            Some(inner) => Arc::new(move |handler| outer(inner(handler))),
        });
    }

    /// Adds a unary method whose handler is a future, which is dropped at its current await point when nobody waits for
    /// it any more.
    pub fn unary<M: Method, F>(
        &mut self,
        handler: impl Fn(Request<M::Request>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Response<M::Response>, Status>> + Send + 'static,
    {
        match &self.layers {
            None => self.add::<M>(call::<M, F>(handler)),
            Some(layers) => {
                let handler = layered(layers, M::PATH, handler);
                self.add::<M>(call::<M, _>(handler));
            }
        }
    }

    /// Adds a method with one request and a stream of responses.
    pub fn server_streaming<M: Method, F, S>(
        &mut self,
        handler: impl Fn(Request<M::Request>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
        S: Stream<Item = Result<M::Response, Status>> + Send + 'static,
    {
        let begin = match &self.layers {
            None => streams::server_streaming::<M, F, S>(handler),
            Some(layers) => streams::server_streaming::<M, _, S>(layered(layers, M::PATH, handler)),
        };
        self.add_stream::<M>(begin);
    }

    /// Adds a method with a stream of requests and one response.
    pub fn client_streaming<M: Method, F>(
        &mut self,
        handler: impl Fn(Request<Streaming<M::Request>>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Response<M::Response>, Status>> + Send + 'static,
    {
        let begin = match &self.layers {
            None => streams::client_streaming::<M, F>(handler),
            Some(layers) => streams::client_streaming::<M, _>(layered(layers, M::PATH, handler)),
        };
        self.add_stream::<M>(begin);
    }

    /// Adds a method with a stream in each direction.
    pub fn bidirectional<M: Method, F, S>(
        &mut self,
        handler: impl Fn(Request<Streaming<M::Request>>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
        S: Stream<Item = Result<M::Response, Status>> + Send + 'static,
    {
        let begin = match &self.layers {
            None => streams::bidirectional::<M, F, S>(handler),
            Some(layers) => streams::bidirectional::<M, _, S>(layered(layers, M::PATH, handler)),
        };
        self.add_stream::<M>(begin);
    }
}

/// Returns the registration of a handler that is a future.
fn call<M: Method, F>(handler: impl Fn(Request<M::Request>) -> F + Send + Sync + 'static) -> AddCall
where
    F: Future<Output = Result<Response<M::Response>, Status>> + Send + 'static,
{
    Box::new(move |server, number, ground| {
        let handler = Arc::new(handler);
        let (tasks, observer) = (ground.tasks.clone(), ground.observer.clone());
        let run = match ground.poll_inline {
            true => Tasks::begin_here,
            false => Tasks::spawn,
        };
        server.handle_deferred(number, move |request, responder| {
            let (handler, observer) = (Arc::clone(&handler), observer.clone());
            let answer = unary::answer::<M, F>(request, responder, observer, handler);
            run(&tasks, Box::pin(answer));
        })
    })
}
