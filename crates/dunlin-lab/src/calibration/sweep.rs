//! The READ sweeps of FaSST's authors (rdma_bench, rc-swarm): every machine reads from every other.

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use super::Residual;
use crate::csv;
use crate::load::{rate, swarm, Plan, Swarm, Window};
use crate::parallel;

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of the NIC in the file.
    pub nic: String,
    /// Number of machines.
    pub machines: usize,
    /// Threads per machine.
    pub threads: usize,
    /// Queue pairs of a thread to each other machine.
    pub virtual_machines: usize,
    /// Outstanding READs of a thread.
    pub window: usize,
    /// Bytes of a READ.
    pub bytes: usize,
    /// Millions per second and machine.
    pub mops: f64,
}

impl Point {
    /// The measurement with the model's error.
    pub fn residual(&self, compared: &Compared) -> Residual {
        let settings = [
            ("machines", self.machines),
            ("queue pairs to each machine", self.virtual_machines),
            ("outstanding", self.window),
            ("bytes", self.bytes),
        ];
        Residual {
            label: compared.label.clone(),
            error: compared.error(),
            kind: "READs",
            settings: settings.map(|(name, value)| (name, value as f64)).to_vec(),
        }
    }
}

/// A measurement and the model's value.
#[derive(Clone, Debug)]
pub struct Compared {
    /// What was measured.
    pub label: String,
    /// The measurement.
    pub paper: f64,
    /// The model's value.
    pub ours: f64,
}

impl Compared {
    /// Relative error of the model.
    pub fn error(&self) -> f64 {
        self.ours / self.paper - 1.0
    }
}

/// The measurements that come with the lab: facts from rdma_bench's results, each with its file.
const READS: &str = include_str!("../../data/reads.csv");

/// All measured points.
///
/// # Panics
/// Never: the data are compiled in, and a test reads them.
pub fn points() -> Vec<Point> {
    let point = |line: &str| {
        let row = csv::split(line);
        let number = |column: usize| {
            row[column]
                .parse::<f64>()
                .expect("numbers from column 2 on")
        };
        Point {
            nic: row[0].clone(),
            machines: number(2) as usize,
            threads: number(3) as usize,
            virtual_machines: number(4) as usize,
            window: number(5) as usize,
            bytes: number(6) as usize,
            mops: number(7),
        }
    };
    READS.lines().skip(1).map(point).collect()
}

/// Runs the points on `nic` with a seed, which determines which contexts collide in the NICs' caches; each for about
/// this many operations per machine, after as many to warm up.
pub fn run(
    seed: u64,
    points: &[Point],
    nic: &NicParameters,
    operations: u64,
    threads: usize,
) -> Vec<Compared> {
    let (host, switch) = (HostParameters::xeon_e5_v4(), SwitchParameters::sx6036());
    parallel::map(threads, points, |point| {
        let load = Swarm {
            machines: point.machines,
            threads: point.threads,
            virtual_machines: point.virtual_machines,
            transport: Transport::ReliableConnection,
            plan: Plan::reads(point.bytes, point.window),
        };
        let time = (operations as f64 * 1_000.0 / point.mops) as u64;
        let window = Window {
            warm_ns: time,
            measured_ns: time,
        };
        let cluster = swarm(seed, load, &host, nic, &switch);
        let rates = rate(&cluster, &cluster.hosts(), window);
        let sum: f64 = rates
            .iter()
            .map(|rate| rate.mops(|c| c.requests_started))
            .sum();
        let Point {
            machines,
            virtual_machines,
            window,
            bytes,
            mops,
            ..
        } = *point;
        Compared {
            label: format!(
                "{}: {machines} machines x {virtual_machines} vm, window {window}, {bytes} B",
                point.nic
            ),
            paper: mops,
            ours: sum / rates.len() as f64,
        }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_points_are_read() {
        let points = super::points();
        assert_eq!(
            points
                .iter()
                .filter(|point| point.nic == "ConnectX-3")
                .count(),
            107
        );
        assert_eq!(
            points
                .iter()
                .filter(|point| point.nic == "Connect-IB")
                .count(),
            94
        );
    }
}
