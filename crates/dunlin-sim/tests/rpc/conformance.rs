//! The conformance suite of every RPC preset between simulated hosts, with packets that are lost, duplicated or late.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_rpc::conformance::{hostile, Job, Serving, Skipped, Weather, World};
use dunlin_rpc::{Client, ClientBuilder, Preset, ServerBuilder};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, RuleGuard, SwitchParameters,
};

/// A server's host and a client's.
struct Hosts {
    cluster: Cluster,
    weather: Mutex<Vec<RuleGuard>>,
}

fn hosts() -> Hosts {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    Hosts {
        cluster: Cluster::star(7, 2, &host, &nic, &switch),
        weather: Mutex::new(Vec::new()),
    }
}

impl Hosts {
    fn run_all(&self, jobs: Vec<Job<'static>>) {
        let running = Arc::new(AtomicUsize::new(jobs.len()));
        for (core, job) in jobs.into_iter().enumerate() {
            let running = Arc::clone(&running);
            let host = self.cluster.hosts()[1];
            self.cluster.spawn_thread(host, core, move || {
                job();
                running.fetch_sub(1, Ordering::Release);
            });
        }
        // A minute of virtual time.
        for _ in 0..60_000 {
            if running.load(Ordering::Acquire) == 0 {
                return;
            }
            self.cluster.run_for(1_000_000);
        }
        panic!("a minute of virtual time, and a thread has not ended");
    }
}

impl World for Hosts {
    fn name(&self) -> String {
        "sim".to_owned()
    }

    fn is_not_real(&self) -> Option<&'static str> {
        Some("simulated hosts have no ports, and a test's own thread is not of them")
    }

    fn serve(&self, server: ServerBuilder, _: Option<&Serving>) -> Serving {
        let device = self.cluster.device(self.cluster.hosts()[0]);
        let server = server.pollers(2).pin_pollers(0);
        Serving::Local(server.serve_on(device).expect("a server"))
    }

    fn device_of(&self, preset: Preset) -> Option<String> {
        (preset == Preset::Flor).then(|| "flor-sim".to_owned())
    }

    fn connect(&self, client: ClientBuilder, server: &Serving) -> Client {
        let Serving::Local(server) = server else {
            unreachable!("this world's servers have acceptors");
        };
        let device = self.cluster.device(self.cluster.hosts()[1]);
        client
            .connect_on(device, &server.acceptor())
            .expect("a client")
    }

    fn part(&self, client: Client) {
        self.run_all(vec![Box::new(move || drop(client))]);
    }

    fn run(&self, jobs: Vec<Job<'static>>) {
        self.run_all(jobs);
    }

    fn wait_until(&self, what: &str, holds: &dyn Fn() -> bool) {
        for _ in 0..30_000 {
            if holds() {
                return;
            }
            self.cluster.run_for(1_000_000);
        }
        panic!("not within 30 s of virtual time: {what}");
    }

    fn hostile(
        &self,
        server: &Serving,
        preset: Preset,
        seed: u64,
    ) -> Result<Job<'static>, Skipped> {
        let Serving::Local(server) = server else {
            unreachable!("this world's servers have acceptors");
        };
        let device = self.cluster.device(self.cluster.hosts()[1]);
        let door = hostile::Door::acceptor(server);
        Ok(hostile::peer(device, door, preset, seed))
    }

    fn set_weather(&self, weather: Option<Weather>) -> bool {
        let mut rules = self.weather.lock().expect("no panic");
        rules.clear();
        if let Some(weather) = weather {
            let late = Fault::Delay {
                least_ns: 1_000,
                most_ns: 200_000,
            };
            let twice = Fault::Duplicate { after_ns: 30_000 };
            let all = [
                (Fault::Drop, weather.lost),
                (twice, weather.twice),
                (late, weather.late),
            ];
            for (fault, share) in all {
                rules.push(self.cluster.fault(FaultRule::new(fault, share)));
            }
        }
        true
    }
}

dunlin_rpc::rpc_conformance!(hosts());

dunlin_rpc::rpc_conformance! { some dunlin_rpc::conformance::Dispatched(hosts());
    flock_dispatched Flock, flock_no_scheduling_dispatched FlockNoScheduling
}
