//! The `dunlin` command: what its subcommands do.
//!
//! A subcommand is one file in [`commands`] and one variant of [`commands::Command`]. Measurements are reported as one
//! [`report::Report`]; [`against::interleave`] compares a measurement with the machine's raw limits ([`limits`]).

#![deny(unsafe_code)]

pub mod affinity;
pub mod against;
pub mod capture;
pub mod clock;
pub mod commands;
pub mod doctor;
pub mod environment;
pub mod histogram;
pub mod input;
pub mod interrupt;
pub mod kv_load;
pub mod lab;
pub mod limits;
pub mod log;
#[cfg(feature = "mount")]
mod mount;
pub mod mpi;
pub mod output;
pub mod patience;
pub mod peer;
pub mod report;
pub mod rights;
pub mod ring;
pub mod services;
pub mod settings;
pub mod space;
pub mod tls;
pub mod top;
pub mod trace;
pub mod traffic;
pub mod txn_load;
pub mod verbs;
pub mod workload;
