//! A worker: a process that maps a part of the input, receives a partition of it, and writes that to the output. It
//! receives orders on its standard input, and ends when that is closed: together with its coordinator, however that
//! ends.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin::{Secret, Server};

use crate::error::{FileError, WorkError};
use crate::intake::Intake;
use crate::map::map;
use crate::merge;
use crate::messages::{Answer, Job, Order, LINE_BYTES};
use crate::record::RECORD_BYTES;
use crate::runs::Runs;
use crate::send::Reach;
use crate::Summary;

/// Interval at which a worker reports its progress, which also shows that it is alive.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The progress of a worker.
#[derive(Debug, Default)]
struct Figures {
    mapped: AtomicU64,
    written: AtomicU64,
}

impl Figures {
    fn say(&self) {
        say(&Answer::At {
            mapped: self.mapped.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
        });
    }
}

/// Writes one line, completely.
fn say(answer: &Answer) {
    let line = serde_json::to_string(answer).map(|line| line + "\n");
    let mut output = io::stdout().lock();
    let written = line.map_err(io::Error::from);
    let written = written.and_then(|line| output.write_all(line.as_bytes()));
    if written.and_then(|()| output.flush()).is_err() {
        // The coordinator is gone.
        exit(1);
    }
}

fn say_failed(error: &WorkError) {
    say(&Answer::Failed {
        why: error.to_string(),
        peer: error.peer(),
    });
}

/// Receives orders until the input is closed, which ends the process.
fn listen() -> Receiver<Order> {
    let (tell, orders) = channel();
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = (&mut input).take(LINE_BYTES as u64).read_line(&mut line);
            let order = serde_json::from_str(&line);
            let (Ok(1..), Ok(order)) = (read, order) else {
                exit(0);
            };
            // If nobody receives it the work has failed, and that was reported.
            let _ = tell.send(order);
        }
    });
    orders
}

/// Does the work of a worker: the whole of a process that [`crate::sort`] starts. Returns when that process should end.
pub fn work() {
    let orders = listen();
    let figures = Arc::new(Figures::default());
    let shown = Arc::clone(&figures);
    thread::spawn(move || loop {
        shown.say();
        thread::sleep(TELL_EVERY);
    });
    let worked = run(&orders, &figures);
    if let Err(error) = &worked {
        say_failed(error);
    }
    // Waits until the coordinator has received everything and closes the input.
    while orders.recv().is_ok() {}
}

fn secret(hex: &str) -> Result<Secret, WorkError> {
    // The hexadecimal digits are as good a secret as the bytes that they encode.
    Secret::new(hex.as_bytes()).map_err(|error| WorkError::Order(error.to_string()))
}

fn next(orders: &Receiver<Order>) -> Result<Order, WorkError> {
    let none = || WorkError::Order("nothing".into());
    orders.recv().map_err(|_| none())
}

fn run(orders: &Receiver<Order>, figures: &Figures) -> Result<(), WorkError> {
    let Order::Prepare(job) = next(orders)? else {
        return Err(WorkError::Order("to start without a job".into()));
    };
    let preset = job.preset.parse();
    let reach = Reach {
        device: job.device.clone(),
        preset: preset.map_err(|_| WorkError::Order(format!("preset {}", job.preset)))?,
        secret: secret(&job.secret)?,
        patience: Duration::from_millis(job.patience_ms),
    };
    let intake = Intake::new(&job);
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .device(&reach.device)
        .secret(reach.secret.clone());
    let server = intake.serve(server).serve()?;
    say(&Answer::Listening(server.address().to_string()));

    let Order::Map(addresses) = next(orders)? else {
        return Err(WorkError::Order(
            "to start without the other workers".into(),
        ));
    };
    let receiving = Arc::clone(&intake);
    let receiving = thread::Builder::new()
        .name("dunlin-receive".into())
        // Reported at once: this worker may be about to send to itself, and wait.
        .spawn(move || receiving.receive().inspect_err(say_failed))
        .map_err(WorkError::Thread)?;
    let mapped = map(&job, &intake, (&addresses, &reach), &figures.mapped)?;
    // Reports the final progress, however fast it was.
    figures.say();
    say(&Answer::Mapped(mapped));
    let (runs, received) = receiving.join().map_err(|_| WorkError::Panicked)??;
    say(&Answer::Received(received));

    let Order::Merge(first) = next(orders)? else {
        return Err(WorkError::Order("to start again".into()));
    };
    let written = write(&job, &runs, first, &figures.written)?;
    figures.say();
    say(&Answer::Written(written));
    Ok(())
}

/// Writes the partition from record `first` of the output on.
fn write(job: &Job, runs: &Runs, first: u64, written: &AtomicU64) -> Result<Summary, WorkError> {
    let of = |source| FileError::of(&job.output, source);
    let output = File::options().write(true).open(&job.output).map_err(of)?;
    let to = (&output, first * RECORD_BYTES as u64);
    Ok(merge::write(runs, &job.plan, to, written).map_err(of)?)
}
