//! How much of a message one work request carries (Flor §4.2): a chunk, the unit of retransmission and of congestion
//! control.

mod rtt_based;

pub use rtt_based::{ChunkingParameters, OnLoss, ParameterError, RttBased};

/// Decides on the size of chunks.
pub trait Chunking: std::fmt::Debug + Send {
    /// Bytes of a unit (Flor's UNIT_SIZE): chunks are whole multiples of it, but for the last one of a message.
    fn unit_bytes(&self) -> u32;

    /// Bytes of the next chunk, where the window leaves so many free. A multiple of the unit, and not zero: whether
    /// anything may be sent at all is the window's business.
    fn chunk_bytes(&self, available_window_bytes: u64) -> u32;

    /// A round trip was measured.
    fn measured(&mut self, now_ns: u64, rtt_ns: u64);

    /// A chunk was lost.
    fn lost(&mut self);
}

/// No chunking: a message is one work request, as far as the transport carries it. Table 1's first deployment.
#[derive(Clone, Copy, Debug)]
pub struct WholeMessages {
    unit_bytes: u32,
}

impl WholeMessages {
    /// `unit_bytes` is what repetitions are cut by, where there are any; at least 1.
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
