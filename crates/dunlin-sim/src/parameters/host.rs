//! Costs and capacities of a host's cores and caches.

super::file::parameters! {
    /// A host: cores, last-level cache, memory.
    HostParameters
    times {
        /// Time of a call that posts requests, without the time of each request.
        post_send,
        /// Time to build one work queue element.
        post_element,
        /// Time to ring a doorbell: the store and the fence behind it.
        doorbell,
        /// Time to post one RECEIVE.
        post_receive,
        /// Time to take one completion.
        poll_hit,
        /// Time to poll a completion queue without entries.
        poll_empty,
        /// Time to poll memory that has not changed.
        poll_memory,
        /// Time from the arrival of bytes or a completion to the next step of a core that polls for them.
        detect,
        /// Time of a copy, without its bytes.
        copy,
        /// Time to copy one byte.
        copy_byte,
        /// Time to copy one byte between lines that are in memory only, in addition to `copy_byte`.
        copy_miss_byte,
        /// Time to access a cache line that another core wrote.
        shared_line,
        /// Time to read the first line of a message that a NIC wrote.
        arrived,
        /// Maximum additional time of a line from memory, uniformly distributed; zero where inbound DMA goes to the
        /// last-level cache.
        memory_spread,
        /// Duration of a memory refresh, for which a line may have to wait.
        refresh,
        /// Time of an instruction of the code above verbs.
        instruction,
        /// Time to switch between user-level threads.
        coroutine,
        /// Time to wake a thread that blocked in the kernel.
        wake,
        /// Time to switch between threads of a core.
        context_switch,
        /// Time for which a thread keeps its core while others wait for it.
        time_slice,
        /// Inbound DMA time of a cache line that is not in the last-level cache.
        llc_miss,
    }
    numbers {
        /// Number of cores.
        cores,
        /// 1 when inbound DMA goes to the last-level cache.
        ddio,
        /// Slices of the last-level cache of one socket.
        llc_slices,
        /// Sets of a slice.
        llc_sets,
        /// Ways of a set.
        llc_ways,
        /// Ways that inbound DMA may allocate.
        ddio_ways,
        /// Share of the time in which memory is being refreshed.
        refresh_share,
        /// Memory bandwidth of a socket, in gigabytes per second.
        memory_gbyte_s,
        /// Bytes of a page of registered memory, which one translation covers.
        page_bytes,
    }
    defaults {
    }
    files {
        /// Two Xeon E5-2650 v4 (ScaleRPC; also represents FaSST's hosts).
        xeon_e5_v4 => "xeon-e5-v4.toml",
        /// Two Xeon Gold 5118 (RB²).
        xeon_gold_5118 => "xeon-gold-5118.toml",
        /// One EPYC 7452 (FLOCK).
        epyc_7452 => "epyc-7452.toml",
    }
}
