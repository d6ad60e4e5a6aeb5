//! The cluster of a hunt: hosts with NICs of all kinds, on one switch or several.

use dunlin_sim::{
    Cluster, ClusterBuilder, HostId, HostParameters, NicParameters, SwitchParameters,
};

use crate::dice::Dice;

/// The cluster.
#[derive(Debug)]
pub(super) struct Terrain {
    pub(super) cluster: Cluster,
    pub(super) hosts: Vec<HostId>,
    pub(super) mtu_bytes: Vec<usize>,
    pub(super) cores: Vec<usize>,
    /// Hosts whose devices place a WRITE in order.
    pub(super) in_order: Vec<bool>,
    /// Whether switches pause senders instead of dropping.
    pub(super) lossless: bool,
    pub(super) name: String,
}

impl Terrain {
    /// A random host.
    pub(super) fn any_host(&self, dice: &mut Dice) -> HostId {
        self.hosts[dice.next() as usize % self.hosts.len()]
    }

    /// A random core of a host.
    pub(super) fn any_core(&self, host: HostId, dice: &mut Dice) -> usize {
        dice.next() as usize % self.cores[host.number()]
    }
}

pub(super) fn build(seed: u64, dice: &mut Dice) -> Terrain {
    let mut builder = ClusterBuilder::new(seed);
    let mut parameters = SwitchParameters::z9264f();
    let lossless = dice.chance(1, 2);
    parameters.lossless = f64::from(u8::from(lossless));
    if dice.chance(1, 3) {
        parameters.buffer_bytes = dice.between(20_000, 200_000) as f64;
        // A pause must begin before the shared buffer is full.
        parameters.pause_bytes = 8_000.0;
        parameters.resume_bytes = 4_000.0;
    }
    let switches: Vec<_> = (0..dice.between(1, 3))
        .map(|_| builder.switch(parameters.clone()))
        .collect();
    for pair in switches.windows(2) {
        for _ in 0..dice.between(1, 2) {
            builder.link(pair[0], pair[1], 100.0);
        }
    }
    let count = dice.between(2, 6);
    let (mut hosts, mut mtu_bytes, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cores, mut in_order) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut nic = match dice.between(0, 4) {
            0 => NicParameters::connectx_3(),
            1 => NicParameters::connect_ib(),
            2 => NicParameters::connectx_4_lx(),
            3 => NicParameters::connectx_5(),
            _ => NicParameters::connectx_6_dx(),
        };
        // All ends of a connection agree on the path's MTU.
        nic.mtu_bytes = 1024.0;
        let mut host = HostParameters::xeon_gold_5118();
        host.cores = dice.between(1, 4) as f64;
        cores.push(host.cores as usize);
        // Short, so that threads that share a core take many turns in a hunt.
        host.time_slice = 20_000_000;
        let switch = switches[dice.next() as usize % switches.len()];
        names.push(nic.name.clone());
        in_order.push(nic.in_order_placement != 0.0);
        mtu_bytes.push(nic.mtu_bytes as usize);
        hosts.push(builder.host(host, nic, switch));
    }
    let name = format!(
        "{} switches, lossless {lossless}, {}",
        switches.len(),
        names.join("+")
    );
    Terrain {
        cluster: builder.build(),
        hosts,
        mtu_bytes,
        cores,
        in_order,
        lossless,
        name,
    }
}
