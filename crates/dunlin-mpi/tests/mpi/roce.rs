//! Over UDP on the loopback interface.

use dunlin_mpi::{run_threads, Op, Settings};

use crate::pattern;

#[test]
fn messages_and_collectives_go_over_udp() {
    let settings = Settings::default().device("roce");
    let ended = run_threads(3, &settings, |mut world| {
        let (rank, size) = (world.rank(), world.size());
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        assert_eq!(world.device(next), Some("roce"));
        for bytes in [0, 100, 100_000] {
            let mut buffer = vec![0; bytes];
            let sent = pattern(rank as u64, bytes);
            world.sendrecv((next, 1, &sent), previous, 1, &mut buffer)?;
            assert!(buffer == pattern(previous as u64, bytes));
        }
        let mut sum = vec![rank as i32; 1000];
        world.allreduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, vec![3; 1000]);
        world.finalize()
    });
    assert_eq!(ended.unwrap(), vec![Ok(()); 3]);
}
