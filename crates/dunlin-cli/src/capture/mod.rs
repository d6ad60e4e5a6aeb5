//! Packets in files for Wireshark: the calls of a server, which `dunlin.lua` dissects, and the packets of simulated
//! hosts as RoCEv2.

mod calls;
mod frame;
mod pcapng;
mod roce;
mod simulated;

pub use calls::File;
pub use frame::{Frame, Kind};
pub use simulated::{Bounds, Recorder};

/// Wireshark's dissector of captured calls, in Lua.
pub const DISSECTOR: &str = include_str!("dunlin.lua");
