//! Dunlin's RPC: clients, servers, and the presets that compose them.
//!
//! The modules follow the path of a call: `dunlin_bootstrap` finds the peer and a device that both sides have, a
//! channel carries messages over one queue pair, a client lane matches responses to calls, a server connection
//! dispatches requests to handlers. Engines are state machines without threads or clocks; the threads are in the
//! drivers of client and server. A [`Preset`] determines how threads share queue pairs and which clients may send.
#![deny(unsafe_code)]
// `--cfg loom` is set by the model checker; the workspace's lints do not know it.
#![allow(unexpected_cfgs)]

mod admission;
#[doc(hidden)]
pub mod bugs;
mod call;
mod channel;
mod client;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod devices;
mod doze;
mod effort;
mod error;
mod fabric;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(any(test, feature = "conformance"))]
mod hostile;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
mod identity;
mod lanes;
mod memory;
mod preset;
mod random;
mod server;
mod sharing;
mod versioned;

pub use admission::grouping::pace::Pace;
pub use admission::{LaneUse, SenderReport};
pub use call::callbacks::CALLBACKS;
pub use call::captured::{CallEnd, CapturedCall, CapturedCalls, CAPTURE};
pub use channel::upcoming::Upcoming;
pub use client::{
    AttachFuture, Batch, CallFuture, Capture, Client, ClientBuilder, ClientReport, ConnectFuture,
    ConnectionInfo, LocalCall, LocalClient, LocalDriver, LocalPermit, LocalReply, Peers, Permit,
    Pipeline, Ready, RemoteRegion, Reply, RequestBuffer, ThreadFuture, Transfer, TransferBuffer,
    TransferError,
};
pub use config::{
    ChannelConfig, DatagramBatches, Datagrams, PacketLoss, UnknownDatagrams, WaitMode,
};
pub use devices::{capability, chosen, visit_device, DeviceVisitor};
#[doc(hidden)]
pub use doze::simulated_sleeps;
pub use dunlin_bootstrap::Peer;
pub use dunlin_verbs::Memory;
pub use error::{CallError, ConnectError, Execution, ServeError};
pub use fabric::{available, capabilities_towards, DeviceReport};
pub use preset::Preset;
pub use server::{
    CallableChange, CallableClient, CallableClients, CallbackServer, DeviceFigures, Grant,
    Grouping, HandlerError, HandlerTask, LocalAcceptor, LocalServer, NextNotification,
    Notification, Notifications, OwnedRequest, OwnedResponder, PollingThread, Presence, Region,
    RegisteredRegion, Request, Responder, Rights, RunningServer, Server, ServerBuilder,
    ServerFigures, ServerObserver, ServerStatistics, ThreadProgress, UnknownWho, Who, FIGURES,
};

pub use sharing::figures::{HandleFigures, LaneReport};

/// Identifies a handler of a server; each request names one.
pub type HandlerId = u16;
