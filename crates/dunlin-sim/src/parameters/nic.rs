//! Costs and capacities of a NIC.

super::file::parameters! {
    /// A NIC with its PCIe attachment and its port.
    NicParameters
    times {
        /// Engine time of a WRITE or SEND request: its first packet.
        tx_wqe,
        /// Engine time of a READ or atomic request.
        tx_read,
        /// Engine time of a datagram.
        tx_datagram,
        /// Engine time of each further packet of a message or of a READ response.
        tx_packet,
        /// Engine time of an arriving WRITE, with its acknowledgement.
        rx_write,
        /// Engine time of an arriving SEND, with its RECEIVE and acknowledgement.
        rx_send,
        /// Engine time of an arriving datagram, with its RECEIVE.
        rx_datagram,
        /// Engine time of an arriving READ or atomic, with its response.
        rx_read_request,
        /// Engine time of an arriving READ response.
        rx_read_response,
        /// Engine time of an arriving acknowledgement.
        rx_ack,
        /// Engine time of each further packet of an arriving message.
        rx_packet,
        /// Engine time of a payload byte.
        byte,
        /// Engine time of each further PCIe chunk of a payload.
        chunk,
        /// Time that the atomic unit is busy with one atomic.
        atomic,
        /// Engine time lost when a queue pair's context is not cached.
        context_miss,
        /// Latency of fetching a context from host memory, in addition to the engine time.
        context_fetch,
        /// Engine time lost when a request's element is no longer cached.
        wqe_miss,
        /// Engine time lost when a translation is not cached.
        translation_miss,
        /// Latency of the NIC's pipeline, each way.
        pipeline,
        /// Time from a core's doorbell store to the NIC.
        mmio,
        /// Latency of a DMA read of host memory.
        dma_read,
        /// Time until a DMA write is visible to cores.
        dma_write,
        /// Latency of a packet from a NIC to itself.
        loopback,
        /// Maximum time by which part of a WRITE may be placed after the rest; only without in-order placement.
        disorder,
        /// Minimum time between two congestion notifications for one flow.
        cnp_interval,
        /// Period of the decay of DCQCN's alpha.
        alpha_period,
        /// Period of DCQCN's rate increase.
        increase_period,
    }
    numbers {
        /// 1 when one engine serves requests and arriving packets alike, 0 when each has its own.
        shared_pipeline,
        /// Packets that a queue pair may send per turn.
        tx_burst,
        /// Sets of the cache of requester contexts.
        context_sets,
        /// Ways of the cache of requester contexts.
        context_ways,
        /// Sets of the cache of responder contexts, which are smaller.
        responder_sets,
        /// Ways of the cache of responder contexts.
        responder_ways,
        /// Contexts that can be fetched at once.
        context_parallel,
        /// Sets of the work-queue-element cache; a queue pair's elements share one.
        wqe_sets,
        /// Ways of the work-queue-element cache.
        wqe_ways,
        /// Sets of the translation cache.
        translation_sets,
        /// Ways of the translation cache.
        translation_ways,
        /// Usable PCIe bandwidth, each direction, in gigabytes per second.
        pcie_gbyte_s,
        /// Bytes of a PCIe request header, framing included.
        pcie_request_bytes,
        /// Bytes of a PCIe completion header, framing included.
        pcie_completion_bytes,
        /// Maximum payload bytes of a PCIe packet.
        pcie_chunk_bytes,
        /// Rate of the port, all its links together, in gigabits per second.
        link_gbit_s,
        /// Bytes around the payload of each packet on the wire, including gaps, without extended headers.
        header_bytes,
        /// Maximum payload of a packet.
        mtu_bytes,
        /// Maximum inline payload.
        max_inline_bytes,
        /// Largest work queue element that is pushed with its doorbell.
        blueflame_bytes,
        /// READs and atomics that a queue pair keeps outstanding at most.
        max_rd_atomic,
        /// Bytes of arriving packets that the NIC buffers before the port pauses its peer or drops.
        rx_buffer_bytes,
        /// One in this many packets of RC, at least, requests an acknowledgement; the last of a signaled request always
        /// does.
        ack_request_packets,
        /// 1 when a WRITE is placed in ascending addresses, 0 when in any order.
        in_order_placement,
        /// How senders react to marked packets: not at all (0), reduce the rate by DCQCN (1), reduce a window by DCQCN
        /// (2) or by DCTCP (3).
        congestion_control,
        /// Gain of DCQCN's and DCTCP's alpha.
        alpha_gain,
        /// DCQCN: additive increase, in gigabits per second.
        additive_gbit_s,
        /// DCQCN: hyper increase, in gigabits per second.
        hyper_gbit_s,
        /// DCQCN: rounds of fast recovery.
        recovery_rounds,
        /// DCQCN: 1 when every cut of a rate makes the rate before it the target to recover to (the paper's algorithm
        /// 1), 0 when only a cut after the rate has risen does (the vendor's default).
        clamp_target,
        /// DCQCN: 1 when one rate serves all queue pairs to a destination, 0 when each has its own.
        rate_per_destination,
    }
    defaults {
        /// Sets of the cache of completion queues' contexts; with 0 the NIC holds all of them.
        completion_sets = 0.0,
        /// Ways of the cache of completion queues' contexts.
        completion_ways = 8.0,
        /// Maximum drift of the NIC's clock, fast or slow, in parts per million; drawn for each NIC.
        clock_drift_ppm = 0.0,
        /// Maximum offset of the NIC's clock at time zero, ahead; drawn for each NIC.
        clock_offset_ns = 0.0,
        /// Core time of a query of the NIC's clock; with 0 it cannot be queried.
        clock_query_ns = 0.0,
        /// Window: packets that a queue pair may have in flight at most.
        window_packets = 0.0,
        /// Window: packets that DCQCN adds in a round, and DCTCP in a window without marks.
        additive_packets = 0.0,
        /// Window: packets that DCQCN adds in a round of hyper increase.
        hyper_packets = 0.0,
        /// Window: bytes after which DCQCN also raises the window, as after its period; with 0 only after its period.
        increase_bytes = 0.0,
        /// Minimum time between two cuts of DCQCN, by rate and by window.
        reduce_interval_ns = 0.0,
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
        /// Mellanox ConnectX-3, 56 Gb/s InfiniBand, PCIe 3.0 x8 (FaSST, ScaleRPC).
        connectx_3 => "connectx-3.toml",
        /// Mellanox Connect-IB, two ports of 56 Gb/s, PCIe 3.0 x16 (FaSST).
        connect_ib => "connect-ib.toml",
        /// Mellanox ConnectX-4 Lx, two ports of 25 Gb/s (Flor).
        connectx_4_lx => "connectx-4-lx.toml",
        /// Mellanox ConnectX-5, 100 Gb/s (FLOCK, RB², Flor).
        connectx_5 => "connectx-5.toml",
        /// Mellanox ConnectX-6 Dx, 100 Gb/s per port.
        connectx_6_dx => "connectx-6-dx.toml",
        /// Mellanox BlueField-2, 100 Gb/s per port (Flor).
        bluefield_2 => "bluefield-2.toml",
        /// Intel E810-C, 100 Gb/s per port (Flor).
        e810 => "e810.toml",
        /// Broadcom NetXtreme P2100G, 100 Gb/s per port (Flor).
        p2100g => "p2100g.toml",
    }
}

/// Payload of the messages that [`NicParameters::messages_per_second`] counts: a request of 64 bytes with its overhead
/// in a ring.
const SMALL_BYTES: f64 = 128.0;

/// Bytes of a network header.
const NETWORK_HEADER_BYTES: f64 = 40.0;
/// Bytes of the headers of a datagram on InfiniBand without a network header.
const SUBNET_HEADER_BYTES: f64 = 26.0;

impl NicParameters {
    /// Whether its packets have a network header, which it writes before the payload of a datagram. On RoCE all packets
    /// have one, on InfiniBand those that leave the subnet; for others a NIC does not write these bytes.
    pub fn has_network_header(&self) -> bool {
        self.header_bytes >= SUBNET_HEADER_BYTES + NETWORK_HEADER_BYTES
    }

    /// Number of small WRITEs on RC per second, half of them inbound and half outbound, that its busiest engine or its
    /// port has time for. Few are signaled, so few are acknowledged.
    pub fn messages_per_second(&self) -> u64 {
        let engine = match self.shared_pipeline != 0.0 {
            true => self.tx_wqe + self.rx_write,
            false => self.tx_wqe.max(self.rx_write),
        };
        let bits = 8.0 * (self.header_bytes + SMALL_BYTES);
        let pair_ns = (engine as f64 / 1e3).max(bits / self.link_gbit_s);
        (2e9 / pair_ns) as u64
    }
}

super::turns::of_weights!(NicParameters);

#[cfg(test)]
mod rate_tests {
    use super::*;

    /// Acknowledged messages were measured at 20 M/s out and 35 M/s in on ConnectX-3 (ScaleRPC Fig. 1) and 105 M/s on
    /// Connect-IB (rdma_bench, which has 200 M/s of unacknowledged ones).
    #[test]
    fn more_messages_than_were_measured_with_acknowledgements() {
        let of = |nic: NicParameters| nic.messages_per_second() as f64 / 1e6;
        assert!((35.0..40.0).contains(&of(NicParameters::connectx_3())));
        assert!((170.0..190.0).contains(&of(NicParameters::connect_ib())));
        assert!((105.0..120.0).contains(&of(NicParameters::connectx_5())));
    }
}
