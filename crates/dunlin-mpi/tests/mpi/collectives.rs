//! Collectives compared with sequential computations, for 1 to 9 ranks, every root, and lengths around those of pieces.

use dunlin_mpi::{MpiError, Op, Source, Tag};

use crate::{pattern, run};

const SIZES: std::ops::RangeInclusive<usize> = 1..=9;
/// In elements of eight bytes: none, one, some, and more than a piece.
const LENGTHS: [usize; 4] = [0, 1, 7, 300];

/// The elements of a rank.
fn elements(rank: usize, count: usize) -> Vec<i64> {
    let one = |at| (rank as i64 + 3) * (at as i64 - 5) % 1013;
    (0..count).map(one).collect()
}

/// Element by element over all ranks, in their order.
fn combined(size: usize, count: usize, op: impl Fn(i64, i64) -> i64) -> Vec<i64> {
    let all: Vec<_> = (0..size).map(|rank| elements(rank, count)).collect();
    let at = |at: usize| all.iter().map(|one| one[at]).reduce(&op).unwrap();
    (0..count).map(at).collect()
}

#[test]
fn reductions_are_those_of_a_loop() {
    for size in SIZES {
        run(size, |mut world| {
            for count in LENGTHS {
                let ops = [Op::Sum, Op::Min, Op::Max];
                for (root, op) in (0..size).cycle().zip(ops) {
                    let expected = combined(size, count, |one, other| match op {
                        Op::Sum => one + other,
                        Op::Min => one.min(other),
                        Op::Max => one.max(other),
                    });
                    let mut own = elements(world.rank(), count);
                    world.allreduce(&mut own, op).unwrap();
                    assert_eq!(own, expected, "{op:?} of {size}");
                    let mut own = elements(world.rank(), count);
                    world.reduce(root, &mut own, op).unwrap();
                    assert!(
                        world.rank() != root || own == expected,
                        "{op:?} at {root} of {size}"
                    );
                }
            }
            // An operation that is not commutative: the composition of x -> a x + b, which keeps the order of the
            // ranks.
            let compose = |(a, b): (i64, i64), (c, d): (i64, i64)| (a * c, c * b + d);
            let one = |rank: usize| (rank as i64 % 3 + 1, rank as i64 + 1);
            let pack = |(a, b): (i64, i64)| a << 32 | b;
            let unpack = |word: i64| (word >> 32, word & 0xffff_ffff);
            let mut own = [pack(one(world.rank()))];
            world
                .allreduce_with(&mut own, |one, other| {
                    pack(compose(unpack(one), unpack(other)))
                })
                .unwrap();
            let expected = (0..size).map(one).reduce(compose).unwrap();
            assert_eq!(unpack(own[0]), expected);
            world.finalize().unwrap();
        });
    }
}

#[test]
fn floats_have_the_same_bits_everywhere() {
    let sums = run(7, |mut world| {
        let mut own = [0.1 * (world.rank() as f64 + 0.7), 1e16, -1.0];
        world.allreduce(&mut own, Op::Sum).unwrap();
        own.map(f64::to_bits)
    });
    assert!(sums.iter().all(|one| *one == sums[0]), "{sums:?}");
}

#[test]
fn data_goes_where_it_belongs() {
    for size in SIZES {
        run(size, |mut world| {
            let rank = world.rank();
            for each in LENGTHS {
                let all: Vec<i64> = (0..size).flat_map(|rank| elements(rank, each)).collect();
                for root in 0..size {
                    let mut bytes = vec![0; each * 8];
                    if rank == root {
                        bytes = pattern(root as u64, each * 8);
                    }
                    world.broadcast(root, &mut bytes).unwrap();
                    assert!(bytes == pattern(root as u64, each * 8));

                    let mut gathered = vec![0; if rank == root { each * size } else { 0 }];
                    world
                        .gather(root, &elements(rank, each), &mut gathered)
                        .unwrap();
                    assert!(
                        rank != root || gathered == all,
                        "gather at {root} of {size}"
                    );

                    let source: &[i64] = if rank == root { &all } else { &[] };
                    let mut own = vec![0; each];
                    world.scatter(root, source, &mut own).unwrap();
                    assert_eq!(own, elements(rank, each), "scatter from {root} of {size}");
                }
                let mut gathered = vec![0; each * size];
                world
                    .allgather(&elements(rank, each), &mut gathered)
                    .unwrap();
                assert_eq!(gathered, all, "allgather of {size}");

                let block = |from: usize, to: usize| elements(from * size + to, each);
                let send: Vec<i64> = (0..size).flat_map(|to| block(rank, to)).collect();
                let expected: Vec<i64> = (0..size).flat_map(|from| block(from, rank)).collect();
                let mut received = vec![0; each * size];
                world.alltoall(&send, &mut received).unwrap();
                assert_eq!(received, expected, "alltoall of {size}");
            }
            world.finalize().unwrap();
        });
    }
}

/// After a barrier, what each rank did before it is done: here, to send.
#[test]
fn a_barrier_waits_for_all() {
    for size in SIZES {
        let entered = std::sync::atomic::AtomicUsize::new(0);
        run(size, |mut world| {
            for round in 1..=20 {
                entered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                world.barrier().unwrap();
                assert!(entered.load(std::sync::atomic::Ordering::SeqCst) >= round * size);
            }
            world.finalize().unwrap();
        });
    }
}

#[test]
fn messages_of_collectives_match_no_receive_of_the_user() {
    run(4, |mut world| {
        let request = world.ireceive(Source::Any, Tag::Any, vec![0; 100]).unwrap();
        let mut sum = [1_i32];
        world.allreduce(&mut sum, Op::Sum).unwrap();
        assert_eq!(sum, [4]);
        world.barrier().unwrap();
        assert_eq!(world.iprobe(Source::Any, Tag::Any), Ok(None));
        let next = (world.rank() + 1) % 4;
        world.send(next, 1, b"user").unwrap();
        assert_eq!(request.wait(&mut world).unwrap().buffer, b"user");
        world.finalize().unwrap();
    });
}

#[test]
fn ranks_in_different_collectives_find_out() {
    let mismatch = |result| matches!(result, Err(MpiError::CollectiveMismatch { .. }));
    let found = run(2, |mut world| match world.rank() {
        0 => world.barrier(),
        _ => world.allreduce(&mut [1_u64], Op::Max),
    });
    assert!(found.into_iter().any(mismatch));
    let found = run(2, |mut world| {
        let count = world.rank() + 1;
        world.allreduce(&mut vec![1_u64; count], Op::Max)
    });
    assert!(found.into_iter().any(mismatch));
    let lengths = run(2, |mut world| world.allgather(&[1_u8], &mut [0; 3]));
    assert!(matches!(
        lengths[0],
        Err(MpiError::Length {
            found: 3,
            expected: 2,
            ..
        })
    ));
}
