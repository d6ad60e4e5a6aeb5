//! Typed services from outside, in one binary: each file needs most of the crate, and none a process for itself.
#![allow(missing_docs, unreachable_pub)]

mod callbacks;
mod common;
mod deadlines;
mod flowing;
mod grpc;
mod health;
mod hostile;
mod local;
mod postcard;
#[path = "../../../dunlin-shm/tests/common/process.rs"]
mod process;
mod reflection;
mod restarts;
mod rights;
mod silent_clients;
mod stream_ends;
mod streams;
mod telemetry;
mod tower;
mod unary;
mod views;
mod wire_v1;
