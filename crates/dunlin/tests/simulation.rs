//! `dunlin::sim`: programs on simulated hosts, what happens to them, and what a run says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::sim::{Fault, Host, Kind, Reason, Simulation};
use dunlin::{thread, CallError, Client, Preset, Server, ServerBuilder};
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
        words.contains("at 10µs: server is paused, for 20µs"),
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
        hanging
            .to_string()
            .contains("did not finish in time on client"),
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

/// A lease of a millisecond whose holder looks at its wall clock after so long, works for 200 us if it still has it,
/// and then writes. Gives when it did.
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

/// A server whose handlers run on workers and as futures without an executor: on threads of its host, in its time.
#[test]
fn handlers_on_workers_run_on_the_host_and_take_its_time() {
    const SLOW: u16 = 2;
    const LATER: u16 = 3;
    let run = |preset| {
        let mut simulation = Simulation::new(6);
        let nic = NicParameters {
            in_order_placement: 1.0,
            ..NicParameters::connectx_5()
        };
        simulation.hardware(HostParameters::epyc_7452(), nic, SwitchParameters::z9264f());
        let server = echo()
            .workers(2)
            .handle_on_workers(SLOW, |request, reply| {
                thread::sleep(us(300));
                reply.write(request.payload())
            })
            .handle_async(
                LATER,
                |request| async move { Ok(request.payload().to_vec()) },
            );
        simulation.server("server", server);
        for number in 0..4u64 {
            simulation.program("client", move |host| {
                let client = host.connect("server", Client::builder().preset(preset))?;
                let began = host.now();
                let answer = client.call(SLOW, &number.to_le_bytes())?;
                assert_eq!(*answer, number.to_le_bytes());
                assert!(host.now() - began >= us(300));
                assert_eq!(&*client.call(LATER, b"later")?, b"later");
                assert_eq!(&*client.call(ECHO, b"now")?, b"now");
                Ok(())
            });
        }
        simulation.run().expect("it ends")
    };
    for preset in [
        Preset::Auto,
        Preset::Fasst,
        Preset::ScaleRpc,
        Preset::Herd,
        Preset::Flor,
        Preset::Xrdma,
    ] {
        let report = run(preset);
        // Four calls of two workers take two rounds.
        assert!(report.elapsed >= us(600), "{preset}: {report:?}");
        assert_eq!(run(preset), report, "{preset}");
    }
}

/// A counter in memory, and how often it was asked for on a disk; both in the answer.
fn counting(disk: &Arc<AtomicU64>) -> ServerBuilder {
    let (memory, disk) = (AtomicU64::new(0), Arc::clone(disk));
    Server::unbound().handle(ECHO, move |_, reply| {
        let counted = [&memory, &*disk].map(|count| count.fetch_add(1, Ordering::Relaxed) + 1);
        reply.write(&counted.map(u64::to_le_bytes).concat())
    })
}

#[test]
fn a_host_that_comes_back_has_nothing_in_memory_and_takes_new_connections() {
    const END: Duration = Duration::from_secs(12);
    let run = || {
        let disk = Arc::<AtomicU64>::default();
        let starts = Arc::<AtomicU64>::default();
        let seen = Arc::<Mutex<Vec<[u64; 2]>>>::default();
        let sees = Arc::clone(&seen);
        let mut simulation = Simulation::new(12);
        simulation.restartable_server("server", {
            let (disk, starts) = (Arc::clone(&disk), Arc::clone(&starts));
            move || {
                starts.fetch_add(1, Ordering::Relaxed);
                counting(&disk)
            }
        });
        simulation.program("client", move |host| {
            assert_eq!(host.restarts(), 0);
            while host.now() < END {
                let Ok(client) = host.connect("server", Client::builder()) else {
                    host.sleep(us(50));
                    continue;
                };
                // Whose end takes as long as its device tries to reach a server that is gone.
                while let Ok(counted) = client.call_within(us(300), ECHO, b"") {
                    let word = |at: usize| counted[at..at + 8].try_into().map(u64::from_le_bytes);
                    sees.lock().expect("no panic").push([word(0)?, word(8)?]);
                    host.sleep(us(20_000));
                    if host.now() > END {
                        break;
                    }
                }
            }
            Ok(())
        });
        let restart = |lasts| Fault::Restart {
            host: "server".into(),
            lasts,
        };
        simulation.fault(us(50_000), restart(us(20_000)));
        // It is down then.
        simulation.fault(us(60_000), restart(us(900_000)));
        simulation.fault(us(6_000_000), restart(us(10)));
        let report = simulation.run().expect("it ends");
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        let seen = seen.lock().expect("no panic").clone();
        (report, seen)
    };
    let (report, seen) = run();
    assert_eq!(run(), (report, seen.clone()));
    let anew = seen.windows(2).filter(|two| two[1][0] == 1).count();
    assert_eq!((seen[0][0], anew), (1, 2), "{seen:?}");
    let disk: Vec<u64> = seen.iter().map(|counted| counted[1]).collect();
    assert!(disk.is_sorted() && disk.last() > Some(&6), "{seen:?}");
}

#[test]
fn a_restartable_program_runs_once_for_each_start_of_its_host_and_is_waited_for() {
    let starts = Arc::<Mutex<Vec<(usize, u64, Duration)>>>::default();
    let seen = Arc::clone(&starts);
    let mut simulation = Simulation::new(3);
    simulation.restartable_program("worker", move |host| {
        let start = (host.restarts(), host.random(), host.now());
        seen.lock().expect("no panic").push(start);
        host.sleep(us(100));
        Ok(())
    });
    for (at, lasts) in [(us(50), us(500)), (us(560), us(1_000))] {
        let host = "worker".into();
        simulation.fault(at, Fault::Restart { host, lasts });
    }
    let report = simulation.run().expect("it ends");
    let starts = starts.lock().expect("no panic");
    let times: Vec<_> = starts
        .iter()
        .map(|(restarts, _, at)| (*restarts, *at))
        .collect();
    let first = starts[0].2;
    assert_eq!(times, [(0, first), (1, us(550)), (2, us(1_560))]);
    assert!(starts[0].1 != starts[1].1 && report.elapsed >= us(1_660));
    // One that crashes while it is down does not come back.
    let mut simulation = Simulation::new(3);
    simulation.restartable_program("worker", |host| {
        host.sleep(us(100));
        Ok(())
    });
    let host = || "worker".to_owned();
    let lasts = us(500);
    simulation.fault(
        us(50),
        Fault::Restart {
            host: host(),
            lasts,
        },
    );
    simulation.fault(us(60), Fault::Crash { host: host() });
    assert!(simulation.run().expect("it ends").elapsed < us(500));
}

#[test]
fn only_what_is_restartable_is_restarted() {
    let mut simulation = Simulation::new(1);
    simulation.restartable_server("server", echo);
    simulation.program("server", |_| Ok(()));
    let (host, lasts) = ("server".to_owned(), us(10));
    simulation.fault(us(1), Fault::Restart { host, lasts });
    let failed = simulation.run().expect_err("its program is gone");
    assert!(failed.to_string().contains("`server`"), "{failed}");
    // Drawn ones are of hosts that can be.
    let mut drawn = 0;
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        simulation.restartable_server("server", echo);
        simulation.program("client", |host| {
            let ends = us(3_000);
            while host.now() < ends {
                if let Ok(client) = host.connect("server", Client::builder()) {
                    while host.now() < ends && client.call_within(us(200), ECHO, b"").is_ok() {
                        host.sleep(us(20));
                    }
                }
                host.sleep(us(50));
            }
            Ok(())
        });
        simulation.draw_faults(us(0)..us(500), 3, &[Kind::Restart, Kind::Loss]);
        let report = simulation.run().expect("it ends");
        let restarts = report
            .faults
            .iter()
            .filter(|(_, what)| what.contains("restarts after"));
        drawn += restarts.count();
    }
    assert!(drawn > 5, "{drawn}");
}

/// Until the device gives the server up, which takes seconds, threads look now and then and rest in between.
#[test]
fn waiting_for_a_server_that_is_gone_is_cheap_over_any_preset() {
    /// Half a million are some 200 ms. Threads that look without a rest make twenty million.
    const MOST_EVENTS: u64 = 500_000;
    for &preset in Preset::ALL {
        let mut simulation = Simulation::new(1);
        let nic = NicParameters {
            in_order_placement: 1.0,
            ..NicParameters::connectx_5()
        };
        simulation.hardware(HostParameters::epyc_7452(), nic, SwitchParameters::z9264f());
        simulation.server("server", echo());
        simulation.program("client", move |host| {
            let client = host.connect("server", Client::builder().preset(preset))?;
            while client.call(ECHO, b"there?").is_ok() {
                host.sleep(us(10));
            }
            Ok(())
        });
        let host = "server".into();
        simulation.fault(us(200), Fault::Crash { host });
        let report = simulation.run().expect("it ends");
        let waited = report.elapsed > Duration::from_secs(1);
        assert!(
            waited && report.events < MOST_EVENTS,
            "{preset}: {report:?}"
        );
    }
}
