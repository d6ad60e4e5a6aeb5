//! The logic of the ring: pointers, thresholds and the decisions based on them (RB² §III-B and Algorithm 1), without a
//! device and without a clock.
//!
//! Pointers count units since the ring was created and never wrap; indices in the array are pointers modulo its size.
//! So *empty* is head = tail and *full* is when one unit is left, as in the paper, without its arithmetic modulo N.

#[cfg(all(test, loom))]
mod loom_tests;
mod receiver;
mod sender;
#[cfg(all(test, not(loom)))]
mod worked_example;

pub(crate) use receiver::Receiver;
pub(crate) use sender::{Due, Pacing, Sender};

/// A value on a cache line of its own (RB² §IV-C: every pointer in a dedicated one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);
