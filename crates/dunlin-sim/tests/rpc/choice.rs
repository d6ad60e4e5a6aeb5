//! The choice of `auto` where a thread calls several servers: one queue pair for datagrams to all of them, or
//! connections when its user accesses their memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use dunlin_rpc::{CallError, Client, Peers, Preset, Region};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::calls::{echoing, run_until, ECHO, MILLISECOND};

const REGION: &str = "memory";
const SERVERS: usize = 2;

/// A thread of a third host connects to two servers, makes a call to each and reads memory of both. Returns the preset
/// chosen, and whether the memory was accessible.
fn chosen(one_sided: bool) -> (Preset, bool) {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    let cluster = Cluster::star(5, SERVERS + 1, &host, &nic, &SwitchParameters::z9264f());
    let hosts = cluster.hosts();
    let servers: Vec<_> = hosts[..SERVERS]
        .iter()
        .map(|&host| {
            let server = echoing().region(&Region::new(REGION, 4096));
            server.serve_on(cluster.device(host)).expect("a server")
        })
        .collect();
    let device = cluster.device(hosts[SERVERS]);
    let connect = |server: &dunlin_rpc::LocalServer| {
        Client::builder()
            .servers(SERVERS)
            .one_sided(one_sided)
            .connect_on(device.clone(), &server.acceptor())
            .expect("a client")
    };
    let clients: Vec<Client> = servers.iter().map(connect).collect();
    let preset = clients[0].info().preset;
    let (had, ended) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let (seen, end): (_, Arc<AtomicBool>) = (Arc::clone(&had), Arc::clone(&ended));
    cluster.spawn_thread(hosts[SERVERS], 0, move || {
        let mut peers = Peers::new(&clients).expect("lanes");
        for peer in 0..SERVERS {
            let submitted = peers.submit(peer, ECHO, b"two servers", peer as u64);
            assert!(submitted.expect("a lane"));
        }
        let mut answered = 0;
        while answered < SERVERS {
            let waited = peers.wait(|_, _, answer| {
                assert_eq!(answer.expect("an answer"), b"two servers");
                answered += 1;
            });
            waited.expect("lanes");
        }
        let read = |client: &Client| client.attach(REGION)?.read(0, 8).map(drop);
        match clients.iter().try_for_each(read) {
            Ok(()) => seen.store(true, Ordering::Relaxed),
            Err(CallError::OneSidedUnsupported) => {}
            Err(other) => panic!("{other}"),
        }
        drop((peers, clients));
        end.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    drop(servers);
    cluster.run_for(100 * MILLISECOND);
    (preset, had.load(Ordering::Relaxed))
}

#[test]
fn several_servers_are_called_by_datagrams_unless_their_memory_is_wanted() {
    assert_eq!(chosen(false), (Preset::Fasst, false));
    assert_eq!(chosen(true), (Preset::Auto, true));
}
