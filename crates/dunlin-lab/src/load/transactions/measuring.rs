//! A window of transactions, and its results.

use std::sync::atomic::Ordering;

use super::super::measure::{warm_up, Counting, Latencies};
use super::super::rpc::DATAGRAMS;
use super::TransactionsBench;

/// Results of a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionsResult {
    /// Millions of committed transactions per second, of all clients.
    pub mtps: f64,
    /// Share of transactions that others prevented from committing, among those that could commit.
    pub aborted: f64,
    /// Median latency of committed transactions, in microseconds.
    pub median_us: f64,
    /// 99th percentile of this latency.
    pub p99_us: f64,
    /// Requests per message written by clients; 1 for presets without a connection handle.
    pub degree: f64,
    /// Requests answered by machines per WRITE or SEND of theirs.
    pub server_degree: f64,
    /// Requests answered by machines per committed transaction.
    pub requests: f64,
    /// Packets sent by storing machines per committed transaction.
    pub packets: f64,
    /// Number of busy cores of a storing machine.
    pub server_cores: f64,
    /// Share of the time in which polling cores were busy, for machines that do nothing else.
    pub server_busy: f64,
    /// Datagrams that found no RECEIVE, since the machines began.
    pub dropped: f64,
    /// Transactions that ended with an error, since the machines began.
    pub failed: u64,
    /// Connections of a machine that threads use for calls.
    pub connections: usize,
}

impl TransactionsBench {
    /// Lets schedulers see all threads at a low rate for `paced_ns`, then lets all threads run without limit: warms up
    /// and measures.
    pub fn measure(&self, paced_ns: u64, warm_ns: u64, measured_ns: u64) -> TransactionsResult {
        if paced_ns > 0 {
            self.cluster.run_for(paced_ns);
        }
        self.shared.paced.store(false, Ordering::Relaxed);
        let preset = self.chosen().0.unwrap_or(self.plan.preset);
        match DATAGRAMS.contains(&preset) && self.plan.uses_queues {
            true => warm_up(&self.cluster, &self.shared.calls, warm_ns),
            false => self.cluster.run_for(warm_ns),
        }
        let hosts = self.cluster.hosts();
        let stores = &hosts[..self.plan.stores];
        let requests = || -> u64 {
            let each = self.stores.iter();
            each.map(|store| store.server().statistics().requests).sum()
        };
        let sent = || self.sent();
        let (asked, messages) = (requests(), sent());
        let counting = Counting::begin(&self.cluster, stores);
        for count in [&self.counts.committed, &self.counts.aborted] {
            count.store(0, Ordering::Relaxed);
        }
        self.shared.measuring.store(true, Ordering::Relaxed);
        self.cluster.run_for(measured_ns);
        self.shared.measuring.store(false, Ordering::Relaxed);
        let counted = counting.end();
        let (asked, more) = ((requests() - asked) as f64, sent());
        let latencies = Latencies::take(&self.shared.latencies_ns);
        let committed = self.counts.committed.load(Ordering::Relaxed) as f64;
        let aborted = self.counts.aborted.load(Ordering::Relaxed) as f64;
        let cores = (self.plan.pollers * self.plan.stores) as f64;
        let wrote = (more.0 - messages.0) as f64;
        let connections = self.stores[0].server().connections();
        TransactionsResult {
            mtps: committed * 1e3 / measured_ns as f64,
            aborted: aborted / (committed + aborted).max(1.0),
            median_us: latencies.us(0.5),
            p99_us: latencies.us(0.99),
            degree: match wrote > 0.0 {
                true => (more.1 - messages.1) as f64 / wrote,
                false => 1.0,
            },
            server_degree: asked / counted.all(|c| c.requests_started).max(1.0),
            requests: asked / committed.max(1.0),
            packets: counted.all(|c| c.packets_sent) / committed.max(1.0),
            server_cores: counted.all(|c| c.busy_ps)
                / (measured_ns as f64 * 1e3)
                / stores.len() as f64,
            server_busy: counted.all(|c| c.busy_ps) / (measured_ns as f64 * 1e3 * cores),
            dropped: counted.since_the_beginning(|c| c.receiver_drops),
            failed: self.shared.failed.load(Ordering::Relaxed),
            connections: match DATAGRAMS.contains(&preset) {
                // Over datagrams each client also has one of its own, which no thread uses.
                true => connections - self.databases.len(),
                false => connections,
            },
        }
    }

    /// Number of messages and requests written by clients so far.
    fn sent(&self) -> (u64, u64) {
        let handles = self
            .databases
            .iter()
            .flat_map(|(database, _)| database.lanes());
        handles.fold((0, 0), |sum, (messages, requests)| {
            (sum.0 + messages, sum.1 + requests)
        })
    }
}
