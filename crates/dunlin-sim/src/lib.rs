//! The simulated cluster of Dunlin: RNICs, hosts and switches, in virtual time.
//!
//! It is a device like any other: it implements the traits of `dunlin-verbs`, passes the conformance suite, and moves
//! real bytes between real buffers, at the virtual time that its model says. Engines that are written as state machines
//! with steps run on it as they are, on simulated cores that pay for each verb and for other work by
//! [`dunlin_verbs::Device::charge`]. One seed gives one run, on any machine.
//!
//! - [`ClusterBuilder`] builds a [`Cluster`], which is driven by one core or, divided into parts, by several;
//!   [`SimDevice`] is the device of one of its hosts;
//! - [`Step`] is a thread on a simulated core, [`Next`] when it wants its next step; [`Cluster::spawn_thread`] runs
//!   blocking code on one;
//! - [`FaultRule`], [`Cluster::partition`], [`Cluster::crash`] and their like are faults that a test puts in force and
//!   takes back;
//! - [`NicParameters`], [`HostParameters`], [`SwitchParameters`] are read from files in which each value has its
//!   source;
//! - [`Counters`] are what a NIC and the processor's PCIe counters would show, [`Observer`] is shown what happens.
//!
//! Code outside of simulated threads may use the verbs too, as tests do: it takes no virtual time, and time goes on a
//! little whenever it polls in vain. `docs/sim.md` says what the model has and what it leaves out.
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
