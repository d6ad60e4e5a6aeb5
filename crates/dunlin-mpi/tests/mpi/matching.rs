//! MPI's matching rules, and the limit of messages that match no receive.

use dunlin_mpi::{run_threads, MpiError, Settings, Source, Status, Tag};

use crate::{pattern, run};

#[test]
fn a_receive_takes_the_first_message_that_matches() {
    run(2, |mut world| {
        if world.rank() == 0 {
            for (tag, text) in [(1, "a"), (2, "b"), (1, "c"), (3, "d")] {
                world.send(1, tag, text.as_bytes()).unwrap();
            }
            return world.finalize().unwrap();
        }
        let mut receive = |source: Source, tag: Tag| {
            let mut buffer = [0; 4];
            let status = world.receive(source, tag, &mut buffer).unwrap();
            (buffer[0], status.tag)
        };
        assert_eq!(receive(Source::Any, 3.into()), (b'd', 3));
        assert_eq!(receive(0.into(), 1.into()), (b'a', 1));
        assert_eq!(receive(0.into(), Tag::Any), (b'b', 2));
        assert_eq!(receive(Source::Any, Tag::Any), (b'c', 1));
        world.finalize().unwrap();
    });
}

#[test]
fn a_message_takes_the_receive_that_was_posted_first() {
    run(2, |mut world| {
        if world.rank() == 0 {
            // The receives are posted.
            world.receive(1, 0, &mut []).unwrap();
            for (tag, text) in [(5, "a"), (6, "b"), (5, "c")] {
                world.send(1, tag, text.as_bytes()).unwrap();
            }
            return world.finalize().unwrap();
        }
        let sources = [(Source::Rank(0), Tag::Is(6)), (0.into(), Tag::Any)];
        let mut requests = Vec::new();
        for (source, tag) in sources.into_iter().chain([(Source::Any, Tag::Any)]) {
            requests.push(world.ireceive(source, tag, vec![0; 4]).unwrap());
        }
        world.send(0, 0, &[]).unwrap();
        let ended = world.wait_all(requests).unwrap();
        let texts: Vec<&[u8]> = ended.iter().map(|one| &one.buffer[..]).collect();
        assert_eq!(texts, [b"b", b"a", b"c"]);
        world.finalize().unwrap();
    });
}

#[test]
fn a_probe_finds_a_message_and_leaves_it() {
    run(2, |mut world| {
        if world.rank() == 0 {
            world.send(1, 9, &pattern(1, 30_000)).unwrap();
            return world.finalize().unwrap();
        }
        assert_eq!(world.iprobe(0, 8), Ok(None));
        let found = world.probe(Source::Any, Tag::Any).unwrap();
        assert_eq!((found.source, found.tag, found.bytes), (0, 9, 30_000));
        assert_eq!(world.iprobe(0, 9), Ok(Some(found)));
        let mut buffer = vec![0; found.bytes];
        assert_eq!(
            world.receive(found.source, found.tag, &mut buffer),
            Ok(found)
        );
        assert!(buffer == pattern(1, 30_000));
        world.finalize().unwrap();
    });
}

/// A receive that is posted while its message is arriving takes over what has arrived.
#[test]
fn a_receive_takes_a_message_that_is_arriving() {
    run(2, |mut world| {
        if world.rank() == 0 {
            // Longer than the ring: it cannot have arrived as a whole.
            world.send(1, 1, &pattern(2, 1 << 20)).unwrap();
            return world.finalize().unwrap();
        }
        world.probe(0, 1).unwrap();
        let mut buffer = vec![0; 1 << 20];
        world.receive(0, 1, &mut buffer).unwrap();
        assert!(buffer == pattern(2, 1 << 20));
        world.finalize().unwrap();
    });
}

fn limited() -> Settings {
    Settings::default()
        .ring_bytes(1 << 14)
        .eager_bytes(1000)
        .unexpected_bytes(20_000)
}

#[test]
fn beyond_the_limit_messages_wait_in_the_ring() {
    let done = run_threads(2, &limited(), |mut world| {
        const COUNT: u32 = 500;
        if world.rank() == 0 {
            for number in 0..COUNT {
                world
                    .send(1, number % 2, &pattern(number.into(), 700))
                    .unwrap();
            }
            // Longer than the limit: only a receive can take it.
            world.send(1, 7, &pattern(7, 100_000)).unwrap();
            return world.finalize();
        }
        let mut buffer = vec![0; 100_000];
        // In the order of sending this always goes on.
        for number in 0..COUNT {
            let status = world.receive(0, number % 2, &mut buffer)?;
            assert!(
                buffer[..status.bytes] == pattern(number.into(), 700),
                "{number}"
            );
        }
        assert_eq!(world.probe(0, 7)?.bytes, 100_000);
        world.receive(0, 7, &mut buffer)?;
        assert!(buffer == pattern(7, 100_000));
        world.finalize()
    });
    assert_eq!(done.unwrap(), [Ok(()), Ok(())]);
}

#[test]
fn a_receive_behind_too_many_others_fails_instead_of_waiting_for_ever() {
    let done = run_threads(2, &limited(), |mut world| {
        if world.rank() == 0 {
            let mut requests = Vec::new();
            for _ in 0..200 {
                requests.push(world.isend(1, 1, vec![1; 700])?);
            }
            requests.push(world.isend(1, 2, vec![2])?);
            world.wait_all(requests)?;
            return world.finalize();
        }
        let source_rank = 0;
        let limit = 20_000;
        let expected = MpiError::UnexpectedLimit { source_rank, limit };
        assert_eq!(world.receive(0, 2, &mut [0]), Err(expected.clone()));
        let request = world.ireceive(Source::Rank(0), 2, vec![0])?;
        assert_eq!(request.wait(&mut world), Err(expected));
        for _ in 0..200 {
            world.receive(0, 1, &mut [0; 700])?;
        }
        // The request that failed has not taken it.
        let mut last = [0];
        world.receive(0, 2, &mut last)?;
        assert_eq!(last, [2]);
        world.finalize()
    });
    assert_eq!(done.unwrap(), [Ok(()), Ok(())]);
}

/// Whoever probes with a rank that sends nothing beside this one must not wait for it.
#[test]
fn messages_to_oneself_without_room_are_found_and_received() {
    let done = run_threads(2, &limited(), |mut world| {
        let source = world.rank();
        // Longer than the limit; what is behind it may not overtake it.
        let long = world.isend(source, 1, pattern(1, 100_000))?;
        let short = world.isend(source, 1, pattern(2, 10))?;
        let other = world.isend(source, 2, Vec::new())?;
        let status = |tag, bytes| Status { source, tag, bytes };
        assert_eq!(world.iprobe(source, 1)?, Some(status(1, 100_000)));
        assert_eq!(world.iprobe(source, 3)?, None);
        assert_eq!(world.probe(Source::Any, 2)?, status(2, 0));
        assert_eq!(world.probe(source, 3), Err(MpiError::OnlySelf));
        // A receive takes the one that it matches, although it is not the first.
        assert_eq!(world.receive(Source::Any, 2, &mut [])?, status(2, 0));
        for (seed, bytes) in [(1, 100_000), (2, 10)] {
            let mut buffer = vec![0; bytes];
            let received = world.receive(Source::Any, Tag::Any, &mut buffer)?;
            assert_eq!(received, status(1, bytes));
            assert!(buffer == pattern(seed, bytes));
        }
        assert_eq!(world.wait_all([long, short, other])?.len(), 3);
        world.finalize()
    });
    assert_eq!(done.unwrap(), [Ok(()), Ok(())]);
}
