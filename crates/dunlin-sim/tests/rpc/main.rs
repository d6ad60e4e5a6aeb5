//! RPC between simulated hosts: the conformance suite of every preset, and what only a simulated cluster can show.
//!
//! One binary, since what takes the time to build is the RPC over the simulated device, once in each that uses it. All
//! is in virtual time and each test has a cluster of its own, so that they do not disturb each other. Only one has real
//! threads, the workers of [`saturation`], for which it waits.

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
