//! `dunlin::sim`: programs on simulated hosts, what happens to them, and what a run says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::sim::{Fault, Host, Kind, Reason, Simulation};
use dunlin::{CallError, Client, Preset, Server, ServerBuilder};
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

const ECHO: u16 = 1;

fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

fn echo() -> ServerBuilder {
    Server::unbound().handle(ECHO, |request, reply| reply.write(request.payload()))
}

/// Calls so often; gives what did not end well.
fn call(host: &Host, client: &Client, count: u64) -> Vec<CallError> {
    let mut failed = Vec::new();
    for number in 0..count {
        match client.call(ECHO, &number.to_le_bytes()) {
            Ok(answer) => assert_eq!(*answer, number.to_le_bytes()),
            Err(error) => failed.push(error),
        }
        host.sleep(us(host.random() % 10));
    }
    failed
}

/// An echo under faults of all kinds but crashes.
fn rough(seed: u64, preset: Preset) -> Simulation {
    let mut simulation = Simulation::new(seed);
    let nic = NicParameters {
        in_order_placement: 1.0,
        ..NicParameters::connectx_5()
    };
    simulation.hardware(HostParameters::epyc_7452(), nic, SwitchParameters::z9264f());
    simulation.server("server", echo());
    for client in ["one", "two"] {
        simulation.program(client, move |host| {
            // A fault may come while the connection is made.
            let client = loop {
                match host.connect("server", Client::builder().preset(preset)) {
                    Ok(client) => break client,
                    Err(_) => host.sleep(us(100)),
                }
            };
            call(host, &client, 20);
            Ok(())
        });
    }
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Crash)
        .collect();
    simulation.draw_faults(us(0)..us(200), 4, &kinds);
    simulation
}

#[test]
fn a_seed_gives_the_same_run_over_any_preset() {
    for preset in [
        Preset::Auto,
        Preset::Flock,
        Preset::Fasst,
        Preset::ScaleRpc,
        Preset::Flor,
    ] {
        let [one, two] = [(); 2].map(|()| rough(3, preset).run().expect("it ends"));
        assert_eq!(one, two, "{preset:?}");
        let other = rough(4, preset).run().expect("it ends");
        assert_ne!(one.digest, other.digest, "{preset:?}");
    }
}

#[test]
fn a_panic_an_error_and_a_program_without_end_name_the_seed() {
    let run = |program: fn(&Host) -> dunlin::sim::Ended| {
        let mut simulation = Simulation::new(77);
        simulation.server("server", echo()).within(us(5_000));
        simulation.program("client", program);
        simulation.fault(
            us(10),
            Fault::Pause {
                host: "server".into(),
                lasts: us(20),
            },
        );
        simulation.run().expect_err("it fails")
    };
    let panicked = run(|host| {
        host.sleep(us(50));
        panic!("out of paper")
    });
    assert!(matches!(panicked.reason, Reason::Panicked { .. }));
    let words = panicked.to_string();
    assert!(
        words.contains("seed 77") && words.contains("out of paper"),
        "{words}"
    );
    assert!(
        words.contains("at 10µs: server stands still, for 20µs"),
        "{words}"
    );

    let failed = run(|host| {
        host.connect("serwer", Client::builder())?;
        Ok(())
    });
    assert!(failed.to_string().contains("`serwer`"), "{failed}");
    let hanging = run(|host| loop {
        host.sleep(us(100));
    });
    assert!(
        hanging.to_string().contains("not ended, on client"),
        "{hanging}"
    );
    assert_eq!(hanging.at, us(5_000));
}

#[test]
fn a_fault_of_an_unknown_host_and_a_second_server_are_refused() {
    let mut simulation = Simulation::new(1);
    simulation.server("server", echo());
    simulation.fault(
        us(1),
        Fault::Crash {
            host: "sever".into(),
        },
    );
    let words = simulation.run().expect_err("no such host").to_string();
    assert!(
        words.contains("`sever`") && words.contains("server"),
        "{words}"
    );
    let mut simulation = Simulation::new(1);
    simulation.server("server", echo()).server("server", echo());
    let failed = simulation.run().expect_err("one server a host");
    assert!(matches!(failed.reason, Reason::SecondServer(_)), "{failed}");
}

/// A lease of a millisecond whose holder looks at its wall clock after so long, works for 200 us if it still has it, and
/// then writes. Gives when it did.
fn lease(looks_after: Duration, fault: Option<(Duration, Fault)>) -> Option<Duration> {
    let written = Arc::new(Mutex::new(None));
    let mut simulation = Simulation::new(5);
    let seen = Arc::clone(&written);
    simulation.program("holder", move |host| {
        let until = host.clock() + us(1_000);
        host.sleep(looks_after);
        if host.clock() < until {
            host.sleep(us(200));
            *seen.lock().expect("no panic") = Some(host.now());
        }
        Ok(())
    });
    if let Some((at, fault)) = fault {
        simulation.fault(at, fault);
    }
    simulation.run().expect("it ends");
    let written = written.lock().expect("no panic");
    *written
}

#[test]
fn pauses_and_clocks_are_what_a_lease_must_withstand() {
    let host = || "holder".to_owned();
    let written = lease(us(500), None).expect("in time");
    assert!((us(700)..us(800)).contains(&written), "{written:?}");
    assert_eq!(lease(us(1_200), None), None);
    // Between look and write.
    let pause = Fault::Pause {
        host: host(),
        lasts: us(3_000),
    };
    let written = lease(us(500), Some((us(600), pause))).expect("it does not know");
    assert!((us(3_600)..us(3_700)).contains(&written), "{written:?}");
    let jump = |jump_ns, drift_ppm| Fault::Clock {
        host: host(),
        jump_ns,
        drift_ppm,
    };
    for fault in [jump(-500_000, 0), jump(0, -400_000)] {
        let written = lease(us(1_200), Some((us(100), fault))).expect("its clock says so");
        assert!((us(1_400)..us(1_500)).contains(&written), "{written:?}");
    }
    assert_eq!(lease(us(500), Some((us(100), jump(600_000, 0)))), None);
}

#[test]
fn who_is_cut_off_waits_and_who_crashed_is_not_waited_for() {
    let late = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&late);
    let mut simulation = Simulation::new(9);
    simulation.server("server", echo());
    simulation.program("client", move |host| {
        let client = host.connect("server", Client::builder())?;
        host.sleep(us(1_000).saturating_sub(host.now()));
        client.call(ECHO, b"over")?;
        seen.store(host.now().as_micros() as u64, Ordering::Relaxed);
        Ok(())
    });
    simulation.program("doomed", |host| loop {
        host.sleep(us(10));
    });
    let hosts = vec!["server".to_owned()];
    simulation.fault(
        us(900),
        Fault::Partition {
            hosts,
            lasts: us(500),
        },
    );
    simulation.fault(
        us(200),
        Fault::Crash {
            host: "doomed".into(),
        },
    );
    let report = simulation.run().expect("it ends");
    let late = late.load(Ordering::Relaxed);
    assert!(
        late >= 1_400,
        "the answer came {late} us after the beginning"
    );
    assert_eq!(report.faults.len(), 2);
}
