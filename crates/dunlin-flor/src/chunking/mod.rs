//! How much of a message one work request carries (Flor §4.2). This is a chunk, the unit of retransmission and of
//! congestion control.

mod rtt_based;

pub use rtt_based::{ChunkingParameters, OnLoss, ParameterError, RttBased};

/// Determines the size of chunks.
pub trait Chunking: std::fmt::Debug + Send {
    /// Length of a unit in bytes (Flor's UNIT_SIZE). Chunks are whole multiples of it, except for the last one of a
    /// message.
    fn unit_bytes(&self) -> u32;

    /// Length in bytes of the next chunk, if the window leaves this many bytes free. It is a positive multiple of the
    /// unit; whether anything may be sent at all is decided by the window.
    fn chunk_bytes(&self, available_window_bytes: u64) -> u32;

    /// Records that a round trip was measured.
    fn measured(&mut self, now_ns: u64, rtt_ns: u64);

    /// Records that a chunk was lost.
    fn lost(&mut self);
}

/// No chunking: a message is one work request, as far as the transport supports its length. Table 1's first deployment.
#[derive(Clone, Copy, Debug)]
pub struct WholeMessages {
    unit_bytes: u32,
}

impl WholeMessages {
    /// `unit_bytes` is the size into which retransmissions are split, if there are any; at least 1.
    pub fn new(unit_bytes: u32) -> Self {
        Self {
            unit_bytes: unit_bytes.max(1),
        }
    }
}

impl Chunking for WholeMessages {
    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    fn chunk_bytes(&self, _: u64) -> u32 {
        u32::MAX / self.unit_bytes * self.unit_bytes
    }

    fn measured(&mut self, _: u64, _: u64) {}

    fn lost(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_is_a_multiple_of_the_unit_too() {
        let mut whole = WholeMessages::new(4096);
        whole.lost();
        assert_eq!(whole.chunk_bytes(0) % 4096, 0);
        assert!(whole.chunk_bytes(0) > 4 << 20);
        assert_eq!(WholeMessages::new(0).unit_bytes(), 1);
    }
}
