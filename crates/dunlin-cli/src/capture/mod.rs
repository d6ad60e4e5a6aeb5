//! Captured calls as packets: what `dunlin capture` writes, and what Wireshark needs to read it.

mod frame;
mod pcapng;

pub use frame::{Frame, Kind};
pub use pcapng::File;

/// Wireshark's dissector of these packets, in Lua.
pub const DISSECTOR: &str = include_str!("dunlin.lua");
