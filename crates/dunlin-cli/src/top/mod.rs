//! What `dunlin top` shows: a server's figures per second, from the difference between two reads of its counters.

pub mod draw;
pub mod plain;

use std::collections::VecDeque;
use std::time::Duration;

use dunlin::{ClientReport, SenderReport, ServerFigures};
use serde::Serialize;

/// Looks that the curve of the rate remembers.
const REMEMBERED: usize = 512;

/// What one update shows. It is the object that `--json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// The server.
    pub address: String,
    /// Seconds since it began.
    pub uptime_s: f64,
    /// Requests per second since the last update.
    pub requests_per_s: f64,
    /// Bytes of its process in memory.
    pub resident_bytes: u64,
    /// Connections now, and at most.
    pub connections: usize,
    /// See `connections`.
    pub max_connections: usize,
    /// Queue pairs that may send now, of clients that count credits, and at most.
    pub active_queue_pairs: usize,
    /// See `active_queue_pairs`.
    pub max_active_queue_pairs: usize,
    /// Each device.
    pub devices: Vec<DeviceView>,
    /// How handshakes ended so far; what never happened is left out.
    pub handshakes: Vec<(&'static str, u64)>,
    /// Clients that count credits, the busiest first.
    pub senders: Vec<SenderView>,
    /// Clients that tell the server about themselves.
    pub clients: Vec<ClientView>,
}

/// A device of the server.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// Connections now.
    pub connections: usize,
    /// Requests per second since the last update.
    pub requests_per_s: f64,
    /// Requests so far.
    pub requests: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Of these, for breaking the protocol.
    pub violations: u64,
    /// The device's packet counters; those that are zero are left out.
    pub packets: Vec<(String, u64)>,
}

/// A client that counts credits.
#[derive(Clone, Debug, Serialize)]
pub struct SenderView {
    /// The name that it chose at random.
    pub sender: String,
    /// Its queue pairs that may send.
    pub active_lanes: usize,
    /// All its queue pairs.
    pub lanes: usize,
    /// Credits after the last grants.
    pub credits: u64,
    /// The largest median coalescing degree that its lanes reported last.
    pub coalescing_degree: u64,
    /// It sent nothing in the scheduler's last interval.
    pub dormant: bool,
}

/// A client, as it reports itself.
#[derive(Clone, Debug, Serialize)]
pub struct ClientView {
    /// Its name.
    pub name: String,
    /// Its preset.
    pub preset: String,
    /// Threads that the client's scheduler has put on each lane; empty when it shares no lanes.
    pub threads_of_lanes: Vec<usize>,
    /// Threads that were moved to another lane.
    pub migrations: u64,
    /// Requests for each message that it wrote.
    pub coalescing_degree: f64,
}

/// Turns looks into views.
#[derive(Debug)]
pub struct History {
    address: String,
    last: Option<ServerFigures>,
    /// Requests per second at the last updates, the newest last.
    pub rates: VecDeque<u64>,
}

impl History {
    /// Of the server at `address`.
    pub fn new(address: String) -> Self {
        Self {
            address,
            last: None,
            rates: VecDeque::with_capacity(REMEMBERED),
        }
    }

    /// One more look; `None` for the first, which has nothing to compare with. A server that was restarted is compared
    /// with its beginning.
    pub fn look(&mut self, now: ServerFigures) -> Option<View> {
        let mut last = self.last.replace(now.clone())?;
        if last.uptime > now.uptime {
            last = ServerFigures::default();
        }
        let elapsed = now.uptime.saturating_sub(last.uptime);
        let view = view(&self.address, &last, &now, elapsed);
        if self.rates.len() == REMEMBERED {
            self.rates.pop_front();
        }
        self.rates.push_back(view.requests_per_s as u64);
        Some(view)
    }
}

fn view(address: &str, last: &ServerFigures, now: &ServerFigures, elapsed: Duration) -> View {
    // Two updates within a nanosecond have no rate.
    let by_second =
        |now: u64, last: u64| now.saturating_sub(last) as f64 / elapsed.as_secs_f64().max(1e-9);
    let devices = now.devices.iter().map(|device| {
        let before = last.devices.iter().find(|old| old.name == device.name);
        let before = before.map_or(0, |old| old.statistics.requests);
        DeviceView {
            name: device.name.clone(),
            connections: device.connections,
            requests_per_s: by_second(device.statistics.requests, before),
            requests: device.statistics.requests,
            closed: device.statistics.closed,
            violations: device.statistics.violations,
            packets: (device.packets.iter())
                .filter(|(_, count)| *count > 0)
                .cloned()
                .collect(),
        }
    });
    let mut senders: Vec<_> = now.senders.iter().map(sender).collect();
    senders.sort_by_key(|sender| {
        let busy = (sender.dormant, std::cmp::Reverse(sender.coalescing_degree));
        (busy, sender.sender.clone())
    });
    let handshakes = now.handshakes.by_name().into_iter();
    View {
        address: address.to_owned(),
        uptime_s: now.uptime.as_secs_f64(),
        requests_per_s: by_second(now.statistics.requests, last.statistics.requests),
        resident_bytes: now.resident_bytes,
        connections: now.connections(),
        max_connections: now.max_connections,
        active_queue_pairs: now.active_queue_pairs(),
        max_active_queue_pairs: now.max_active_queue_pairs,
        devices: devices.collect(),
        handshakes: handshakes.filter(|(_, count)| *count > 0).collect(),
        senders,
        clients: now.clients.iter().map(client).collect(),
    }
}

fn client(report: &ClientReport) -> ClientView {
    let handle = report.handle.clone().unwrap_or_default();
    let mut threads_of_lanes = vec![0; handle.lanes.len()];
    for &lane in &handle.assignment {
        // Lanes that were never said to exist are a client's mistake.
        if let Some(threads) = threads_of_lanes.get_mut(lane) {
            *threads += 1;
        }
    }
    ClientView {
        // An unauthenticated client may have chosen it: nothing in it may control the terminal.
        name: report.name.chars().filter(|c| !c.is_control()).collect(),
        preset: report.preset.chars().filter(|c| !c.is_control()).collect(),
        threads_of_lanes,
        migrations: handle.migrations,
        coalescing_degree: handle.coalescing_degree,
    }
}

fn sender(report: &SenderReport) -> SenderView {
    let lanes = &report.lanes;
    SenderView {
        sender: format!("{:016x}", report.sender),
        active_lanes: lanes.iter().filter(|lane| lane.active).count(),
        lanes: lanes.len(),
        credits: lanes
            .iter()
            .fold(0, |sum, lane| sum.saturating_add(lane.credits)),
        coalescing_degree: lanes.iter().map(|lane| lane.degree).max().unwrap_or(0),
        dormant: report.dormant,
    }
}

/// Formats hours, minutes and seconds.
pub fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin::{HandleFigures, LaneReport};

    /// Figures of a server that has taken `requests` after `seconds`.
    pub(super) fn figures(seconds: u64, requests: u64) -> ServerFigures {
        let mut figures = ServerFigures::default();
        figures.uptime = Duration::from_secs(seconds);
        figures.max_connections = 4096;
        figures.statistics.requests = requests;
        figures
    }

    #[test]
    fn rates_come_from_two_looks() {
        let mut history = History::new("dunlin://a:1".into());
        assert!(history.look(figures(10, 1000)).is_none());
        let view = history.look(figures(12, 5000)).unwrap();
        assert_eq!(view.requests_per_s, 2000.0);
        assert_eq!(history.rates, [2000]);
    }

    #[test]
    fn a_restarted_server_counts_from_its_beginning() {
        let mut history = History::new("dunlin://a:1".into());
        history.look(figures(1000, 9_000_000));
        let view = history.look(figures(2, 100)).unwrap();
        assert_eq!(view.requests_per_s, 50.0);
    }

    #[test]
    fn a_clients_words_steer_no_terminal() {
        let mut now = figures(2, 1);
        let mut report = ClientReport::default();
        report.name = "web\x1b[2J".into();
        let mut handle = HandleFigures::default();
        handle.lanes = vec![LaneReport::default(); 2];
        handle.assignment = vec![1, 1, 0, 77];
        report.handle = Some(handle);
        now.clients.push(report);
        let mut history = History::new("dunlin://a:1".into());
        history.look(figures(1, 0));
        let view = history.look(now).unwrap();
        assert_eq!(view.clients[0].name, "web[2J");
        assert_eq!(view.clients[0].threads_of_lanes, [1, 2]);
    }

    #[test]
    fn the_time_that_a_server_is_up() {
        assert_eq!(uptime(3_725.9), "1:02:05");
    }
}
