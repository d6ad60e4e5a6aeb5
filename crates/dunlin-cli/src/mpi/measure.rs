//! The measurements of `perf mpi`, in the style of the OSU micro-benchmarks: the same function in every rank.
//!
//! Rank 0 is the command itself, which decides what comes next and broadcasts it; the other ranks are processes that it
//! has started.

use std::time::{Duration, Instant};

use dunlin_mpi::{MpiError, Op, World};
use serde::Serialize;

use crate::interrupt;

/// Messages of the bandwidth test that are under way together, as in OSU's.
pub const WINDOW: usize = 64;
/// Parts of a point's time. The first is not measured, and the rounds of one order take about as long as one, or
/// [`LONGEST`] at most, so that the end and Ctrl-C come in time.
const PARTS: u32 = 10;
const LONGEST: Duration = Duration::from_millis(200);
/// Maximum number of rounds of an order.
const MOST_ROUNDS: u128 = 100_000;
/// Maximum number of times that are kept; of further rounds only the mean is known.
const KEPT: usize = 1_000_000;

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Test {
    /// Ping-pong between ranks 0 and 1.
    Latency = 1,
    /// Windows of messages from rank 0 to rank 1.
    Bandwidth = 2,
    /// Allreduce of all ranks.
    Allreduce = 3,
}

/// Times of one operation in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Bytes of a message.
    pub size: usize,
    /// Operations that were measured.
    pub rounds: usize,
    /// The median.
    pub p50_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The mean.
    pub mean_ns: f64,
}

/// Measured times of rounds.
#[derive(Default)]
struct Rounds {
    count: usize,
    sum: f64,
    kept: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, times: Vec<f64>) {
        self.count += times.len();
        self.sum += times.iter().sum::<f64>();
        let room = KEPT - self.kept.len();
        self.kept.extend(times.into_iter().take(room));
    }

    /// `share` is the part of each round that one operation took.
    fn times(mut self, size: usize, share: f64) -> Times {
        self.kept.sort_unstable_by(f64::total_cmp);
        let last = self.kept.len().saturating_sub(1);
        let at = |part: usize| self.kept.get((self.kept.len() * part / 100).min(last));
        let at = |part| at(part).map_or(0.0, |time| time * share);
        Times {
            size,
            rounds: self.count,
            p50_ns: at(50),
            p99_ns: at(99),
            mean_ns: self.sum * share / self.count.max(1) as f64,
        }
    }
}

/// Length of an order in bytes: the test, the bytes of a message, the number of rounds.
const ORDER_BYTES: usize = 17;

/// Measures a test for about a given time, at least one round after one that is not measured; `None` if Ctrl-C came
/// before. Only at rank 0.
///
/// # Errors
/// When a rank is lost.
pub fn lead(
    world: &mut World,
    test: Test,
    size: usize,
    lasting: Duration,
) -> Result<Option<Times>, MpiError> {
    let start = Instant::now();
    let part = (lasting / PARTS).min(LONGEST);
    let mut found = Rounds::default();
    let (mut rounds, mut is_warm) = (1, false);
    while !interrupt::came() && (found.count == 0 || start.elapsed() < lasting) {
        let begun = Instant::now();
        let times = order(world, test, size, rounds)?;
        let each = begun.elapsed().as_nanos() / rounds as u128;
        if is_warm {
            found.add(times);
        }
        is_warm = start.elapsed() >= part;
        // The first rounds of a size are slow, and tell too little for many.
        let fit = (part.as_nanos() / each.max(1)).clamp(1, MOST_ROUNDS.min(8 * rounds as u128));
        rounds = fit as usize;
    }
    let share = match test {
        // The time of one way is half that of a round trip.
        Test::Latency => 0.5,
        Test::Bandwidth => 1.0 / WINDOW as f64,
        Test::Allreduce => 1.0,
    };
    let size = match test {
        Test::Allreduce => elements(size) * ELEMENT_BYTES,
        Test::Latency | Test::Bandwidth => size,
    };
    Ok((found.count > 0).then(|| found.times(size, share)))
}

/// Size of an element of the allreduce.
const ELEMENT_BYTES: usize = size_of::<f64>();

/// Number of elements of an allreduce of about this many bytes.
fn elements(size: usize) -> usize {
    size.div_ceil(ELEMENT_BYTES)
}

/// Tells all ranks that nothing more comes. Only at rank 0.
///
/// # Errors
/// When a rank is lost.
pub fn end(world: &mut World) -> Result<(), MpiError> {
    world.broadcast(0, &mut [0; ORDER_BYTES])
}

/// Tells all ranks what to do, and does it.
fn order(world: &mut World, test: Test, size: usize, rounds: usize) -> Result<Vec<f64>, MpiError> {
    let mut order = [0; ORDER_BYTES];
    order[0] = test as u8;
    order[1..9].copy_from_slice(&(size as u64).to_le_bytes());
    order[9..].copy_from_slice(&(rounds as u64).to_le_bytes());
    world.broadcast(0, &mut order)?;
    run(world, test, size, rounds)
}

/// Runs what rank 0 says, until the end.
///
/// # Errors
/// When a rank is lost.
pub fn follow(mut world: World) -> Result<(), MpiError> {
    loop {
        let mut order = [0; ORDER_BYTES];
        world.broadcast(0, &mut order)?;
        let test = match order[0] {
            1 => Test::Latency,
            2 => Test::Bandwidth,
            3 => Test::Allreduce,
            _ => return world.finalize(),
        };
        let number = |bytes: &[u8]| {
            let high_first = bytes.iter().rev();
            high_first.fold(0, |number, byte| number << 8 | usize::from(*byte))
        };
        let (size, rounds) = (number(&order[1..9]), number(&order[9..]));
        run(&mut world, test, size, rounds)?;
    }
}

/// Runs a test in this rank; returns the time of each round.
fn run(world: &mut World, test: Test, size: usize, rounds: usize) -> Result<Vec<f64>, MpiError> {
    match (test, world.rank()) {
        (Test::Latency, 0 | 1) => ping_pong(world, size, rounds),
        (Test::Bandwidth, 0 | 1) => windows(world, size, rounds),
        (Test::Allreduce, _) => allreduce(world, size, rounds),
        (Test::Latency | Test::Bandwidth, _) => Ok(Vec::new()),
    }
}

/// Measures rounds after one that is not measured, as it begins while other ranks still fill their buffers; each
/// returns the time of its operation, without what prepares it. Ctrl-C is heard between orders: all ranks must do the
/// same rounds.
fn measured(
    rounds: usize,
    mut round: impl FnMut() -> Result<Duration, MpiError>,
) -> Result<Vec<f64>, MpiError> {
    round()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        times.push(round()?.as_nanos() as f64);
    }
    Ok(times)
}

fn ping_pong(world: &mut World, size: usize, rounds: usize) -> Result<Vec<f64>, MpiError> {
    let (sent, mut buffer) = (vec![1; size], vec![0; size]);
    let is_first = world.rank() == 0;
    measured(rounds, || {
        let start = Instant::now();
        if is_first {
            world.send(1, 1, &sent)?;
            world.receive(1, 1, &mut buffer)?;
        } else {
            world.receive(0, 1, &mut buffer)?;
            world.send(0, 1, &sent)?;
        }
        Ok(start.elapsed())
    })
}

fn windows(world: &mut World, size: usize, rounds: usize) -> Result<Vec<f64>, MpiError> {
    let mut buffers = vec![vec![1; size]; WINDOW];
    let mut requests = Vec::with_capacity(WINDOW);
    let is_first = world.rank() == 0;
    measured(rounds, || {
        let start = Instant::now();
        // Each comes back with its length, because a message fills it.
        for buffer in buffers.drain(..) {
            requests.push(match is_first {
                true => world.isend(1, 2, buffer)?,
                false => world.ireceive(0, 2, buffer)?,
            });
        }
        for request in requests.drain(..) {
            buffers.push(request.wait(world)?.buffer);
        }
        match is_first {
            true => world.receive(1, 3, &mut []).map(drop)?,
            false => world.send(0, 3, &[])?,
        }
        Ok(start.elapsed())
    })
}

fn allreduce(world: &mut World, size: usize, rounds: usize) -> Result<Vec<f64>, MpiError> {
    let mut elements = vec![1.0_f64; elements(size)];
    measured(rounds, || {
        // The sums of the round before would grow to infinity. All wait for each other, so that no rank's time contains
        // what another one still fills.
        elements.fill(1.0);
        world.barrier()?;
        let start = Instant::now();
        world.allreduce(&mut elements, Op::Sum)?;
        Ok(start.elapsed())
    })
}

/// Whether to measure another point.
#[must_use]
pub fn goes_on() -> bool {
    !interrupt::came()
}
