//! The heat equation on a plate, by Jacobi's method: each rank has some rows, and exchanges the outermost ones with its
//! neighbours before each step.
//!
//! ```sh
//! cargo build --release -p dunlin-mpi --example heat
//! dunlin mpi run -n 4 -- target/release/examples/heat 512 500
//! ```
//!
//! Rank 0 computes the same in one loop and compares every bit. The number of rows must be a multiple of the number of
//! ranks.

use std::error::Error;
use std::time::Instant;

use dunlin_mpi::{read_elements, write_elements, MpiError, Op, World};

/// Tags of rows that go to the neighbour with lower rows, and to that with higher ones.
const DOWN: u32 = 1;
const UP: u32 = 2;

/// Rows of a plate, with one more row at either side.
struct Rows {
    width: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Rows {
    /// The rows from `first` of a plate whose first row is kept at 100 degrees; everything else begins at 0.
    fn new(first: usize, count: usize, width: usize) -> Self {
        let mut now = vec![0.0; (count + 2) * width];
        if first == 0 {
            now[..width].fill(100.0);
        }
        let next = now.clone();
        Self { width, now, next }
    }

    fn row(&mut self, at: usize) -> &mut [f64] {
        &mut self.now[at * self.width..][..self.width]
    }

    fn count(&self) -> usize {
        self.now.len() / self.width - 2
    }

    /// Replaces each point by the mean of its neighbours; returns the largest change.
    fn step(&mut self) -> f64 {
        let (width, mut change) = (self.width, 0.0_f64);
        for at in 1..=self.count() {
            for column in 1..width - 1 {
                let here = at * width + column;
                let around = self.now[here - width] + self.now[here + width];
                let mean = (around + self.now[here - 1] + self.now[here + 1]) / 4.0;
                change = change.max((mean - self.now[here]).abs());
                self.next[here] = mean;
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
        change
    }
}

/// Exchanges the outermost rows with the neighbours.
fn exchange(world: &mut World, rows: &mut Rows) -> Result<(), MpiError> {
    let (rank, last) = (world.rank(), world.size() - 1);
    let (count, bytes) = (rows.count(), rows.width * 8);
    let (mut ours, mut requests) = (Vec::new(), Vec::new());
    // Receives are posted first, so that rows are received directly into their buffers.
    for (there, neighbour, tag) in [
        (rank > 0, rank.wrapping_sub(1), UP),
        (rank < last, rank + 1, DOWN),
    ] {
        if there {
            requests.push((tag, world.ireceive(neighbour, tag, vec![0; bytes])?));
        }
    }
    if rank > 0 {
        write_elements(rows.row(1), &mut ours);
        world.send(rank - 1, DOWN, &ours)?;
    }
    if rank < last {
        write_elements(rows.row(count), &mut ours);
        world.send(rank + 1, UP, &ours)?;
    }
    for (tag, request) in requests {
        let received = request.wait(world)?;
        let at = if tag == UP { 0 } else { count + 1 };
        read_elements(&received.buffer, rows.row(at));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let width: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let steps: usize = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let mut world = World::from_env()?;
    let (rank, size) = (world.rank(), world.size());
    if width < 3 || width % size != 0 {
        return Err(format!("{width} rows cannot be divided among {size} ranks").into());
    }
    let count = width / size;
    let mut rows = Rows::new(rank * count, count, width);
    world.barrier()?;
    let start = Instant::now();
    let mut change = [0.0];
    for _ in 0..steps {
        exchange(&mut world, &mut rows)?;
        change = [rows.step()];
    }
    world.allreduce(&mut change, Op::Max)?;
    let took = start.elapsed();
    let mut plate = vec![0.0; if rank == 0 { width * width } else { 0 }];
    world.gather(0, &rows.now[width..(count + 1) * width], &mut plate)?;
    world.finalize()?;
    if rank == 0 {
        let mut alone = Rows::new(0, width, width);
        let expected = (0..steps).map(|_| alone.step()).last().unwrap_or(0.0);
        let same = |(one, other): (&f64, &f64)| one.to_bits() == other.to_bits();
        if !plate.iter().zip(&alone.now[width..]).all(same)
            || change[0].to_bits() != expected.to_bits()
        {
            return Err("the ranks and one loop do not agree".into());
        }
        println!(
            "{width} x {width}, {steps} steps, {size} ranks: {took:.2?}, last change {:.6}, equal to one loop",
            change[0]
        );
    }
    Ok(())
}
