//! Typed services over Dunlin, as people know them from gRPC and tonic: a trait for the server, a client, [`Request`],
//! [`Response`], [`Status`].
//!
//! Services come from `.proto` files by `dunlin-build`, or from plain Rust types by [`service!`]. They run over every
//! preset and device of `dunlin`; [`Channel::from_client`] and [`Server::on`] have all of its settings.
#![forbid(unsafe_code)]

// So that what the derive writes has the same names here.
#[cfg(feature = "prost")]
extern crate self as dunlin_service;

mod channel;
mod code;
pub mod codec;
mod context;
mod directory;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "health")]
pub mod health;
pub mod layers;
mod macros;
mod metadata;
pub mod method;
mod observer;
#[cfg(feature = "prost")]
pub mod protobuf;
#[cfg(feature = "reflection")]
pub mod reflection;
mod request;
pub mod server;
mod status;
mod stream;
mod tasks;
#[cfg(feature = "opentelemetry")]
pub mod telemetry;
#[cfg(feature = "tonic")]
pub mod tonic;
mod varint;
mod wire;

pub use async_trait::async_trait;
pub use channel::{Answer, Channel, LocalChannel, Pipeline, Routes};
pub use code::Code;
pub use metadata::{MetadataError, MetadataMap, TraceContext, MAX_METADATA_BYTES, TRACEPARENT};
pub use method::{Kind, Method};
pub use request::{IntoRequest, IntoStreamingRequest, Request, Response};
pub use server::{Reply, RequestView, Sent, Server};
pub use status::Status;
pub use stream::{BlockingStreaming, Streaming};
pub use tasks::Task;

/// What the code of [`service!`] names.
#[doc(hidden)]
pub mod private {
    pub use crate::tasks::{block_on, Threads};
    pub use futures_core::Stream;
    pub use pastey::paste;
    #[cfg(feature = "prost")]
    pub use prost;
}

/// Includes the code that `dunlin-build` has made of a package.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}
