//! How long reads, writes and syncs of a file's content take through the client alone, without a mount.
//!
//! `cargo run -p dunlin-fs --example content -- dunlin://127.0.0.1:7400` against the servers of `dunlin serve`.

use std::time::Instant;

use dunlin_fs::{File, FileSystem, FsError};

/// Of one read or write.
const BLOCK: u64 = 4096;
/// Of the file.
const BLOCKS: u64 = 2048;
/// Writes before each sync.
const BETWEEN_SYNCS: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args()
        .nth(1)
        .ok_or("which metadata server? dunlin://host:port")?;
    let system = FileSystem::connect(&address)?;
    let name = format!("/content-{}", std::process::id());
    let file = system.create_new(&name)?;
    let measured = measure(&file);
    drop(file);
    system.remove(&name)?;
    Ok(measured?)
}

fn measure(file: &File) -> Result<(), FsError> {
    let block = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS) * BLOCK;
    let bytes = vec![7; BLOCK as usize];
    timed("write 4 KiB, in order", BLOCKS, |n| {
        file.write_at(n * BLOCK, &bytes)
    })?;
    timed("sync of all", 1, |_| file.sync())?;
    timed("read 4 KiB at random", BLOCKS, |n| {
        file.read_at(block(n), BLOCK as usize).map(drop)
    })?;
    timed("write 4 KiB at random", BLOCKS, |n| {
        file.write_at(block(n), &bytes)
    })?;
    file.sync()?;
    timed("64 writes and a sync", BLOCKS / BETWEEN_SYNCS, |turn| {
        for n in 0..BETWEEN_SYNCS {
            file.write_at(block(turn * BETWEEN_SYNCS + n), &bytes)?;
        }
        file.sync()
    })
}

fn timed(
    what: &str,
    times: u64,
    mut act: impl FnMut(u64) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let began = Instant::now();
    for n in 0..times {
        act(n)?;
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    println!("{what:24} {each:10.1} us each, {times} times");
    Ok(())
}
