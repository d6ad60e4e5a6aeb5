//! The methods that a server is to have, and how each becomes a handler.

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

/// A service that a server can have: what `service!` makes of a user's type.
pub trait Service {
    /// The name, as in gRPC: `helloworld.Greeter`.
    const NAME: &'static str;

    /// Adds its methods.
    fn register(self, registry: &mut Registry);
}

/// Where handlers run that are no futures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the polling thread, as [`ServerBuilder::handle`]: for some microseconds of work.
    Inline,
    /// On the worker pool, as [`ServerBuilder::handle_on_workers`]: for work that takes long or blocks.
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

/// The methods of a server, as services add them.
#[derive(Default)]
pub struct Registry {
    pub(super) methods: Vec<Registered>,
    layers: Option<Layers>,
}

/// What the handlers of a server have in common.
pub(super) struct Ground {
    pub(super) tasks: Tasks,
    /// Handlers that are futures take their first step on the polling thread.
    pub(super) poll_inline: bool,
    pub(super) observer: Observer,
}

/// Makes a method a handler of this number.
type AddCall = Box<dyn FnOnce(ServerBuilder, HandlerId, &Ground) -> ServerBuilder + Send>;

/// How a method becomes a part of a server.
pub(super) enum Add {
    Call(AddCall),
    /// With the check of its name.
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

    /// A unary method whose handler is no future: it reads a request that is lent to it, and fills a response, both in
    /// memory that is used again. What it hands on it may swap out of the request instead of copying it.
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

    /// A unary method whose handler is no future, reads the request where it stands, and writes the answer where it
    /// leaves from.
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

    /// Services that are added from now on are behind this, too.
    #[cfg(feature = "tower")]
    pub(super) fn add_layer(&mut self, outer: Layers) {
        self.layers = Some(match self.layers.take() {
            None => outer,
            Some(inner) => Arc::new(move |handler| outer(inner(handler))),
        });
    }

    /// A unary method whose handler is a future, which is dropped where it stands when nobody waits any more.
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

    /// A method with one request and a stream of responses.
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

    /// A method with a stream of requests and one response.
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

    /// A method with a stream each way.
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

/// Adds a handler that is a future.
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
