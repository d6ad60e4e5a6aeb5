//! Ranks that leave while others have something under way with them.

use std::sync::Barrier;

use dunlin_mpi::{run_threads, MpiError, Settings};

use crate::{pattern, run};

#[test]
fn a_rank_that_leaves_within_a_long_message_hangs_nobody() {
    let done = run(2, |mut world| {
        if world.rank() == 1 {
            // It takes the first pieces, and leaves.
            world.probe(0, 1).unwrap();
            return Ok(());
        }
        let sent = world.send(1, 1, &pattern(1, 8 << 20));
        assert_eq!(sent, Err(MpiError::RankLeft { rank: 1 }));
        world.finalize()
    });
    assert_eq!(done[0], Err(MpiError::RankLeft { rank: 1 }));
}

#[test]
fn what_a_rank_has_sent_before_it_left_arrives_however_late_it_is_received() {
    let settings = Settings::default().ring_bytes(1 << 16).eager_bytes(1000);
    let left = Barrier::new(3);
    let done = run_threads(3, &settings.unexpected_bytes(20_000), |mut world| {
        const COUNT: u64 = 33;
        match world.rank() {
            0 => {
                for number in 0..COUNT {
                    world.send(1, 1, &pattern(number, 700))?;
                }
                drop(world);
                left.wait();
                Ok(())
            }
            1 => {
                // Some are held, others stay in the ring, behind which the rank has left.
                let hello = world.receive(2, 5, &mut []);
                left.wait();
                let late = world.receive(2, 6, &mut []);
                let mut buffer = [0; 700];
                for number in 0..COUNT {
                    world.receive(0, 1, &mut buffer)?;
                    assert!(buffer[..] == pattern(number, 700), "{number}");
                }
                let none = world.receive(0, 1, &mut buffer);
                assert_eq!(none, Err(MpiError::RankLeft { rank: 0 }));
                hello.and(late).map(drop)
            }
            _ => {
                world.send(1, 5, &[])?;
                left.wait();
                world.send(1, 6, &[])
            }
        }
    });
    assert_eq!(done.unwrap(), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_request_that_is_tested_learns_that_its_source_has_left() {
    let done = run(2, |mut world| {
        if world.rank() == 1 {
            return None;
        }
        let mut request = world.ireceive(1, 1, vec![0; 8]).unwrap();
        loop {
            match request.test(&mut world) {
                Ok(None) => std::thread::yield_now(),
                ended => return Some(ended.unwrap_err()),
            }
        }
    });
    assert_eq!(done[0], Some(MpiError::RankLeft { rank: 1 }));
}
