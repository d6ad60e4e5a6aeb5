//! Dunlin: RPC over RDMA, with or without the hardware.
//!
//! A server binds an address and gives each handler an id:
//!
//! ```
//! use dunlin::{Client, Server};
//! const ECHO: u16 = 1;
//!
//! let server = Server::bind("dunlin://127.0.0.1:0")?
//!     .handle(ECHO, |request, reply| reply.write(request.payload()))
//!     .serve()?;
//!
//! let node = Client::connect(&server.address().to_string())?;
//! assert_eq!(&*node.call(ECHO, b"hello")?, b"hello");
//! assert_eq!(node.info().device, "shm");
//!
//! let answers = node.batch().call(ECHO, b"one").call(ECHO, b"two").send()?;
//! assert_eq!(&**answers[1].as_ref().unwrap(), b"two");
//!
//! assert!(server.shutdown());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Clients read and write memory that the server grants by themselves, without calls:
//!
//! ```
//! use dunlin::{Client, Region, Server};
//!
//! let table = Region::new("table", 4096).writable().atomic();
//! let server = Server::bind("dunlin://127.0.0.1:0")?.region(&table).serve()?;
//!
//! let node = Client::connect(&server.address().to_string())?;
//! let remote = node.attach("table")?;
//! assert_eq!(remote.fetch_add(8, 1)?, 0);
//! remote.write(64, b"a row")?;
//! assert_eq!(&*remote.read(64, 5)?, b"a row");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two processes on one host use shared memory automatically. [`Client::call`] blocks, [`Client::call_async`] returns a
//! future for any executor, [`Client::batch`] and [`Client::pipeline`] keep many calls outstanding. Every call has a
//! deadline, every limit has a name ([`ChannelConfig`]) and an error ([`CallError`]).
//!
//! [`Stream`] is a byte stream by address, for programs that otherwise use TCP; [`ring`] has the ring of RB² itself.
#![forbid(unsafe_code)]

mod completions;
mod meeting;
pub mod ring;
pub mod stream;

pub use completions::{Completions, Ended};
pub use meeting::{Listener, MeetError};
pub use stream::{Stream, StreamBuilder};

pub use dunlin_bootstrap::{
    Address, AddressError, BootstrapError, CertificateFault, Refusal, Secret, SecretError,
};
#[cfg(feature = "tls")]
pub use dunlin_bootstrap::{ClientTls, ServerTls, TlsError, TlsIdentity, TlsRoots};
pub use dunlin_rpc::{
    available, AttachFuture, Batch, CallEnd, CallError, CallFuture, CallableChange, CallableClient,
    CallableClients, CallbackServer, Capture, CapturedCall, CapturedCalls, ChannelConfig, Client,
    ClientBuilder, ClientReport, ConnectError, ConnectFuture, ConnectionInfo, DatagramBatches,
    Datagrams, DeviceFigures, DeviceReport, Execution, Grant, Grouping, HandleFigures,
    HandlerError, HandlerId, HandlerTask, LaneReport, LaneUse, LocalAcceptor, LocalCall,
    LocalClient, LocalDriver, LocalPermit, LocalReply, LocalServer, Memory, NextNotification,
    Notification, Notifications, OwnedRequest, OwnedResponder, Pace, PacketLoss, Peer, Peers,
    Permit, Pipeline, PollingThread, Presence, Preset, Ready, Region, RegisteredRegion,
    RemoteRegion, Reply, Request, RequestBuffer, Responder, Rights, RunningServer, SenderReport,
    ServeError, Server, ServerBuilder, ServerFigures, ServerObserver, ServerStatistics,
    ThreadProgress, Transfer, TransferBuffer, TransferError, UnknownDatagrams, UnknownWho,
    Upcoming, WaitMode, Who, CALLBACKS, CAPTURE, FIGURES,
};

/// For searching for bugs in virtual time.
#[cfg(feature = "bugs")]
#[doc(hidden)]
pub use dunlin_rpc::bugs;
#[doc(hidden)]
pub use dunlin_rpc::simulated_sleeps;
/// Whether the current process is the one that created an object, for bindings, which have objects of their own.
#[doc(hidden)]
pub use dunlin_verbs::process;
/// Clock, sleep and wake-up of a thread, for code that is built on this crate and also runs on simulated hosts.
#[doc(hidden)]
pub use dunlin_verbs::thread;

/// Transactions: [`txn::Database`] for applications, [`txn::server::StoreServer`] for the machines of one.
#[cfg(feature = "txn")]
pub use dunlin_txn as txn;

#[cfg(feature = "prometheus")]
pub mod prometheus;

#[cfg(feature = "sim")]
pub mod sim;

/// The examples of the README, compiled and run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
