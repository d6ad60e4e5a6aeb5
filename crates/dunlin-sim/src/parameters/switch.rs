//! Costs and capacities of a switch.

super::file::parameters! {
    /// A switch and the cables to it.
    SwitchParameters
    times {
        /// Latency from port to port.
        latency,
        /// Propagation delay of a cable.
        propagation,
    }
    numbers {
        /// Shared packet buffer in bytes.
        buffer_bytes,
        /// Share of the free buffer that one port may take: the dynamic threshold's alpha.
        buffer_alpha,
        /// 1 when the switch pauses its senders before it has to drop (PFC, or InfiniBand's credits).
        lossless,
        /// Bytes of an ingress port in the buffer above which its sender is paused.
        pause_bytes,
        /// Bytes of an ingress port in the buffer below which its sender may go on.
        resume_bytes,
        /// Queue length at which marking begins, in bytes; no marking when zero.
        ecn_min_bytes,
        /// Queue length at which the marking probability reaches its maximum.
        ecn_max_bytes,
        /// Maximum marking probability.
        ecn_probability,
    }
    defaults {
        /// Priorities that a lossless switch pauses, a bit each; in others it drops packets without room.
        pfc_priorities = 255.0,
        /// Priorities whose packets it marks, a bit each.
        ecn_priorities = 255.0,
        /// Strict priorities, which go before all others, the highest first: a bit each.
        strict_priorities = 0.0,
        /// Weight of priority 0 among those that are not strict.
        weight_0 = 1.0,
        /// Weight of priority 1.
        weight_1 = 1.0,
        /// Weight of priority 2.
        weight_2 = 1.0,
        /// Weight of priority 3.
        weight_3 = 1.0,
        /// Weight of priority 4.
        weight_4 = 1.0,
        /// Weight of priority 5.
        weight_5 = 1.0,
        /// Weight of priority 6.
        weight_6 = 1.0,
        /// Weight of priority 7.
        weight_7 = 1.0,
    }
    files {
        /// Mellanox SX6036, 56 Gb/s InfiniBand (FaSST).
        sx6036 => "sx6036.toml",
        /// Mellanox SX1012, 40 and 56 Gb/s (ScaleRPC).
        sx1012 => "sx1012.toml",
        /// Mellanox SB7890, 100 Gb/s InfiniBand (RB²).
        sb7890 => "sb7890.toml",
        /// Dell Z9264F-ON, 100 Gb/s Ethernet (FLOCK).
        z9264f => "z9264f.toml",
    }
}

impl SwitchParameters {
    /// Priorities in which nothing is dropped, a bit each.
    pub(crate) fn lossless_priorities(&self) -> u8 {
        match self.lossless != 0.0 {
            true => self.pfc_priorities as u8,
            false => 0,
        }
    }
}

super::turns::of_weights!(SwitchParameters);
