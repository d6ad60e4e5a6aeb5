//! PCIe and the memory system behind it: bytes in both directions, context and translation fetches, the last-level
//! cache.

use crate::event::Ps;
use crate::memory::{self, LINE};
use crate::observe::{Activity, Part};
use crate::world::World;

/// Bytes fetched for a queue pair's context.
const CONTEXT_BYTES: u64 = 256;
/// Bytes of a completion entry.
pub(super) const ENTRY_BYTES: u64 = 64;
/// Bytes of a completion queue's context: `struct mlx4_cq_context` of the kernel.
const COMPLETION_CONTEXT_BYTES: u64 = 64;

/// Engine time and latency of a piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) engine: Ps,
    pub(crate) latency: Ps,
}

impl World {
    /// Writes `bytes` from the NIC to memory; returns the time until they are across, waiting included.
    pub(super) fn pcie_up(&mut self, host: u16, bytes: u64) -> Ps {
        let now = self.now;
        let nic = &mut self.hosts[usize::from(host)].nic;
        let start = nic.up_free.max(now);
        nic.up_free = start + nic.pcie_time(bytes);
        nic.counters.pcie_up_bytes += bytes;
        let free = nic.up_free;
        self.observe_busy(host, Part::PcieUp, Activity::Bytes(bytes), (start, free));
        free - now
    }

    /// Sends `bytes` from the host to the NIC.
    pub(super) fn pcie_down(&mut self, host: u16, bytes: u64) -> Ps {
        let now = self.now;
        let nic = &mut self.hosts[usize::from(host)].nic;
        let start = nic.down_free.max(now);
        nic.down_free = start + nic.pcie_time(bytes);
        nic.counters.pcie_down_bytes += bytes;
        let free = nic.down_free;
        self.observe_busy(host, Part::PcieDown, Activity::Bytes(bytes), (start, free));
        free - now
    }

    /// Reads `bytes` by DMA; returns the latency.
    pub(super) fn dma_read(&mut self, host: u16, bytes: u64) -> Ps {
        let nic = &mut self.hosts[usize::from(host)].nic;
        let chunks = nic.chunks(bytes);
        let (request, completion) = (
            nic.parameters.pcie_request_bytes as u64,
            nic.parameters.pcie_completion_bytes as u64,
        );
        let base = nic.parameters.dma_read;
        nic.counters.pcie_read_lines += bytes.div_ceil(LINE);
        let asked = self.pcie_up(host, request * chunks);
        let answered = self.pcie_down(host, bytes + completion * chunks);
        base + asked + answered
    }

    /// Writes `bytes` by DMA without regard to the last-level cache; for completions.
    pub(super) fn dma_write(&mut self, host: u16, bytes: u64) -> Ps {
        let nic = &self.hosts[usize::from(host)].nic;
        let (chunks, request) = (nic.chunks(bytes), nic.parameters.pcie_request_bytes as u64);
        nic.parameters.dma_write + self.pcie_up(host, bytes + request * chunks)
    }

    /// Writes payload by DMA to an address, through the last-level cache.
    pub(super) fn dma_write_payload(
        &mut self,
        host: u16,
        address: u64,
        bytes: u64,
        warm: bool,
    ) -> Cost {
        let latency = self.dma_write(host, bytes);
        let host = &mut self.hosts[usize::from(host)];
        let counters = &mut host.nic.counters;
        let (first, last) = (address / LINE, (address + bytes.max(1) - 1) / LINE);
        let (mut partial, mut whole_lines) = (0, 0);
        for line in first..=last {
            let whole = line * LINE >= address && (line + 1) * LINE <= address + bytes;
            if whole {
                counters.whole_line_writes += 1;
            } else {
                counters.partial_line_writes += 1;
            }
            let hit = host.llc.as_mut().map(|llc| llc.write(line * LINE, warm));
            match hit {
                Some(memory::Hit::Update) => counters.updating_writes += 1,
                Some(memory::Hit::Allocate) => {
                    counters.allocating_writes += 1;
                    *(if whole {
                        &mut whole_lines
                    } else {
                        &mut partial
                    }) += 1;
                }
                None => {}
            }
        }
        // A line written in part must be fetched before it can be merged; a whole one only evicts another to memory.
        let write_back = (LINE as f64 * 1_000.0 / host.parameters.memory_gbyte_s) as Ps;
        let engine = partial * host.parameters.llc_miss + whole_lines * write_back;
        Cost { engine, latency }
    }

    /// Looks up a queue pair's context as needed by the requester: to send, and when an answer arrives.
    pub(super) fn touch_context(&mut self, host: u16, qp: u32) -> Cost {
        let context = self.pairs[qp as usize].context();
        let nic = &mut self.hosts[usize::from(host)].nic;
        let hit = nic.contexts.touch(context);
        self.fetch_context(host, hit, CONTEXT_BYTES)
    }

    /// Looks up a completion queue's context, when an entry is written to the queue.
    pub(super) fn touch_completions(&mut self, host: u16, cq: u32) -> Cost {
        let context = self.cqs[cq].context();
        let nic = &mut self.hosts[usize::from(host)].nic;
        let hit = match &mut nic.completions {
            Some(cache) => cache.touch(context),
            None => return Cost::default(),
        };
        self.fetch_context(host, hit, COMPLETION_CONTEXT_BYTES)
    }

    /// Looks up a queue pair's context as needed by the responder.
    pub(super) fn touch_responder(&mut self, host: u16, qp: u32) -> Cost {
        let context = self.pairs[qp as usize].context();
        let nic = &mut self.hosts[usize::from(host)].nic;
        let hit = nic.responders.touch(context);
        self.fetch_context(host, hit, CONTEXT_BYTES)
    }

    fn fetch_context(&mut self, host: u16, hit: bool, bytes: u64) -> Cost {
        let now = self.now;
        let nic = &mut self.hosts[usize::from(host)].nic;
        if hit {
            nic.counters.context_hits += 1;
            return Cost::default();
        }
        nic.counters.context_misses += 1;
        nic.counters.pcie_read_lines += bytes / LINE;
        let (engine, fetch) = (nic.parameters.context_miss, nic.parameters.context_fetch);
        // The NIC runs a limited number of fetches at once; a further one waits.
        let share = fetch / (nic.parameters.context_parallel as u64).max(1);
        let start = nic.fetch_free.max(now);
        nic.fetch_free = start + share;
        let wait = start - now;
        let bytes = bytes + nic.parameters.pcie_completion_bytes as u64;
        self.pcie_down(host, bytes);
        Cost {
            engine,
            latency: fetch + wait,
        }
    }

    /// Looks up the translation of an address of a region.
    pub(super) fn touch_translation(&mut self, host: u16, key: u32, offset: u64) -> Cost {
        let host = &mut self.hosts[usize::from(host)];
        let page = offset / (host.parameters.page_bytes as u64).max(LINE);
        let nic = &mut host.nic;
        if nic.translations.touch(u64::from(key) << 24 ^ page) {
            return Cost::default();
        }
        nic.counters.translation_misses += 1;
        nic.counters.pcie_read_lines += 1;
        Cost {
            engine: nic.parameters.translation_miss,
            latency: nic.parameters.context_fetch,
        }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.engine += other.engine;
        self.latency += other.latency;
    }
}
