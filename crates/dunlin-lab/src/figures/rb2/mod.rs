//! The figures of RB²: its micro-benchmark (Fig. 3), Exp#1 to Exp#4 and the three cases, with the rings of
//! `dunlin-ring`.
//!
//! The testbed is the paper's (§V-A): two hosts with Xeon Gold 5118 and ConnectX-5 behind an InfiniBand switch, N =
//! 128, slot size is message size. FaRM is the paper's modification for a NIC that places out of order.

mod cases;
mod latency;
mod pointers;
mod switched_off;
mod threads;
mod throughput;

pub(super) use cases::{DATABASE, HTTP, NETWORK_FUNCTION};
pub(super) use latency::FIGURE as LATENCY;
pub(super) use pointers::FIGURE as POINTERS;
pub(super) use switched_off::FIGURE as SWITCHED_OFF;
pub(super) use threads::FIGURE as THREADS;
pub(super) use throughput::FIGURE as THROUGHPUT;

use dunlin_ring::{Design, HeadSync, RingConfig, TailSync};
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use crate::figure::Effort;
use crate::load::{
    dialogue, one_requester, stream, Answered, Compute, Dialogue, Hosts, Plan, Streamed, Window,
};

/// The cost per byte of a copy to `volatile` bytes beyond `copy_byte_ns`. Compilers make it a loop of five fused
/// operations per byte (load, two additions, store, compare and branch), of which Skylake renames four per cycle, at
/// 2.3 GHz. The same loop took 2.0 cycles where it could be measured, on a Zen 3.
const VOLATILE_BYTE_NS: f64 = 1.25 / 2.3 - 0.1;

/// Bytes of a pointer, which is sent inline.
const POINTER_BYTES: f64 = 8.0;

/// L5 as in its open source, which is what the paper measured (§V-A); Table I says lazy push and a tail instead.
/// `sendParanoid` of `VirtualRDMARingBuffer` WRITEs the data and then the length, which the receiver polls and zeroes;
/// a sender without room READs the position that the receiver stores after every message: so γ is the whole ring.
const L5: Design = Design {
    head_sync: HeadSync::LazyPull,
    push_slots: SLOTS as u32,
    tail_sync: TailSync::PollLength,
    ..Design::L5
};

/// The competitors of RB² in the paper's figures.
const RIVALS: [Design; 3] = [Design::FARM_UNORDERED, Design::SOCKSDIRECT, L5];

/// N (§V-A): the ring is 128 messages long, whatever their size.
const SLOTS: usize = 128;

/// A ring for messages of exactly `bytes`.
fn records(design: Design, bytes: usize) -> RingConfig {
    RingConfig {
        slots: SLOTS,
        ..RingConfig::for_records(design, bytes)
    }
}

/// The paper's testbed.
fn testbed(effort: Effort) -> Hosts {
    let mut nic = effort.nic(NicParameters::connectx_5());
    // For InfiniBand; the file is for Ethernet.
    nic.header_bytes = 26.0;
    Hosts {
        seed: effort.seed,
        host: effort.host(HostParameters::xeon_gold_5118()),
        nic,
        switch: effort.switch(SwitchParameters::sb7890()),
    }
}

/// The testbed as `design` uses it, as far as its source or the paper says.
///
/// Inline: L5 requests it up to the limit of the queue pair (`setInline` of its WRITEs). SocksDirect's
/// `post_rdma_write` names a segment and sets no such flag. RB² WRITEs its slots from a registered array (§III-B,
/// Algorithm 1 lines 7 and 14), and the paper does not mention inline data at all; its pointers are left inline. Huge
/// pages: RB² and FaRM (Table I).
fn testbed_of(design: &Design, effort: Effort) -> Hosts {
    let mut hosts = testbed(effort);
    let rival = RIVALS.map(|rival| rival.name == design.name);
    let [farm, socks, l5] = rival;
    if !(l5 || farm) {
        hosts.nic.max_inline_bytes = POINTER_BYTES;
    }
    if socks || l5 {
        hosts.host.page_bytes = 4096.0;
    }
    hosts
}

/// Time to create a message in addition to what the ring charges, in nanoseconds: only the rest of L5's copy, which is
/// to `volatile` bytes and so goes byte by byte; the ring has charged it as an ordinary one.
fn making_ns(design: &Design, bytes: usize) -> u64 {
    if design.name == L5.name {
        (bytes as f64 * VOLATILE_BYTE_NS) as u64
    } else {
        0
    }
}

/// The computation of both ends of a ring of `design` with messages of `bytes`.
fn messages(design: &Design, bytes: usize) -> Compute {
    Compute {
        first_ns: making_ns(design, bytes),
        second_ns: 0,
        served_bytes: 0,
    }
}

/// Long enough to write the whole ring before the measurement and several times during it, as messages are announced in
/// bursts; at least a fifth of a millisecond. In a quick run, once before and once during it.
fn window(bytes: usize, effort: Effort) -> Window {
    let (warm, messages) = if effort.quick { (130, 130) } else { (160, 768) };
    // A hundred gigabits per second are 0.08 ns per byte.
    let time = |messages: u64| (bytes as u64 * messages * 8 / 100).max(200_000);
    Window {
        warm_ns: time(warm),
        measured_ns: time(messages),
    }
}

/// Runs a stream of messages of `bytes` on the testbed.
fn streamed(design: Design, bytes: usize, threads: usize, effort: Effort) -> Streamed {
    let config = records(design, bytes);
    let window = window(bytes, effort);
    let compute = messages(&design, bytes);
    let hosts = testbed_of(&design, effort);
    stream(&hosts, &config, bytes, threads, compute, window)
}

/// Runs a ping-pong of messages of `bytes` on the testbed (§V-A: one thread, or as many).
fn ping_pong(design: Design, bytes: usize, threads: usize, effort: Effort) -> Answered {
    let config = records(design, bytes);
    // As many as in the paper (§V-A). Long messages take hundreds of packets, and get a hundredth.
    let requests = match (bytes, effort.quick) {
        (..=65_536, false) => 300_000,
        (..=65_536, true) => 500,
        (_, false) => 3_000,
        (_, true) => 20,
    };
    let plan = Dialogue {
        there: config,
        back: config,
        bytes: (bytes, bytes),
        outstanding: 1,
        requests,
        threads,
        // Both ends make messages.
        compute: Compute {
            second_ns: making_ns(&design, bytes),
            ..messages(&design, bytes)
        },
    };
    dialogue(&testbed_of(&design, effort), plan)
}

/// Raw WRITEs as perftest's `ib_write_bw` makes them: one at a time, 128 outstanding, few completions. Millions per
/// second.
fn raw_writes(bytes: usize, effort: Effort) -> f64 {
    let plan = Plan {
        signal_every: 64,
        ..Plan::writes(bytes, 128)
    };
    one_requester(&testbed(effort), plan, window(bytes, effort))
}

/// The design with messages sent one at a time, which the paper uses for latencies.
fn unbatched(design: Design) -> Design {
    Design {
        batching: dunlin_ring::Batching::Off,
        ..design
    }
}

/// A short form of a size.
fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes / 1024),
        _ => format!("{} MB", bytes >> 20),
    }
}

/// Converts millions per second to gigabits per second.
fn gbit_s(mops: f64, bytes: usize) -> f64 {
    mops * bytes as f64 * 8.0 / 1_000.0
}

/// Minimum and maximum of some numbers.
fn extremes(numbers: impl IntoIterator<Item = f64>) -> (f64, f64) {
    numbers
        .into_iter()
        .fold((f64::MAX, f64::MIN), |(low, high), number| {
            (low.min(number), high.max(number))
        })
}
