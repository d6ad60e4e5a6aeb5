//! The figures of RB²: its micro-benchmark (Fig. 3), Exp#1 to Exp#4 and the three cases, with the rings of `dunlin-ring`.
//!
//! The testbed is the paper's (§V-A): two hosts with Xeon Gold 5118 and ConnectX-5 behind an InfiniBand switch, N = 128, slot size is
//! message size. FaRM is the paper's modification for a NIC that places in any order.

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

use dunlin_ring::{Design, RingConfig};
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use crate::figure::Effort;
use crate::load::{
    dialogue, one_requester, stream, Answered, Compute, Dialogue, Hosts, Plan, Streamed, Window,
};

/// What making or reading a message takes beside verbs, copies and empty polls, in nanoseconds: this engine moves 65.1 M messages
/// a second over shared memory (`docs/rb2.md`), so its slower end takes 15. Declared before any figure was run.
const MESSAGE_NS: u64 = 15;
const MESSAGES: Compute = Compute {
    first_ns: MESSAGE_NS,
    second_ns: MESSAGE_NS,
};

/// The rivals of RB² in the paper's figures.
const RIVALS: [Design; 3] = [Design::FARM_UNORDERED, Design::SOCKSDIRECT, Design::L5];

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
    // On InfiniBand, where the file is for Ethernet.
    nic.header_bytes = 26.0;
    Hosts {
        host: effort.host(HostParameters::xeon_gold_5118()),
        nic,
        switch: effort.switch(SwitchParameters::sb7890()),
    }
}

/// Long enough to write the whole ring before and several times during the measurement, as messages are told of in bursts; at least a
/// fifth of a millisecond. Quickly it is once before and once during it.
fn window(bytes: usize, effort: Effort) -> Window {
    let (warm, messages) = if effort.quick { (130, 130) } else { (160, 768) };
    // A hundred gigabits a second are 0.08 ns a byte.
    let time = |messages: u64| (bytes as u64 * messages * 8 / 100).max(200_000);
    Window {
        warm_ns: time(warm),
        measured_ns: time(messages),
    }
}

/// A stream of messages of `bytes` on the testbed.
fn streamed(design: Design, bytes: usize, threads: usize, effort: Effort) -> Streamed {
    let config = records(design, bytes);
    let window = window(bytes, effort);
    stream(&testbed(effort), &config, bytes, threads, MESSAGES, window)
}

/// Ping-pong of messages of `bytes` on the testbed (§V-A: one thread, or as many).
fn ping_pong(design: Design, bytes: usize, threads: usize, effort: Effort) -> Answered {
    let config = records(design, bytes);
    let requests = match (bytes, effort.quick) {
        (..=65_536, false) => 4_000,
        (..=65_536, true) => 500,
        (_, false) => 300,
        (_, true) => 20,
    };
    let plan = Dialogue {
        there: config,
        back: config,
        bytes: (bytes, bytes),
        outstanding: 1,
        requests,
        threads,
        compute: MESSAGES,
    };
    dialogue(&testbed(effort), plan)
}

/// Raw WRITEs as perftest's `ib_write_bw` makes them: one at a time, 128 under way, few completions. Millions a second.
fn raw_writes(bytes: usize, effort: Effort) -> f64 {
    let plan = Plan {
        signal_every: 64,
        ..Plan::writes(bytes, 128)
    };
    one_requester(&testbed(effort), plan, window(bytes, effort))
}

/// Messages sent one at a time: what the paper uses where latency counts.
fn unbatched(design: Design) -> Design {
    Design {
        batching: dunlin_ring::Batching::Off,
        ..design
    }
}

/// A size in few letters.
fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes / 1024),
        _ => format!("{} MB", bytes >> 20),
    }
}

/// Millions a second times bytes as gigabits a second.
fn gbit_s(mops: f64, bytes: usize) -> f64 {
    mops * bytes as f64 * 8.0 / 1_000.0
}

/// Least and greatest of some numbers.
fn extremes(numbers: impl IntoIterator<Item = f64>) -> (f64, f64) {
    numbers
        .into_iter()
        .fold((f64::MAX, f64::MIN), |(low, high), number| {
            (low.min(number), high.max(number))
        })
}
