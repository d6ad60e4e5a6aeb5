//! WRITEs as perftest's `ib_write_bw` sends them: each queue pair keeps a number of them outstanding, independently of
//! the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_sim::{Cluster, Next, SimCompletionQueue, SimQueuePair, SimRegion, Step};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region,
    RemoteAddress, Segment, SendFlags, SendRequest, Transport,
};

use super::{connect, Cable, End, Window};

/// Maximum number of completions that a step takes.
const BATCH: usize = 16;

/// Load of each flow.
#[derive(Clone, Copy, Debug)]
pub struct Perftest {
    /// Queue pairs of each flow.
    pub queue_pairs: usize,
    /// Bytes of a WRITE.
    pub bytes: usize,
    /// WRITEs that a queue pair keeps outstanding.
    pub depth: usize,
}

impl Perftest {
    /// Runs these flows between hosts, given by their indices in the cluster, each with a thread of its own; returns
    /// the payload of each in gigabits per second.
    ///
    /// # Panics
    /// When a device refuses.
    pub fn run(&self, cluster: &Cluster, flows: &[(usize, usize)], window: Window) -> Vec<f64> {
        let hosts = cluster.hosts();
        let mut cores = vec![0; hosts.len()];
        let done: Vec<Arc<AtomicU64>> = flows.iter().map(|_| Arc::default()).collect();
        for (&(from, to), done) in flows.iter().zip(&done) {
            let sender = self.sender(cluster, (from, to), Arc::clone(done));
            cluster.spawn(hosts[from], cores[from], sender);
            cores[from] += 1;
        }
        let counts = || -> Vec<u64> {
            let of = |done: &Arc<AtomicU64>| done.load(Ordering::Relaxed);
            done.iter().map(of).collect()
        };
        cluster.run_for(window.warm_ns);
        let before = counts();
        cluster.run_for(window.measured_ns);
        let bits = (8 * self.bytes) as f64;
        let rate = |(after, before): (u64, u64)| {
            (after - before) as f64 * bits / window.measured_ns as f64
        };
        counts().into_iter().zip(before).map(rate).collect()
    }

    fn sender(
        &self,
        cluster: &Cluster,
        (from, to): (usize, usize),
        done: Arc<AtomicU64>,
    ) -> Sender {
        let hosts = cluster.hosts();
        let devices = [from, to].map(|host| cluster.device(hosts[host]));
        let domains = devices
            .each_ref()
            .map(|device| device.create_protection_domain().expect("a domain"));
        let most = self.queue_pairs * self.depth;
        let queues = devices
            .each_ref()
            .map(|device| device.create_completion_queue(most, None).expect("a queue"));
        let regions = [0, 1].map(|end| {
            let region = devices[end].allocate_region(&domains[end], self.bytes, Access::all());
            region.expect("memory")
        });
        let cable = Cable {
            transport: Transport::ReliableConnection,
            sends: self.depth,
            receives: 1,
            inline_bytes: 0,
        };
        let [here, there] = [0, 1].map(|end| End {
            device: &devices[end],
            domain: &domains[end],
            completions: &queues[end],
        });
        let pairs = (0..self.queue_pairs).map(|_| connect(&here, &there, cable));
        let (own, others): (Vec<_>, Vec<_>) = pairs.unzip();
        let [completions, of_others] = queues;
        let [local, remote] = regions;
        Sender {
            bytes: self.bytes,
            // Each queue pair posts as many WRITEs as may be outstanding, in turn.
            free: (0..self.depth).flat_map(|_| 0..self.queue_pairs).collect(),
            pairs: own,
            completions,
            local,
            place: remote.remote(),
            done,
            _peer: (others, of_others, remote),
        }
    }
}

/// The thread of a flow.
struct Sender {
    bytes: usize,
    pairs: Vec<SimQueuePair>,
    completions: SimCompletionQueue,
    local: SimRegion,
    place: RemoteAddress,
    /// Queue pairs that may post, once for each WRITE that they may post.
    free: Vec<usize>,
    done: Arc<AtomicU64>,
    /// Keeps the objects of the receiving side alive.
    _peer: (Vec<SimQueuePair>, SimCompletionQueue, SimRegion),
}

impl Step for Sender {
    fn step(&mut self, _now_ns: u64) -> Next {
        let mut some = [Completion::EMPTY; BATCH];
        let count = self.completions.poll(&mut some).expect("room for all");
        for completion in &some[..count] {
            assert!(completion.is_success(), "{completion:?}");
            self.free.push(completion.id as usize);
        }
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        for _ in 0..BATCH {
            let Some(pair) = self.free.pop() else { break };
            let segments = [Segment {
                region: &self.local,
                offset: 0,
                length: self.bytes,
            }];
            let operation = Operation::Write {
                remote: self.place,
                immediate: None,
            };
            let payload = Payload::Segments(&segments);
            let request = SendRequest::new(pair as u64, operation, payload, SendFlags::SIGNALED);
            self.pairs[pair].post_send(&[request]).expect("room");
        }
        match count == 0 && self.free.is_empty() {
            true => Next::Poll,
            false => Next::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

    /// With NICs that the figure does not use.
    #[test]
    fn two_senders_share_a_port() {
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
        let cluster = Cluster::star(1, 3, &host, &nic, &SwitchParameters::sx1012());
        let plan = Perftest {
            queue_pairs: 2,
            bytes: 16 << 10,
            depth: 2,
        };
        let window = Window {
            warm_ns: 200_000,
            measured_ns: 1_000_000,
        };
        let rates = plan.run(&cluster, &[(0, 2), (1, 2)], window);
        let all: f64 = rates.iter().sum();
        assert!((0.8..1.0).contains(&(all / nic.link_gbit_s)), "{rates:?}");
        assert!((0.9..1.1).contains(&(rates[0] / rates[1])), "{rates:?}");
    }
}
