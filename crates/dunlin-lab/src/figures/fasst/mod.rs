//! FaSST's figures: the READs that it is compared with, which the model was calibrated with, and its RPC with the
//! presets of `dunlin-rpc`.
//!
//! The testbeds are the paper's: eleven machines with Connect-IB of 14 cores each, or with ConnectX-3 of 8; READs of
//! the small cluster from six machines. What it leaves open is declared here: 20 coroutines on each core that calls,
//! requests and responses of 32 bytes, a handler of 20 ns, the processor of ScaleRPC's testbed for both clusters (their
//! own is one generation older, at a similar clock), and batches of up to ten requests, as many as there are other
//! machines. Each core's thread calls and answers, as FaSST's do.

mod build_up;
mod cores;
mod latency;
mod limits;
mod loss;
mod medium;
mod reads;
mod single_key;
mod small;
mod transactions;

pub(super) use build_up::FIGURE as BUILD_UP;
pub(super) use cores::FIGURE as CORES;
pub(super) use latency::FIGURE as LATENCY;
pub(super) use limits::FIGURE as LIMITS;
pub(super) use loss::FIGURE as LOSS;
pub(super) use medium::FIGURE as MEDIUM;
pub(super) use reads::{CONNECTX_3, CONNECT_IB};
pub(super) use single_key::FIGURE as SINGLE_KEY;
pub(super) use small::FIGURE as SMALL;
pub(super) use transactions::FIGURE as TRANSACTIONS;

use dunlin::Preset;
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use super::system::System;
use crate::figure::Effort;
use crate::load::{all_to_all, rate, swarm, AllToAll, AllToAllResult, Plan, Swarm, Window};

/// The presets shown: the paper's, and what users get.
const PRESETS: [Preset; 2] = [Preset::Fasst, Preset::Auto];

/// The system by which claims are judged.
fn fasst() -> System {
    System::published(Preset::Fasst)
}

/// A testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Testbed {
    /// ConnectX-3, 8 cores.
    Cx3,
    /// Connect-IB, 14 cores.
    Cib,
}

impl Testbed {
    fn name(self) -> &'static str {
        match self {
            Self::Cx3 => "ConnectX-3",
            Self::Cib => "Connect-IB",
        }
    }

    fn cores(self) -> usize {
        match self {
            Self::Cx3 => 8,
            Self::Cib => 14,
        }
    }

    fn nic(self, effort: Effort) -> NicParameters {
        effort.nic(match self {
            Self::Cx3 => NicParameters::connectx_3(),
            Self::Cib => NicParameters::connect_ib(),
        })
    }

    fn switch(self, effort: Effort) -> SwitchParameters {
        effort.switch(match self {
            Self::Cx3 => SwitchParameters::sx1012(),
            Self::Cib => SwitchParameters::sx6036(),
        })
    }

    fn cluster(self, machines: usize, effort: Effort) -> Cluster {
        let host = effort.host(HostParameters::xeon_e5_v4());
        Cluster::star(
            effort.seed,
            machines,
            &host,
            &self.nic(effort),
            &self.switch(effort),
        )
    }

    /// A load with threads on all cores; on two for a quick run.
    fn load(self, system: System, effort: Effort) -> AllToAll {
        let cores = if effort.quick { 2 } else { self.cores() };
        AllToAll {
            batches: [system.batches(); 2],
            ..AllToAll::new(system.preset, 0, cores)
        }
    }

    /// Runs RPC between this many machines.
    fn rpc(self, machines: usize, plan: &AllToAll, effort: Effort) -> AllToAllResult {
        let window = match effort.quick {
            true => Window {
                warm_ns: 40_000,
                measured_ns: 40_000,
            },
            false => Window {
                // Some rounds of a thread with 200 requests outstanding, which take 50 us each.
                warm_ns: 300_000,
                measured_ns: 300_000,
            },
        };
        self.all_to_all(machines, plan, window, effort)
    }

    /// The same for long enough to count the cost of a call when few are outstanding: a call that begins before the
    /// measurement and ends in it is one too many.
    fn rpc_counted(self, machines: usize, plan: &AllToAll, effort: Effort) -> AllToAllResult {
        let window = Window {
            warm_ns: 300_000,
            measured_ns: if effort.quick { 300_000 } else { 3_000_000 },
        };
        self.all_to_all(machines, plan, window, effort)
    }

    fn all_to_all(
        self,
        machines: usize,
        plan: &AllToAll,
        window: Window,
        effort: Effort,
    ) -> AllToAllResult {
        let found = all_to_all(&self.cluster(machines, effort), plan, window);
        let failed = found.failed;
        assert_eq!(
            failed,
            (0, 0),
            "calls that failed or were answered wrongly: {plan:?}"
        );
        found
    }

    /// Millions of READs per second of a machine: all cores, `virtual_machines` queue pairs of each to each other
    /// machine, the best window.
    fn reads(self, machines: usize, virtual_machines: usize, bytes: usize, effort: Effort) -> f64 {
        let rate_of = |window: usize| {
            let load = Swarm {
                machines,
                threads: if effort.quick { 2 } else { self.cores() },
                virtual_machines,
                transport: Transport::ReliableConnection,
                plan: Plan {
                    signal_every: 1,
                    ..Plan::reads(bytes, window)
                },
            };
            let host = effort.host(HostParameters::xeon_e5_v4());
            let (nic, switch) = (self.nic(effort), self.switch(effort));
            let cluster = swarm(effort.seed, load, &host, &nic, &switch);
            rate(&cluster, &cluster.hosts()[..1], Window::SHORT)[0].mops(|c| c.requests_started)
        };
        match effort.quick {
            true => rate_of(16),
            false => [8, 16, 32].into_iter().map(rate_of).fold(0.0, f64::max),
        }
    }
}

/// Number of machines of the cluster that RPC runs on.
fn machines(effort: Effort) -> usize {
    if effort.quick {
        3
    } else {
        11
    }
}
