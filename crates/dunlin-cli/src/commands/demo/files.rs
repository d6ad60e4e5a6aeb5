//! A file system: files are written and read one-sided, bypassing the data server's processor; then the metadata server
//! is killed, and everything that was synced is there after its restart.

use std::time::{Duration, Instant};

use dunlin_fs::{FileSystem, FsError, FsOptions};
use serde::Serialize;

use super::{device, Args};
use crate::commands::Failure;
use crate::kv_load::peer::Folder;
use crate::services::child::ServerProcess;
use crate::space::wait_for_space;
use crate::{interrupt, output};

/// Bytes of a small file, and of the large one.
const SMALL: usize = 4096;
const LARGE: usize = 32 << 20;
/// The large file is written and read in pieces.
const PIECE: usize = 1 << 20;
/// Time limit for the metadata server to find the data server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of small files.
const FILES: usize = 20_000;
/// The fraction of the time in which they are created. The rest is for what each of them needs afterwards: a sync of
/// two disks, and a lease that is handed to the later client.
const FILLING: u32 = 5;

/// The JSON object. What Ctrl-C left out is null.
#[derive(Debug, Serialize)]
struct Found {
    what: &'static str,
    files: usize,
    /// Files of 4 KiB created and written per second; the lease of each is returned when it is closed.
    create_per_s: f64,
    read_per_s: Option<f64>,
    large_bytes: usize,
    write_bytes_per_s: Option<f64>,
    read_bytes_per_s: Option<f64>,
    /// Time from the kill of the metadata server until a new client had found all files.
    back_ms: Option<u64>,
    /// Files found then with the right content.
    files_after: Option<usize>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let folder = Folder::new("demo-fs")?;
    let (file, store) = (folder.path().join("data"), folder.path().join("meta"));
    let words = |name: &str, value: String| [name.to_owned(), value];
    let with_device = |mut words: Vec<String>| {
        words.extend(device(args));
        words
    };
    let data = with_device(words("--file", file.to_string_lossy().into_owned()).to_vec());
    let data = ServerProcess::start("data", &data)?;
    let mut meta = words("--store", store.to_string_lossy().into_owned()).to_vec();
    meta.extend(words("--data", data.address().to_string()));
    let meta = with_device(meta);
    let mut server = ServerProcess::start("meta", &meta)?;
    let address = server.address().to_string();
    let bar = output::progress_bar();
    let show = |done: f64| bar.set_position((done.min(1.0) * 1000.0) as u64);

    let files = FileSystem::connect_with(&address, &FsOptions::default()).map_err(Failure::new)?;
    wait_for_space(&files, PATIENCE)?;
    files.create_directory("/small").map_err(Failure::new)?;
    bar.set_message("small files");
    let (count, made) = fill(&files, args.seconds / FILLING, show)?;
    bar.set_message("reading them");
    let began = Instant::now();
    let read = read_all(&files, count)?;
    let read_per_s = read.map(|read| read as f64 / began.elapsed().as_secs_f64());
    bar.set_message("a large file");
    let [written, got] = large(&files)?;
    let (mut back, mut files_after) = (None, None);
    if !interrupt::came() {
        files.sync_all().map_err(Failure::new)?;
        bar.set_message("the metadata server is killed");
        let began = Instant::now();
        server.kill()?;
        server = ServerProcess::start_at("meta", &address, &meta)?;
        let again = FileSystem::connect_with(&address, &FsOptions::default());
        let again = again.map_err(Failure::new)?;
        let there = again.list("/small").map_err(Failure::new)?.len();
        back = Some(began.elapsed());
        files_after = read_all(&again, there)?;
    }
    bar.finish_and_clear();
    drop(files);
    server.stop()?;
    data.stop()?;
    let bytes_per_s = |time: Option<Duration>| time.map(|time| LARGE as f64 / time.as_secs_f64());
    let found = Found {
        what: "fs",
        files: count,
        create_per_s: count as f64 / made.as_secs_f64(),
        read_per_s,
        large_bytes: LARGE,
        write_bytes_per_s: bytes_per_s(written),
        read_bytes_per_s: bytes_per_s(got),
        back_ms: back.map(|back| back.as_millis() as u64),
        files_after,
    };
    print(&found, args.json)?;
    match found.files_after {
        Some(there) if there != found.files => {
            Err(Failure::new("files that had been synced are missing"))
        }
        _ => Ok(()),
    }
}

fn print(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(found);
    }
    let mut table = output::table(&["a file system, three processes", ""]);
    table.add_row(["files of 4 KiB", &found.files.to_string()]);
    table.add_row(["made and written", &output::rate(found.create_per_s)]);
    let bandwidth = |rate| output::measured(rate, output::bandwidth);
    let read = output::measured(found.read_per_s, output::rate);
    table.add_row(["read", &read]);
    let large = output::bytes(found.large_bytes as f64);
    table.add_row([
        &format!("a file of {large}, written and synced"),
        &bandwidth(found.write_bytes_per_s),
    ]);
    table.add_row(["read", &bandwidth(found.read_bytes_per_s)]);
    let back = found.back_ms.map(|ms| ms as f64 * 1e6);
    let back = output::measured(back, output::nanoseconds);
    table.add_row([
        "the metadata server was killed; all files listed after",
        &back,
    ]);
    table.add_row([
        "files that are there, with their bytes",
        &output::measured(found.files_after.map(|files| files as f64), |files| {
            files.to_string()
        }),
    ]);
    output::print(table)
}

fn name(number: usize) -> String {
    format!("/small/file{number:05}")
}

fn content(number: usize) -> Vec<u8> {
    let words =
        (0..SMALL / 8).map(|at| (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at as u64);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Creates files for this time; returns their number and the time taken.
fn fill(
    files: &FileSystem,
    time: Duration,
    show: impl Fn(f64),
) -> Result<(usize, Duration), Failure> {
    let (began, mut count) = (Instant::now(), 0);
    while (count == 0 || began.elapsed() < time) && count < FILES && !interrupt::came() {
        let made = files
            .create_new(&name(count))
            .and_then(|file| file.write_at(0, &content(count)));
        made.map_err(Failure::new)?;
        count += 1;
        show(began.elapsed().as_secs_f64() / time.as_secs_f64().max(1e-9));
    }
    Ok((count, began.elapsed()))
}

/// Reads the first files; returns how many were right, or `None` if Ctrl-C came before the end.
fn read_all(files: &FileSystem, count: usize) -> Result<Option<usize>, Failure> {
    let mut right = 0;
    for number in 0..count {
        if interrupt::came() {
            return Ok(None);
        }
        let bytes = files
            .open(&name(number))
            .and_then(|file| file.read_at(0, SMALL + 1));
        right += usize::from(bytes.map_err(Failure::new)? == content(number));
    }
    Ok(Some(right))
}

/// Writes and reads a large file; returns the times of what Ctrl-C did not cut short.
fn large(files: &FileSystem) -> Result<[Option<Duration>; 2], Failure> {
    let piece = |at: usize| vec![(at / PIECE) as u8; PIECE];
    let write = || -> Result<[Option<Duration>; 2], FsError> {
        let file = files.create_new("/large")?;
        let began = Instant::now();
        for at in (0..LARGE).step_by(PIECE) {
            if interrupt::came() {
                return Ok([None, None]);
            }
            file.write_at(at as u64, &piece(at))?;
        }
        file.sync()?;
        let written = began.elapsed();
        let began = Instant::now();
        for at in (0..LARGE).step_by(PIECE) {
            if interrupt::came() {
                return Ok([Some(written), None]);
            }
            file.read_at(at as u64, PIECE)?;
        }
        Ok([Some(written), Some(began.elapsed())])
    };
    write().map_err(Failure::new)
}
