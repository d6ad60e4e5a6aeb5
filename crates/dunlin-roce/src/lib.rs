//! RoCEv2 in user space: the wire format of RDMA over UDP (IBTA vol. 1 with annex A17).
//!
//! [`packet`] turns bytes into packets and back, [`reliable`] has the state machines of RC. Nothing here opens a socket,
//! starts a thread or reads a clock.
#![forbid(unsafe_code)]

pub mod packet;
pub mod reliable;
