//! Message passing, whole: over shared memory between threads and between processes, and over UDP.

mod collectives;
mod joining;
mod leaving;
mod matching;
mod model;
mod point_to_point;
mod processes;
mod roce;

use dunlin_mpi::{run_threads, Settings, World};

/// Runs ranks as threads over shared memory, with small rings, so that long messages have many pieces.
fn run<T: Send>(size: usize, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    let settings = Settings::default().ring_bytes(1 << 14).eager_bytes(1000);
    run_threads(size, &settings, body).unwrap()
}

/// Bytes that differ between messages and between positions.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..))
        .take(bytes)
        .collect()
}
