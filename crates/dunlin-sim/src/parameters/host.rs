//! What a host's cores and caches cost and hold.

super::file::parameters! {
    /// A host: cores, last-level cache, memory.
    HostParameters
    times {
        /// A call that posts requests, beside what each request costs.
        post_send,
        /// Building one work queue element.
        post_element,
        /// Ringing a doorbell: the store and the fence behind it.
        doorbell,
        /// Posting one RECEIVE.
        post_receive,
        /// Taking one completion.
        poll_hit,
        /// Looking at a completion queue without entries.
        poll_empty,
        /// Looking at memory without news.
        poll_memory,
        /// From the arrival of bytes or a completion to the next step of a core that polls for them.
        detect,
        /// A copy, beside its bytes.
        copy,
        /// Copying one byte.
        copy_byte,
        /// Copying one byte from lines to lines that are in memory only, beside `copy_byte`.
        copy_miss_byte,
        /// A cache line that another core wrote.
        shared_line,
        /// The first line of a message that a NIC wrote.
        arrived,
        /// What a line from memory may take longer than its price, evenly spread; zero where inbound DMA goes to the
        /// last-level cache.
        memory_spread,
        /// How long a refresh of memory takes, for which a line may have to wait.
        refresh,
        /// An instruction of the code above verbs.
        instruction,
        /// A switch between user-level threads.
        coroutine,
        /// Waking a thread that blocked in the kernel.
        wake,
        /// A switch between threads of a core.
        context_switch,
        /// Time that a thread keeps its core while others wait for it.
        time_slice,
        /// Inbound DMA time of a cache line that is not in the last-level cache.
        llc_miss,
    }
    numbers {
        /// Cores.
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
        /// Memory bandwidth of a socket, in gigabytes a second.
        memory_gbyte_s,
        /// Bytes of a page of registered memory: what one translation covers.
        page_bytes,
    }
    defaults {
    }
    files {
        /// Two Xeon E5-2650 v4 (ScaleRPC; stands for FaSST's hosts too).
        xeon_e5_v4 => "xeon-e5-v4.toml",
        /// Two Xeon Gold 5118 (RB²).
        xeon_gold_5118 => "xeon-gold-5118.toml",
        /// One EPYC 7452 (FLOCK).
        epyc_7452 => "epyc-7452.toml",
    }
}
