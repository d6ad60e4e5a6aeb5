//! The rooms of this crate that touch raw memory: the array that the peer writes, the array that only we write, and a
//! message in place.
//!
//! What both sides may touch at once is never seen as a reference: [`Inbound`] and [`Message`] copy out of it, and no
//! Rust code is told that the bytes stand still. What only this process writes, and the device reads only between a
//! post and its completion, is lent as a plain slice by [`Mirror`].
#![allow(unsafe_code)]

mod inbound;
mod message;
mod mirror;

pub(crate) use inbound::Inbound;
pub use message::Message;
pub(crate) use mirror::Mirror;
