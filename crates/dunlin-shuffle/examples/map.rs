//! How long a mapper computes: one thread that reads records, finds the partition of each and copies it there, without
//! a network. `flor-shuffle` of the lab has its figure.
//!
//! `cargo run --release -p dunlin-shuffle --example map -- 10000000 1000 9 /dev/shm` for so many records, partitions,
//! turns after one that does not count, and the folder of the input.

use std::fs::File;
use std::io::{BufWriter, Write};

use dunlin_shuffle::{map_alone, Generator, RECORD_BYTES};

type Failure = Box<dyn std::error::Error>;

fn number(at: usize, default: usize) -> Result<usize, Failure> {
    let given = std::env::args().nth(at);
    Ok(given.map_or(Ok(default), |text| text.parse())?)
}

fn main() -> Result<(), Failure> {
    let (records, partitions, turns) = (number(1, 1_000_000)?, number(2, 1000)?, number(3, 9)?);
    let parent = std::env::args().nth(4).map(Into::into);
    let folder = tempfile::tempdir_in(parent.unwrap_or_else(std::env::temp_dir))?;
    let input = folder.path().join("input");
    let mut file = BufWriter::new(File::create(&input)?);
    let made = Generator::new(2023).write(0..records as u64, &mut file, |_| true)?;
    file.flush()?;

    let mut seconds = Vec::new();
    for turn in 0..=turns {
        let (found, took) = map_alone(&input, partitions)?;
        assert!(found.has_records_of(&made));
        // The first brings the program into memory.
        if turn > 0 || turns == 0 {
            seconds.push(took.as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    let (least, median) = (seconds[0], seconds[seconds.len() / 2]);
    let most = seconds[seconds.len() - 1];
    println!(
        "{} MB to {partitions} partitions by one thread: {median:.3} s ({least:.3} to {most:.3})",
        records * RECORD_BYTES / 1_000_000
    );
    Ok(())
}
