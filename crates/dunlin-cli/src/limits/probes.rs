//! The list of the limits that a survey measures.

use std::io;
use std::time::Duration;

use super::survey::Unit;
use super::{copy, line, ring, tcp, udp};
use crate::histogram::Percentiles;

pub(super) type Run = Box<dyn Fn(Duration) -> io::Result<Found>>;

pub(super) enum Found {
    RoundTrip(Percentiles),
    One(f64),
}

pub(super) struct Probe {
    /// The beginning of its figures' names.
    pub(super) name: String,
    /// A description for output.
    pub(super) what: String,
    /// The unit of its figures.
    pub(super) unit: Unit,
    /// Measures it once.
    pub(super) run: Run,
}

fn trip(
    name: &str,
    what: &str,
    run: impl Fn(Duration) -> io::Result<Percentiles> + 'static,
) -> Probe {
    Probe {
        name: name.into(),
        what: what.into(),
        unit: Unit::Nanoseconds,
        run: Box::new(move |duration| run(duration).map(Found::RoundTrip)),
    }
}

fn one(
    name: impl Into<String>,
    what: impl Into<String>,
    unit: Unit,
    run: impl Fn(Duration) -> io::Result<f64> + 'static,
) -> Probe {
    Probe {
        name: name.into(),
        what: what.into(),
        unit,
        run: Box::new(move |duration| run(duration).map(Found::One)),
    }
}

pub(super) fn probes() -> Vec<Probe> {
    use Unit::{BytesPerSecond, PerSecond};
    let mut probes = vec![
        trip(
            "line_round_trip",
            "cache-line ping-pong between two cores",
            |d| Ok(line::ping_pong(d)),
        ),
        trip("ring_round_trip", "bare ring pair, 64 B, round trip", |d| {
            Ok(ring::round_trip(d))
        }),
    ];
    for outstanding in [1, 8, 64] {
        probes.push(one(
            format!("ring_pipelined_{outstanding}_per_s"),
            format!("bare ring pair, 64 B, {outstanding} outstanding"),
            PerSecond,
            move |d| Ok(ring::pipelined(outstanding, d)),
        ));
    }
    for together in [1, 8, 128] {
        probes.push(one(
            format!("spsc_by_{together}_per_s"),
            format!("one ring, 64 B messages, published by {together}"),
            PerSecond,
            move |d| Ok(ring::one_way(together, d)),
        ));
    }
    for (label, size) in [("4k", 4 << 10), ("64k", 64 << 10), ("1m", 1 << 20)] {
        probes.push(one(
            format!("copy_hot_{label}_bytes_per_s"),
            format!("copy {} KiB into shared memory, one core", size >> 10),
            BytesPerSecond,
            move |d| copy::hot(size, d),
        ));
        probes.push(one(
            format!("copy_handed_{label}_bytes_per_s"),
            format!("copy {} KiB, then read by the other core", size >> 10),
            BytesPerSecond,
            move |d| copy::handed_over(size, d),
        ));
    }
    probes.push(one(
        "copy_cold_64m_bytes_per_s",
        "copy 64 MiB, cold",
        BytesPerSecond,
        copy::cold,
    ));
    probes.push(trip(
        "udp_round_trip",
        "UDP loopback, 64 B, spinning",
        udp::round_trip,
    ));
    probes.push(one(
        "udp_plain_64_per_s",
        "UDP 64 B requests, 64 outstanding, plain",
        PerSecond,
        |d| udp::plain(64, d),
    ));
    probes.push(one(
        "udp_offload_128_per_s",
        "UDP 64 B requests, 128 outstanding, GSO and GRO",
        PerSecond,
        |d| udp::offloaded(128, d),
    ));
    probes.push(one(
        "udp_offload_4096_bytes_per_s",
        "UDP one way, 4096 B segments, GSO and GRO",
        BytesPerSecond,
        |d| udp::one_way_bytes_per_s(4096, d),
    ));
    probes.push(trip(
        "tcp_round_trip",
        "TCP loopback, 64 B, spinning",
        tcp::round_trip,
    ));
    probes.push(one(
        "tcp_batched_64_per_s",
        "TCP 64 B requests, 64 written together",
        PerSecond,
        |d| tcp::pipelined(64, d),
    ));
    probes.push(one(
        "tcp_1m_bytes_per_s",
        "TCP one way, 1 MiB writes",
        BytesPerSecond,
        tcp::one_way_bytes_per_s,
    ));
    probes
}
