//! Dunlin's RPC: client, server, presets; channels, sharing, admission.

pub mod bootstrap;
