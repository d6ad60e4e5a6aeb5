//! The layers between a call and its handler: tower's, with the feature `tower`; and for clients a `tower::Service` for
//! each method.
//!
//! A layer sees a [`Call`] (method, metadata, deadline) and an [`Answer`] (metadata); the messages in them are hidden,
//! because one layer serves methods of all types.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::{MetadataMap, Request, Response, Status};

/// A call on its way to its handler.
pub struct Call {
    path: &'static str,
    request: Request<Box<dyn Any + Send>>,
}

/// The answer of a handler: a message, or a stream of messages.
pub type Answer = Response<Box<dyn Any + Send>>;

/// The future of an answer.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>;

/// The handler of one method, behind all layers.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Call) -> AnswerFuture + Send + Sync>);

/// Type-erased layers.
pub(crate) type Layers = Arc<dyn Fn(Handler) -> Handler + Send + Sync>;

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("path", &self.path)
            .field("metadata", self.metadata())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Call {
    /// The method: `/helloworld.Greeter/SayHello`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Metadata of the request.
    pub fn metadata(&self) -> &MetadataMap {
        self.request.metadata()
    }

    /// Metadata of the request, mutable.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        self.request.metadata_mut()
    }

    /// When the caller stops waiting, if it sent a deadline.
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.request.deadline()
    }

    /// The identity of the caller, as far as the handshake has established it.
    pub fn peer(&self) -> Option<&std::sync::Arc<dunlin::Peer>> {
        self.request.peer()
    }

    /// The server's number of the connection on which the call arrived.
    pub fn connection(&self) -> u64 {
        self.request.connection()
    }
}

/// The future of a handler's response.
pub(crate) type ResponseFuture<Y> =
    Pin<Box<dyn Future<Output = Result<Response<Y>, Status>> + Send>>;

/// Puts the handler of a method behind layers.
pub(crate) fn layered<X, Y, F>(
    layers: &Layers,
    path: &'static str,
    handler: impl Fn(Request<X>) -> F + Send + Sync + 'static,
) -> impl Fn(Request<X>) -> ResponseFuture<Y> + Send + Sync + 'static
where
    X: Send + 'static,
    Y: Send + 'static,
    F: Future<Output = Result<Response<Y>, Status>> + Send + 'static,
{
    let exchanged =
        || Status::internal("a layer replaced the message of a call by one of another type");
    let inner = move |call: Call| -> AnswerFuture {
        let mut message = None;
        let request = call.request.map(|any| message = any.downcast::<X>().ok());
        match message {
            None => Box::pin(std::future::ready(Err(exchanged()))),
            Some(message) => {
                let answer = handler(request.map(|()| *message));
                Box::pin(async move {
                    let answer = answer.await?;
                    Ok(answer.map(|message| Box::new(message) as Box<dyn Any + Send>))
                })
            }
        }
    };
    let outer = layers(Handler(Arc::new(inner)));
    move |request| {
        let request = request.map(|message| Box::new(message) as Box<dyn Any + Send>);
        let answer = outer.0(Call { path, request });
        Box::pin(async move {
            let answer = answer.await?;
            let mut message = None;
            let answer = answer.map(|any| message = any.downcast::<Y>().ok());
            let message = message.ok_or_else(exchanged)?;
            Ok(answer.map(|()| *message))
        })
    }
}

#[cfg(feature = "tower")]
mod tower_services {
    use std::error::Error;
    use std::future::poll_fn;
    use std::task::{Context, Poll};

    use tower_layer::Layer;
    use tower_service::Service;

    use super::*;
    use crate::channel::{Channel, Routes};
    use crate::Method;

    impl Service<Call> for Handler {
        type Response = Answer;
        type Error = Status;
        type Future = AnswerFuture;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, call: Call) -> AnswerFuture {
            self.0(call)
        }
    }

    /// Erases the type of a layer.
    pub(crate) fn erase<L>(layer: L) -> Layers
    where
        L: Layer<Handler> + Send + Sync + 'static,
        L::Service: Service<Call, Response = Answer> + Clone + Send + Sync + 'static,
        <L::Service as Service<Call>>::Error: Into<Box<dyn Error + Send + Sync>>,
        <L::Service as Service<Call>>::Future: Send,
    {
        Arc::new(move |handler| {
            let service = layer.layer(handler);
            Handler(Arc::new(move |call| {
                let mut service = service.clone();
                Box::pin(async move {
                    let ready = poll_fn(|context| service.poll_ready(context)).await;
                    ready.map_err(|error| Status::of_error(error.into()))?;
                    let answer = service.call(call).await;
                    answer.map_err(|error| Status::of_error(error.into()))
                })
            }))
        })
    }

    impl Status {
        /// Converts the error of a layer to a status: returns a status unchanged, and maps the errors of tower's own
        /// layers.
        pub fn of_error(error: Box<dyn Error + Send + Sync>) -> Self {
            let error = match error.downcast::<Self>() {
                Ok(status) => return *status,
                Err(other) => other,
            };
            if error.is::<tower::timeout::error::Elapsed>() {
                return Self::deadline_exceeded("the timeout set by a layer expired");
            }
            if error.is::<tower::load_shed::error::Overloaded>() {
                return Self::resource_exhausted("the call was rejected by a load-shedding layer");
            }
            Self::unknown(error.to_string())
        }
    }

    /// A unary method of a channel as a `tower::Service`, for layers at the client. Created by [`Channel::service`].
    pub struct MethodService<M> {
        channel: Channel,
        routes: Arc<Routes>,
        method: std::marker::PhantomData<fn() -> M>,
    }

    impl<M> Clone for MethodService<M> {
        fn clone(&self) -> Self {
            Self {
                channel: self.channel.clone(),
                routes: Arc::clone(&self.routes),
                method: std::marker::PhantomData,
            }
        }
    }

    impl<M: Method> fmt::Debug for MethodService<M> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("MethodService").field(&M::PATH).finish()
        }
    }

    impl Channel {
        /// Returns a unary method as a `tower::Service`: `channel.service::<GreeterSayHello>()`.
        pub fn service<M: Method>(&self) -> MethodService<M> {
            MethodService {
                channel: self.clone(),
                routes: Arc::new(Routes::new(M::INDEX + 1)),
                method: std::marker::PhantomData,
            }
        }
    }

    impl<M: Method> Service<Request<M::Request>> for MethodService<M> {
        type Response = Response<M::Response>;
        type Error = Status;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

        /// Always ready: a call for which no slot is free waits for one.
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<M::Request>) -> Self::Future {
            let (channel, routes) = (self.channel.clone(), Arc::clone(&self.routes));
            Box::pin(async move { channel.unary::<M>(&routes, request).await })
        }
    }
}

#[cfg(feature = "tower")]
pub(crate) use tower_services::erase;
#[cfg(feature = "tower")]
pub use tower_services::MethodService;
