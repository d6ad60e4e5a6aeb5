//! RPC between simulated hosts: the conformance suite of every preset, and tests that only a simulated cluster permits.
//!
//! One binary, because most of the build time is the RPC over the simulated device, once in each binary that uses it.
//! Everything is in virtual time and each test has a cluster of its own, so the tests do not disturb each other. Only
//! one has real threads, the workers of [`saturation`], for which it waits.

mod calls;
mod choice;
mod classes;
mod conformance;
mod deadlines;
mod full_send_queue;
mod kinds;
mod on_request;
mod pace;
mod quiet_lanes;
mod recovery;
mod rough;
mod saturation;
mod server_threads;
mod turns;
