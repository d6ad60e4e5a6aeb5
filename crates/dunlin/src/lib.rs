//! RPC, messaging and transactions over RDMA, with or without the hardware.
