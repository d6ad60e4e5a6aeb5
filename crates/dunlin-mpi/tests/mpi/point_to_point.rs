//! Messages between two ranks: every length arrives whole, and errors are what they should be.

use dunlin_mpi::{MpiError, Source, Status, Tag};

use crate::{pattern, run};

/// Around the length of a piece, and longer than a ring.
const LENGTHS: [usize; 9] = [0, 1, 63, 999, 1000, 1001, 2000, 16_384, 200_001];

#[test]
fn every_length_arrives_whole() {
    run(2, |mut world| {
        assert_eq!(
            (world.size(), world.device(1 - world.rank())),
            (2, Some("shm"))
        );
        for (tag, bytes) in (0..).zip(LENGTHS) {
            let sent = pattern(tag.into(), bytes);
            if world.rank() == 0 {
                world.send(1, tag, &sent).unwrap();
            } else {
                let mut buffer = vec![0; bytes + 1];
                let status = world.receive(0, tag, &mut buffer).unwrap();
                let source = 0;
                assert_eq!(status, Status { source, tag, bytes });
                assert!(buffer[..bytes] == sent);
            }
        }
        world.finalize().unwrap();
    });
}

#[test]
fn two_ranks_can_swap_long_messages() {
    run(2, |mut world| {
        let (rank, other) = (world.rank(), 1 - world.rank());
        let mut buffer = vec![0; 300_000];
        let sent = pattern(rank as u64, buffer.len());
        let status = world.sendrecv((other, 4, &sent), other, 4, &mut buffer);
        assert_eq!(status.unwrap().bytes, buffer.len());
        assert!(buffer == pattern(other as u64, buffer.len()));
    });
}

#[test]
fn a_message_can_be_made_in_the_ring() {
    run(2, |mut world| {
        if world.rank() == 0 {
            world
                .send_with(1, 1, 5, |place| place.copy_from_slice(b"there"))
                .unwrap();
            let limit = 1000;
            assert_eq!(
                world.send_with(1, 1, 1001, |_| ()),
                Err(MpiError::TooLong { bytes: 1001, limit })
            );
            world
                .send_with(0, 1, 4, |place| place.copy_from_slice(b"here"))
                .unwrap();
        }
        let mut buffer = [0; 5];
        let status = world.receive(0, 1, &mut buffer).unwrap();
        let text: &[u8] = if world.rank() == 0 { b"here" } else { b"there" };
        assert_eq!(&buffer[..status.bytes], text);
    });
}

#[test]
fn nonblocking_operations_give_their_buffers_back() {
    run(3, |mut world| {
        let rank = world.rank();
        let others: Vec<usize> = (0..3).filter(|other| *other != rank).collect();
        let mut requests = Vec::new();
        for other in &others {
            requests.push(world.ireceive(*other, 2, vec![0; 50_000]).unwrap());
        }
        for other in &others {
            let sent = pattern((rank * 3 + other) as u64, 40_000);
            requests.push(world.isend(*other, 2, sent).unwrap());
        }
        let ended = world.wait_all(requests).unwrap();
        let (received, sent) = ended.split_at(2);
        for (other, one) in others.iter().zip(received) {
            let (source, tag, bytes) = (*other, 2, 40_000);
            assert_eq!(one.status, Some(Status { source, tag, bytes }));
            assert!(one.buffer == pattern((other * 3 + rank) as u64, bytes));
        }
        assert!(sent
            .iter()
            .all(|one| one.status.is_none() && one.buffer.len() == 40_000));
        world.finalize().unwrap();
    });
}

#[test]
fn a_test_completes_in_time() {
    run(2, |mut world| {
        if world.rank() == 1 {
            world.send(0, 3, b"hello").unwrap();
            return world.finalize().unwrap();
        }
        let mut request = world.ireceive(Source::Any, Tag::Any, vec![0; 8]).unwrap();
        let completed = loop {
            if let Some(completed) = request.test(&mut world).unwrap() {
                break completed;
            }
        };
        assert_eq!(completed.buffer, b"hello");
        assert_eq!(request.test(&mut world), Ok(None));
        world.finalize().unwrap();
    });
}

#[test]
fn a_message_that_is_too_long_is_an_error_of_its_receive_only() {
    run(2, |mut world| {
        for bytes in [10, 50_000] {
            if world.rank() == 0 {
                world.send(1, 1, &vec![1; bytes]).unwrap();
                world.send(1, 1, &vec![1; bytes]).unwrap();
                world.send(1, 2, b"next").unwrap();
                continue;
            }
            let (source_rank, tag, capacity) = (0, 1, 9);
            let truncated = MpiError::Truncated {
                source_rank,
                tag,
                bytes,
                capacity,
            };
            assert_eq!(world.receive(0, 1, &mut [0; 9]), Err(truncated.clone()));
            let request = world.ireceive(0, 1, vec![0; 9]).unwrap();
            assert_eq!(request.wait(&mut world), Err(truncated));
            let mut buffer = [0; 4];
            world.receive(0, 2, &mut buffer).unwrap();
            assert_eq!(&buffer, b"next");
        }
        world.finalize().unwrap();
    });
}

#[test]
fn calls_that_could_never_end_say_so() {
    run(2, |mut world| {
        let rank = world.rank();
        let no_such = MpiError::NoSuchRank { rank: 2, size: 2 };
        assert_eq!(world.send(2, 0, b""), Err(no_such.clone()));
        assert_eq!(world.receive(2, 0, &mut []), Err(no_such));
        assert_eq!(world.receive(rank, 0, &mut []), Err(MpiError::OnlySelf));
        let bytes = 5 << 20;
        let to_self = MpiError::SendToSelf { bytes };
        assert_eq!(world.send(rank, 0, &vec![0; bytes]), Err(to_self.clone()));
        let request = world.isend(rank, 0, vec![7; bytes]).unwrap();
        assert_eq!(request.wait(&mut world), Err(to_self));
        // With a receive it is delivered.
        let mut buffer = vec![0; bytes];
        world.receive(rank, 0, &mut buffer).unwrap();
        assert!(buffer == vec![7; bytes]);
        world.finalize().unwrap();
    });
}

#[test]
fn a_rank_that_has_left_is_named() {
    run(3, |mut world| match world.rank() {
        0 => world.send(1, 1, b"the last word").unwrap(),
        1 => {
            let mut buffer = [0; 20];
            assert_eq!(
                world.receive(0, 2, &mut buffer),
                Err(MpiError::RankLeft { rank: 0 })
            );
            assert_eq!(world.receive(0, 1, &mut buffer).unwrap().bytes, 13);
            assert_eq!(world.send(0, 1, b"?"), Err(MpiError::RankLeft { rank: 0 }));
            world.send(2, 1, b"!").unwrap();
        }
        _ => {
            world.receive(Source::Any, 1, &mut [0]).unwrap();
            let all_left = world.receive(Source::Any, 1, &mut [0]);
            assert!(
                matches!(all_left, Err(MpiError::RankLeft { .. })),
                "{all_left:?}"
            );
        }
    });
}

#[test]
fn what_nobody_receives_does_not_stop_the_end() {
    run(3, |mut world| {
        let other = (world.rank() + 1) % 3;
        for bytes in [10, 6 << 20, 300_000] {
            let _sent = world.isend(other, 1, vec![1; bytes]).unwrap();
            let _sent = world.isend(world.rank(), 1, vec![1; bytes]).unwrap();
        }
        world.finalize().unwrap();
    });
}

#[test]
fn requests_belong_to_their_world() {
    run(2, |mut world| {
        let mut other = dunlin_mpi::run_threads(1, &Default::default(), |world| world).unwrap();
        let request = world.ireceive(Source::Any, 1, vec![]).unwrap();
        assert_eq!(request.wait(&mut other[0]), Err(MpiError::ForeignRequest));
    });
}
