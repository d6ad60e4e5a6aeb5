//! Tests of queue pairs that fail, with and without a backup.

use super::*;

/// §6: the sender's NIC gives up, although everything has arrived. Requests without an answer are sent over the backup
/// as SENDs; WRITEs wait until the peer is known to have fenced the queue pair that failed.
#[test]
fn a_failed_queue_pair_is_replaced_by_a_backup() {
    let mut modules = modules(1 << 20, 32 << 10);
    modules.chunking = Box::new(
        RttBased::new(ChunkingParameters {
            on_loss: OnLoss::OneUnit,
            ..ChunkingParameters::PRODUCTION
        })
        .unwrap(),
    );
    modules.reliability = Box::new(Hardware);
    modules.congestion = Box::new(HardwareControl);
    let mut sender = connection(modules);
    sender.submit(0, 96 * KB, 0).unwrap();
    posts(&mut sender, 0);
    sender.completed(1, GlobalNumber(0), Some(1));
    grant(&mut sender);
    assert_eq!(posts(&mut sender, 2).len(), 2);
    sender.completed(3, GlobalNumber(1), None);
    let then = actions(&mut sender, 3);
    assert_eq!(then[0], Action::Fence { path: 0 });
    let sends: Vec<_> = then[1..]
        .iter()
        .map(|action| match action {
            Action::Post(work) if work.path == 1 => header(work),
            other => panic!("{other:?}"),
        })
        .collect();
    // First the SEND that announces the change, then both WRITEs in pieces of a unit, since RC has lost something.
    assert!(sends.iter().all(|header| header.epoch == 1));
    assert_eq!(sends[0].content, Content::Empty);
    assert_eq!(sends.len(), 1 + 96 / 4);
    // The old queue pair is renewed once the NIC has completed everything.
    assert_eq!(actions(&mut sender, 4), []);
    sender.completed(4, GlobalNumber(2), None);
    assert_eq!(actions(&mut sender, 4), [Action::Renew { path: 0 }]);
}

/// A peer whose process is stopped acknowledges nothing on any queue pair. The last one is not given up for that until
/// several seconds have passed.
#[test]
fn the_last_queue_pair_waits_longer_than_one_with_a_backup() {
    let last_ns = |paths| {
        let config = Config {
            paths,
            connected_paths: paths,
            ..Config::DEFAULT
        };
        let modules = Deployment::CrossPod.modules(&Network::DEFAULT).unwrap();
        let mut sender = Connection::new(config, modules).unwrap();
        sender.submit(0, 10, 0).unwrap();
        let (mut now_ns, mut switched_ns) = (0, Vec::new());
        while !sender.is_lost() {
            let switches = sender.counters().switches;
            actions(&mut sender, now_ns);
            if sender.counters().switches > switches {
                switched_ns.push(now_ns);
            }
            match sender.next_deadline(now_ns) {
                Some(next_ns) => now_ns = next_ns.max(now_ns + 1),
                None => assert!(sender.is_lost()),
            }
        }
        assert_eq!(sender.lost_by(), Some(LostBy::Silence { timeouts: 16 }));
        assert_eq!(switched_ns.len(), paths - 1);
        // Eight timeouts, the first of 4 ms and each twice as long as the one before; on the last one, half a second
        // each from then on.
        for (switch, at_ns) in switched_ns.iter().enumerate() {
            assert_eq!(*at_ns / 1_000_000, 1020 * (switch as u64 + 1));
        }
        now_ns
    };
    assert_eq!(last_ns(1) / 1_000_000, 1020 + 8 * 512);
    assert_eq!(last_ns(3) / 1_000_000, 3 * 1020 + 8 * 512);
}

#[test]
fn without_a_backup_everything_is_reported() {
    let config = Config {
        paths: 1,
        connected_paths: 1,
        ..Config::DEFAULT
    };
    let mut alone = Connection::new(config, modules(1 << 20, 32 << 10)).unwrap();
    let message = alone.submit(0, 10, 0).unwrap();
    posts(&mut alone, 0);
    alone.path_failed(1, 0);
    assert_eq!(
        actions(&mut alone, 1),
        [Action::Fence { path: 0 }, Action::Lost]
    );
    alone.completed(2, GlobalNumber(0), None);
    let failed = Action::Finished(message, Err(Failure::ConnectionLost));
    assert_eq!(actions(&mut alone, 2), [failed]);
    assert_eq!(alone.submit(3, 1, 0), Err(SubmitError::Lost));
}
