//! RoCEv2 in user space: the wire format of RDMA over UDP (IBTA vol. 1 with annex A17).
//!
//! [`packet`] turns bytes into packets and back. Nothing here opens a socket or reads a clock.
#![forbid(unsafe_code)]

pub mod packet;
