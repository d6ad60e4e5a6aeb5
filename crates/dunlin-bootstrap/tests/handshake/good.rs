//! What works.

use dunlin_bootstrap::{dial, Acceptor, AcceptorConfig, BootstrapError, Reason};

use crate::harness::*;

#[test]
fn the_same_host_means_shared_memory() {
    let mut server = Server::new(serving());
    let dialed = dial(server.address(), &dialing()).unwrap();
    assert_eq!((dialed.device(), dialed.server_device()), ("shm", "shm"));
    assert_eq!(dialed.why(), "same host: shared memory");
    let reply = dialed.open(request()).unwrap();
    assert_eq!(reply.endpoint, endpoint(18));
    assert_eq!(reply.parameters["ring_bytes"], 1 << 20);
    assert_eq!(
        reply.parameters["shm"], 1,
        "the server is told its own device"
    );
    server.wait_for("one opened", |counts| counts.opened == 1);
    assert_eq!(server.acceptor.counters().accepted, 1);
    server.stop();
}

#[test]
fn each_side_uses_its_own_name_for_hardware() {
    let capabilities = vec![shm(), network("ibv:mlx5_7")];
    let server = Server::new(AcceptorConfig {
        capabilities,
        ..serving()
    });
    let mut config = dialing();
    config.capabilities = vec![network("ibv:mlx5_0"), shm()];
    let dialed = dial(server.address(), &config).unwrap();
    assert_eq!(
        (dialed.device(), dialed.server_device()),
        ("ibv:mlx5_0", "ibv:mlx5_7")
    );
    assert_eq!(dialed.choice().reason, Reason::Hardware);
    assert!(dialed
        .open(request())
        .unwrap()
        .parameters
        .contains_key("ibv:mlx5_7"));

    config.device = Some("shm".into());
    let dialed = dial(server.address(), &config).unwrap();
    assert_eq!(
        (dialed.device(), dialed.choice().reason),
        ("shm", Reason::Asked)
    );
}

#[test]
fn names_and_version_six_are_resolved() {
    for host in ["localhost:0", "[::1]:0"] {
        let Ok(acceptor) = Acceptor::bind(&host.parse().unwrap(), serving()) else {
            println!("skipped: this machine has no {host}");
            continue;
        };
        let stop = dunlin_bootstrap::StopHandle::new().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| acceptor.run(&stop, echo));
            let dialed = dial(acceptor.local_address(), &dialing());
            let reply = dialed.and_then(|dialed| dialed.open(request()));
            stop.stop();
            thread.join().unwrap().unwrap();
            assert_eq!(reply.unwrap().endpoint, endpoint(18));
        });
    }
}

#[test]
fn a_port_serves_again_after_a_stop() {
    let mut server = Server::new(serving());
    server.is_well(&dialing());
    let address = server.address().clone();
    server.stop();
    let acceptor = std::sync::Arc::clone(&server.acceptor);
    drop(server);
    drop(acceptor);
    let error = dial(&address, &dialing()).unwrap_err();
    assert!(
        matches!(error, BootstrapError::ConnectionRefused { .. }),
        "{error}"
    );
    assert!(error
        .to_string()
        .contains(&format!("no server listens at {address}")));
    Acceptor::bind(&address, serving()).unwrap();
}

#[test]
fn many_clients_at_once() {
    let server = Server::new(AcceptorConfig {
        secret: secret("s"),
        ..serving()
    });
    let mut config = dialing();
    config.secret = secret("s");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| server.is_well(&config)));
        }
    });
    server.wait_for("all opened", |counts| counts.opened == 160);
}
