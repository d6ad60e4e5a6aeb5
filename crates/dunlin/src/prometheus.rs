//! Statistics as Prometheus metrics (feature `prometheus`), through collectors for the crate `prometheus-client`: they
//! are read when they are scraped, so they cost nothing in between.
//!
//! ```
//! use dunlin::{prometheus::ServerCollector, Server};
//! use prometheus_client::registry::Registry;
//!
//! let server = Server::bind("dunlin://127.0.0.1:0")?.serve()?;
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(ServerCollector::new(server.observer())));
//! let mut text = String::new();
//! prometheus_client::encoding::text::encode(&mut text, &registry)?;
//! assert!(text.contains("dunlin_server_requests_total{device=\"shm\"} 0"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use dunlin_rpc::{Client, HandleFigures, SenderReport, ServerFigures, ServerObserver};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The metrics of a server: `dunlin_server_*`, and `dunlin_sender_*` for each client of the queue-pair scheduler. None
/// once the server has ended.
#[derive(Debug)]
pub struct ServerCollector(ServerObserver);

impl ServerCollector {
    /// Creates a collector for the server of `observer`.
    pub fn new(observer: ServerObserver) -> Self {
        Self(observer)
    }
}

/// The metrics of a client's connection handle: `dunlin_client_*`. None for presets whose threads do not share
/// connections.
#[derive(Debug)]
pub struct ClientCollector(Client);

impl ClientCollector {
    /// Creates a collector for `client` and its clones.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

/// One metric with several samples.
struct Samples<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
}

impl Samples<'_, '_> {
    fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        let Some((_, first)) = samples.peek() else {
            return Ok(());
        };
        let kind = first.metric_type();
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        samples.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
    }

    fn one(&mut self, name: &str, help: &str, metric: impl EncodeMetric) -> fmt::Result {
        let kind = metric.metric_type();
        metric.encode(self.encoder.encode_descriptor(name, help, None, kind)?)
    }
}

/// Labels, with the names used in the documentation of the metrics.
type Label = [(&'static str, String); 1];

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(figures) = self.0.figures() else {
            return Ok(());
        };
        let mut samples = Samples {
            encoder: &mut encoder,
        };
        server(&mut samples, &figures)?;
        senders(&mut samples, &figures.senders)
    }
}

fn server(samples: &mut Samples<'_, '_>, figures: &ServerFigures) -> fmt::Result {
    samples.one(
        "dunlin_server_uptime_seconds",
        "Seconds since the server started",
        ConstGauge::new(figures.uptime.as_secs_f64()),
    )?;
    samples.one(
        "dunlin_server_resident_bytes",
        "Resident memory of the server process in bytes",
        ConstGauge::new(figures.resident_bytes),
    )?;
    samples.one(
        "dunlin_server_max_connections",
        "Maximum number of simultaneous connections",
        ConstGauge::new(figures.max_connections as u64),
    )?;
    samples.one(
        "dunlin_server_max_active_queue_pairs",
        "Maximum number of queue pairs that are active at the same time",
        ConstGauge::new(figures.max_active_queue_pairs as u64),
    )?;
    samples.one(
        "dunlin_server_active_queue_pairs",
        "Queue pairs that may send now, of clients that count credits",
        ConstGauge::new(figures.active_queue_pairs() as u64),
    )?;
    let devices = || {
        let devices = figures.devices.iter();
        devices.map(|device| ([("device", device.name.clone())] as Label, device))
    };
    samples.family(
        "dunlin_server_connections",
        "Current number of connections",
        devices().map(|(label, device)| (label, ConstGauge::new(device.connections as u64))),
    )?;
    type Read = fn(&dunlin_rpc::ServerStatistics) -> u64;
    let counted: [(&str, &str, Read); 7] = [
        ("dunlin_server_requests", "Requests received", |s| {
            s.requests
        }),
        (
            "dunlin_server_connections_accepted",
            "Connections accepted",
            |s| s.accepted,
        ),
        (
            "dunlin_server_connections_closed",
            "Connections that have ended",
            |s| s.closed,
        ),
        (
            "dunlin_server_violations",
            "Connections closed because the client violated the protocol",
            |s| s.violations,
        ),
        (
            "dunlin_server_switches",
            "Slices that ended because another group of clients was waiting",
            |s| s.switches,
        ),
        (
            "dunlin_server_late_requests",
            "Requests that arrived after their client's turn",
            |s| s.late,
        ),
        (
            "dunlin_server_turn_words",
            "WRITEs that told clients of their turns because no response carried it",
            |s| s.turn_words,
        ),
    ];
    for (name, help, read) in counted {
        let values =
            devices().map(|(label, device)| (label, ConstCounter::new(read(&device.statistics))));
        samples.family(name, help, values)?;
    }
    samples.family(
        "dunlin_device_packets",
        "Packets dropped by the device, by reason, and packets retransmitted",
        figures.devices.iter().flat_map(|device| {
            device.packets.iter().map(|(event, count)| {
                let device = ("device", device.name.clone());
                (
                    [device, ("event", event.clone())],
                    ConstCounter::new(*count),
                )
            })
        }),
    )?;
    let counts = figures.handshakes.by_name().into_iter();
    samples.family(
        "dunlin_server_handshakes",
        "Handshakes started (accepted), and their outcomes",
        counts.map(|(event, count)| {
            let label: Label = [("event", event.to_owned())];
            (label, ConstCounter::new(count))
        }),
    )
}

fn senders(samples: &mut Samples<'_, '_>, senders: &[SenderReport]) -> fmt::Result {
    type Read = fn(&SenderReport) -> u64;
    let shown: [(&str, &str, Read); 5] = [
        ("dunlin_sender_lanes", "Queue pairs of a client", |sender| {
            sender.lanes.len() as u64
        }),
        (
            "dunlin_sender_active_lanes",
            "Queue pairs of a client that may send now",
            |sender| sender.lanes.iter().filter(|lane| lane.active).count() as u64,
        ),
        (
            "dunlin_sender_credits",
            "Credits of a client after its last grants",
            |sender| sender.lanes.iter().map(|lane| lane.credits).sum(),
        ),
        (
            "dunlin_sender_coalescing_degree",
            "Largest median coalescing degree last reported by a client's lanes",
            |sender| {
                sender
                    .lanes
                    .iter()
                    .map(|lane| lane.degree)
                    .max()
                    .unwrap_or(0)
            },
        ),
        (
            "dunlin_sender_dormant",
            "1 when a client sent nothing in the last interval",
            |sender| u64::from(sender.dormant),
        ),
    ];
    for (name, help, read) in shown {
        let values = senders.iter().map(|sender| {
            let label: Label = [("sender", format!("{:016x}", sender.sender))];
            (label, ConstGauge::new(read(sender)))
        });
        samples.family(name, help, values)?;
    }
    Ok(())
}

impl Collector for ClientCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Some(figures) = self.0.figures() else {
            return Ok(());
        };
        let mut samples = Samples {
            encoder: &mut encoder,
        };
        handle(&mut samples, &figures)
    }
}

fn handle(samples: &mut Samples<'_, '_>, figures: &HandleFigures) -> fmt::Result {
    samples.one(
        "dunlin_client_threads",
        "Threads, pipelines and lanes of futures that use the handle",
        ConstGauge::new(figures.threads as u64),
    )?;
    samples.one(
        "dunlin_client_migrations",
        "Threads that the scheduler moved to another lane",
        ConstCounter::new(figures.migrations),
    )?;
    samples.one(
        "dunlin_client_coalescing_degree",
        "Requests per message written, over the lifetime of the handle",
        ConstGauge::new(figures.coalescing_degree),
    )?;
    let lanes = || {
        let lanes = figures.lanes.iter().enumerate();
        lanes.map(|(index, lane)| ([("lane", index.to_string())] as Label, index, lane))
    };
    type Read = fn(&dunlin_rpc::LaneReport) -> u64;
    let gauges: [(&str, &str, Read); 3] = [
        (
            "dunlin_client_lane_active",
            "1 when the server wants requests on the lane",
            |lane| u64::from(lane.active),
        ),
        (
            "dunlin_client_lane_open",
            "1 when the lane accepts calls",
            |lane| u64::from(lane.open),
        ),
        ("dunlin_client_lane_credits", "Credits left", |lane| {
            u64::from(lane.credits)
        }),
    ];
    for (name, help, read) in gauges {
        let values = lanes().map(|(label, _, lane)| (label, ConstGauge::new(read(lane))));
        samples.family(name, help, values)?;
    }
    samples.family(
        "dunlin_client_lane_assigned_threads",
        "Threads that the scheduler assigned to the lane",
        lanes().map(|(label, index, _)| {
            let threads = figures.assignment.iter().filter(|&&lane| lane == index);
            (label, ConstGauge::new(threads.count() as u64))
        }),
    )?;
    let counters: [(&str, &str, Read); 2] = [
        ("dunlin_client_lane_messages", "Messages written", |lane| {
            lane.messages
        }),
        (
            "dunlin_client_lane_requests",
            "Requests in the messages written",
            |lane| lane.requests,
        ),
    ];
    for (name, help, read) in counters {
        let values = lanes().map(|(label, _, lane)| (label, ConstCounter::new(read(lane))));
        samples.family(name, help, values)?;
    }
    Ok(())
}
