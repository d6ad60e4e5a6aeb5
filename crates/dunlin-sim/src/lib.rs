//! The simulated cluster of Dunlin: RNICs, hosts and switches, in virtual time.
//!
//! The crate is a device like any other: it implements the traits of `dunlin-verbs`, passes the conformance suite, and
//! moves real bytes between real buffers, at the virtual time that its model says. Engines written as state machines
//! with steps run on it unchanged, on simulated cores that are charged for each verb and, by
//! [`dunlin_verbs::Device::charge`], for other work. One seed gives one run, on any machine.
//!
//! - [`ClusterBuilder`] builds a [`Cluster`], which is driven by one core or, divided into parts, by several;
//!   [`SimDevice`] is the device of one of its hosts;
//! - [`Step`] is a thread on a simulated core, [`Next`] says when its next step is due; [`Cluster::spawn_thread`] runs
//!   blocking code on such a core;
//! - [`FaultRule`], [`Cluster::partition`], [`Cluster::crash`] and the like are faults that a test injects and removes;
//! - [`NicParameters`], [`HostParameters`] and [`SwitchParameters`] are read from files that give the source of each
//!   value;
//! - [`Counters`] are what a NIC and the processor's PCIe counters would show; an [`Observer`] receives packets and
//!   activity as they happen.
//!
//! Code outside of simulated threads, such as tests, may use the verbs too: it takes no virtual time, and time advances
//! a little whenever it polls without success. `docs/sim.md` describes the model and what it leaves out.
#![deny(unsafe_code)]

mod cache;
mod cluster;
mod completion;
mod context;
mod cores;
mod counters;
mod crossing;
mod device;
mod division;
mod event;
mod faults;
mod headroom;
mod held;
mod inner;
mod memory;
mod network;
mod nic;
mod observe;
mod pace;
mod packet;
mod pair;
mod parameters;
mod placed;
mod priority;
mod random;
mod slab;
mod stack;
mod step;
mod threads;
mod windows;
mod work;
mod worker;
mod world;

pub use cluster::{Cluster, ClusterBuilder, HostId, RuleGuard, SwitchId, ThreadId};
pub use cores::{Next, Step};
pub use counters::{Counters, SwitchCounters};
pub use device::{
    SimAddressHandle, SimCompletionChannel, SimCompletionQueue, SimDevice, SimProtectionDomain,
    SimQueuePair, SimRegion, SimSharedReceiveQueue,
};
pub use faults::{Fault, FaultRule, Traffic};
pub use observe::{Activity, Busy, Observer, Part, SeenNic, SeenPacket};
pub use packet::{Kind as PacketKind, Refusal};
pub use parameters::{
    parameter_files, Confidence, HostParameters, NicParameters, Origin, ParameterError,
    SwitchParameters,
};
