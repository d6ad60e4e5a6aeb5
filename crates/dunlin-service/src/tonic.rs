//! tonic itself, unmodified, over byte streams of Dunlin: gRPC with its own wire format, for existing services and
//! clients.
//!
//! ```ignore
//! // The server: one line instead of `.serve(address)`.
//! tonic::transport::Server::builder()
//!     .add_service(GreeterServer::new(greeter))
//!     .serve_with_incoming(dunlin_service::tonic::incoming("dunlin://0.0.0.0:7400")?)
//!     .await?;
//! // The client: one line instead of `GreeterClient::connect(address)`.
//! let client = GreeterClient::new(dunlin_service::tonic::connect("dunlin://db1:7400").await?);
//! ```

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::{Address, Listener, MeetError, Stream, StreamBuilder};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};

/// A byte stream of Dunlin as a connection for tonic.
#[derive(Debug)]
pub struct Connection(Stream);

/// The information about a connection that tonic gives to handlers ([`Connected`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectInfo {
    /// The device of the connection.
    pub device: String,
}

impl Connected for Connection {
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        ConnectInfo {
            device: self.0.device().to_owned(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.0), context, target)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.0), context, source)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.0), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.0), context)
    }
}

/// Incoming connections, for tonic's `serve_with_incoming`.
pub struct Incoming(Listener<Stream>);

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(&self.0.address()).finish()
    }
}

impl Incoming {
    /// Uses a listener with any settings ([`Stream::builder`]).
    pub fn new(listener: Listener<Stream>) -> Self {
        Self(listener)
    }

    /// The address on which it listens, with the port chosen by the system.
    pub fn address(&self) -> Address {
        self.0.address()
    }
}

impl futures_core::Stream for Incoming {
    type Item = Result<Connection, MeetError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|met| match met {
            // No more clients will connect.
            Err(MeetError::Ended(_)) => None,
            met => Some(met.map(Connection)),
        })
    }
}

/// Listens at an address, such as `dunlin://0.0.0.0:7400`; with port 0 the system chooses one.
///
/// # Errors
/// If the port is not available, or no device can be used.
pub fn incoming(address: &str) -> Result<Incoming, MeetError> {
    Stream::bind(address).map(Incoming)
}

/// Creates a channel of tonic's to a server. It connects immediately, and reconnects when the connection is lost.
///
/// # Errors
/// If there is no such server.
pub async fn connect(address: &str) -> Result<Channel, tonic::transport::Error> {
    connect_with(Stream::builder(), address).await
}

/// Like [`connect`], with any settings.
///
/// # Errors
/// As for [`connect`].
pub async fn connect_with(
    settings: StreamBuilder,
    address: &str,
) -> Result<Channel, tonic::transport::Error> {
    let address = address.to_owned();
    let connector = tower::service_fn(move |_: http::Uri| meet(settings.clone(), address.clone()));
    // tonic requires a host name for each request; it is not resolved.
    Endpoint::from_static("http://dunlin")
        .connect_with_connector(connector)
        .await
}

/// Connects on a thread that may block.
async fn meet(settings: StreamBuilder, address: String) -> io::Result<TokioIo<Connection>> {
    let met = tokio::task::spawn_blocking(move || settings.connect(&address)).await;
    let met = met.map_err(io::Error::other)?;
    Ok(TokioIo::new(Connection(met.map_err(io::Error::other)?)))
}
