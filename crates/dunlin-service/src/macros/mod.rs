//! `service!`: the code of a service, given its methods. `dunlin-build` generates invocations of it; services without
//! .proto files are written with it directly.
//!
//! Its helpers generate one method each, by the method's kind. They are separate macros because a macro inside a trait
//! or an implementation can only expand to items.

mod methods;

/// Generates the traits, the server and the clients of a service.
///
/// ```
/// use dunlin_service::codec::Postcard;
/// use dunlin_service::{Request, Response, Server, Status};
///
/// #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
/// pub struct Sum {
///     pub numbers: Vec<u32>,
/// }
///
/// dunlin_service::service! {
///     /// Adds up.
///     pub service Adder = "example.Adder" with Postcard {
///         /// The sum of some numbers.
///         rpc add as Add(Sum) -> u64;
///     }
/// }
///
/// struct Plain;
///
/// #[dunlin_service::async_trait]
/// impl adder_server::Adder for Plain {
///     async fn add(&self, request: Request<Sum>) -> Result<Response<u64>, Status> {
///         Ok(Response::new(request.get_ref().numbers.iter().map(|&n| u64::from(n)).sum()))
///     }
/// }
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let service = adder_server::AdderServer::new(Plain);
///     let server = Server::builder().add_service(service).start("dunlin://127.0.0.1:0")?;
///     let adder = adder_client::AdderBlockingClient::connect(server.address().to_string())?;
///     assert_eq!(adder.add(Sum { numbers: vec![1, 2, 3] })?.into_inner(), 6);
///     Ok(())
/// }
/// ```
///
/// Must be invoked in a module, not in a function.
///
/// For a service `Greeter` with `rpc say_hello as SayHello(HelloRequest) -> HelloReply;` it generates
///
/// - the module `greeter_server`: the trait `Greeter`, with an async method for each RPC, and `GreeterServer` for a
///   type that implements it; the trait `SyncGreeter` with the unary methods as functions that fill a reply in place,
///   and `SyncGreeterServer`; the trait `ViewGreeter` with the unary methods as functions that read the request in
///   place and write the reply directly into the memory it is sent from, and `ViewGreeterServer`;
/// - the module `greeter_client`: `GreeterClient`, async, `GreeterBlockingClient`, and `GreeterLocalClient` for tasks
///   that stay on one thread, with the unary methods;
/// - `GreeterSayHello`, the type that represents the method, for [`crate::Pipeline`].
///
/// `stream` before a type makes it a stream: `rpc chat as Chat(stream Note) -> stream Note;`. Messages must implement
/// `Default`. The type after `with` is the codec of all messages ([`crate::codec`]).
#[macro_export]
macro_rules! service {
    ($(#[$meta:meta])* $vis:vis service $service:ident = $name:literal with $codec:ty { $($methods:tt)* }) => {
        $crate::__service_parse! { { [$(#[$meta])*] [$vis] $service $name [$codec] } [] $($methods)* }
    };
}

/// Determines the kind of each method.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_parse {
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* rpc $method:ident as $marker:ident
     (stream $request:ty) -> stream $response:ty; $($rest:tt)*) => {
        $crate::__service_parse! { $head [$($done)*
            { Bidirectional [$(#[$meta])*] $method $marker [$request] [$response] }] $($rest)* }
    };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* rpc $method:ident as $marker:ident
     (stream $request:ty) -> $response:ty; $($rest:tt)*) => {
        $crate::__service_parse! { $head [$($done)*
            { ClientStreaming [$(#[$meta])*] $method $marker [$request] [$response] }] $($rest)* }
    };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* rpc $method:ident as $marker:ident
     ($request:ty) -> stream $response:ty; $($rest:tt)*) => {
        $crate::__service_parse! { $head [$($done)*
            { ServerStreaming [$(#[$meta])*] $method $marker [$request] [$response] }] $($rest)* }
    };
    ($head:tt [$($done:tt)*] $(#[$meta:meta])* rpc $method:ident as $marker:ident
     ($request:ty) -> $response:ty; $($rest:tt)*) => {
        $crate::__service_parse! { $head [$($done)*
            { Unary [$(#[$meta])*] $method $marker [$request] [$response] }] $($rest)* }
    };
    ($head:tt [$($done:tt)*]) => {
        $crate::__service_make! { $head $($done)* }
    };
}

/// Generates the server of a trait whose methods are not futures and borrow their messages.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_lent {
    ($server:ident $add:ident $trait:ident $name:literal $({ $kind:ident $method:ident $marker:tt })*) => {
        #[doc = concat!("The service `", $name, "`, of a type that implements [`", stringify!($trait), "`]. It has the ",
            "unary methods; callers of others get `Unimplemented`.")]
        #[derive(Debug)]
        pub struct $server<T>(Arc<T>, $crate::server::Place);

        impl<T: $trait> $server<T> {
            /// On the polling thread: for some microseconds of work.
            pub fn inline(service: T) -> Self {
                Self(Arc::new(service), $crate::server::Place::Inline)
            }

            /// On the worker pool: for work that takes long or blocks.
            pub fn on_workers(service: T) -> Self {
                Self(Arc::new(service), $crate::server::Place::Workers)
            }
        }

        impl<T: $trait> $crate::server::Service for $server<T> {
            const NAME: &'static str = $name;

            fn register(self, registry: &mut $crate::server::Registry) {
                $($crate::__service_register_lent! {
                    $kind registry.$add (self.0, self.1) $trait $method $marker
                })*
                // A service may have no unary method.
                let _ = (registry, self.0, self.1);
            }
        }
    };
}

/// Generates all code of a service.
#[doc(hidden)]
#[macro_export]
macro_rules! __service_make {
    ({ [$($meta:tt)*] [$vis:vis] $service:ident $name:literal [$codec:ty] }
     $({ $kind:ident [$($doc:tt)*] $method:ident $marker:ident [$request:ty] [$response:ty] })*) => {
        $crate::private::paste! {
            #[allow(dead_code, non_camel_case_types)]
            enum [<__ $service Index>] { $($marker,)* __Methods }

            $(
                #[doc = concat!("The method `/", $name, "/", stringify!($marker), "`.")]
                #[allow(non_camel_case_types)]
                #[derive(Clone, Copy, Debug)]
                $vis struct [<$service $marker>];

                impl $crate::Method for [<$service $marker>] {
                    type Request = $request;
                    type Response = $response;
                    type Codec = $codec;
                    const KIND: $crate::Kind = $crate::Kind::$kind;
                    const PATH: &'static str = concat!("/", $name, "/", stringify!($marker));
                    const INDEX: usize = [<__ $service Index>]::$marker as usize;

                    #[inline]
                    fn scratch() -> &'static ::std::thread::LocalKey<$crate::method::Scratch<Self>> {
                        ::std::thread_local! {
                            static SCRATCH: $crate::method::Scratch<[<$service $marker>]> =
                                const { ::std::cell::Cell::new(None) };
                        }
                        &SCRATCH
                    }
                }
            )*

            #[doc = concat!("Servers of `", $name, "`.")]
            $vis mod [<$service:snake _server>] {
                use ::std::sync::Arc;

                $($meta)*
                pub trait $service: Send + Sync + 'static {
                    $($crate::__service_trait_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]] [<$marker Stream>]
                            concat!("What `", stringify!($method), "` answers with.")
                    })*
                }

                #[doc = concat!("[`", stringify!($service), "`] as functions that fill a reply in place. Both messages ",
                    "stand in memory that is used again.")]
                #[allow(unused)]
                pub trait [<Sync $service>]: Send + Sync + 'static {
                    $($crate::__service_sync_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]]
                    })*
                }

                #[doc = concat!("The service `", $name, "`, of a type that implements [`", stringify!($service), "`].")]
                #[derive(Debug)]
                pub struct [<$service Server>]<T>(Arc<T>);

                impl<T> Clone for [<$service Server>]<T> {
                    fn clone(&self) -> Self {
                        Self(Arc::clone(&self.0))
                    }
                }

                impl<T: $service> [<$service Server>]<T> {
                    /// Creates the service.
                    pub fn new(service: T) -> Self {
                        Self(Arc::new(service))
                    }

                    /// Creates the service from a shared implementation.
                    pub fn from_arc(service: Arc<T>) -> Self {
                        Self(service)
                    }
                }

                impl<T: $service> $crate::server::Service for [<$service Server>]<T> {
                    const NAME: &'static str = $name;

                    fn register(self, registry: &mut $crate::server::Registry) {
                        $($crate::__service_register! {
                            $kind registry self.0, $service $method [super::[<$service $marker>]]
                        })*
                        let _ = registry;
                    }
                }

                #[doc = concat!("[`", stringify!($service), "`] as functions that read a request where it stands and ",
                    "write the reply where it leaves from: no message in between has memory of its own.")]
                #[allow(unused)]
                pub trait [<View $service>]: Send + Sync + 'static {
                    $($crate::__service_view_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]]
                    })*
                }

                $crate::__service_lent! { [<Sync $service Server>] sync [<Sync $service>] $name
                    $({ $kind $method [super::[<$service $marker>]] })* }
                $crate::__service_lent! { [<View $service Server>] view [<View $service>] $name
                    $({ $kind $method [super::[<$service $marker>]] })* }
            }

            #[doc = concat!("Clients of `", $name, "`.")]
            $vis mod [<$service:snake _client>] {
                use ::std::sync::Arc;

                /// A client shares the method numbers with its clones.
                fn routes() -> Arc<$crate::Routes> {
                    Arc::new($crate::Routes::new(super::[<__ $service Index>]::__Methods as usize))
                }

                $($meta)*
                #[derive(Clone, Debug)]
                pub struct [<$service Client>] {
                    channel: $crate::Channel,
                    routes: Arc<$crate::Routes>,
                }

                impl [<$service Client>] {
                    /// Creates a client on a channel, which may be shared with other clients.
                    pub fn new(channel: $crate::Channel) -> Self {
                        Self { channel, routes: routes() }
                    }

                    /// Connects with all defaults.
                    ///
                    /// # Errors
                    /// As for [`Channel::connect`]($crate::Channel::connect).
                    pub async fn connect(address: impl AsRef<str>) -> Result<Self, $crate::Status> {
                        Ok(Self::new($crate::Channel::connect(address.as_ref()).await?))
                    }

                    /// The blocking client on the same channel.
                    pub fn blocking(&self) -> [<$service BlockingClient>] {
                        [<$service BlockingClient>] {
                            channel: self.channel.clone(),
                            routes: Arc::clone(&self.routes),
                        }
                    }

                    $($crate::__service_client_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]]
                    })*
                }

                #[doc = concat!("[`", stringify!($service), "Client`] for threads that wait.")]
                #[derive(Clone, Debug)]
                pub struct [<$service BlockingClient>] {
                    channel: $crate::Channel,
                    routes: Arc<$crate::Routes>,
                }

                impl [<$service BlockingClient>] {
                    /// Creates a client on a channel, which may be shared with other clients.
                    pub fn new(channel: $crate::Channel) -> Self {
                        Self { channel, routes: routes() }
                    }

                    /// Connects with all defaults.
                    ///
                    /// # Errors
                    /// As for [`Channel::connect`]($crate::Channel::connect).
                    pub fn connect(address: impl AsRef<str>) -> Result<Self, $crate::Status> {
                        Ok(Self::new($crate::Channel::connect_blocking(address.as_ref())?))
                    }

                    $($crate::__service_blocking_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]]
                    })*
                }

                #[doc = concat!("[`", stringify!($service), "Client`] for tasks that stay on one thread; unary \
                    methods only.")]
                #[derive(Clone, Debug)]
                pub struct [<$service LocalClient>] {
                    #[allow(dead_code)]
                    channel: $crate::LocalChannel,
                    #[allow(dead_code)]
                    routes: Arc<$crate::Routes>,
                }

                impl [<$service LocalClient>] {
                    /// Creates a client on a thread's channel ([`Channel::local`]($crate::Channel::local)), which may
                    /// be shared with other clients.
                    pub fn new(channel: $crate::LocalChannel) -> Self {
                        Self { channel, routes: routes() }
                    }

                    $($crate::__service_local_method! {
                        $kind [$($doc)*] $method [super::[<$service $marker>]]
                    })*
                }
            }
        }
    };
}
