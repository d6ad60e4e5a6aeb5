//! The modules of this crate that access raw memory: the array that the peer writes, the array that only this process
//! writes, and a message in place.
//!
//! No reference is ever made to memory that both sides may access at once: [`Inbound`] and [`Message`] copy out of it,
//! and no Rust code assumes that its bytes do not change. Memory that only this process writes, and that the device
//! reads only between a post and its completion, is lent as a plain slice by [`Mirror`].
#![allow(unsafe_code)]

mod array;
mod inbound;
mod message;
mod mirror;

pub(crate) use inbound::Inbound;
pub use message::Message;
pub(crate) use mirror::Mirror;
