//! The workers' processes as seen by their coordinator: their messages, whether they are alive, and which of them is
//! the cause when several report errors.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::coordinator::{Progress, SortOptions};
use crate::error::SortError;
use crate::messages::{Answer, Order, LINE_BYTES};

/// Time that a coordinator waits for messages of workers before it checks the processes.
const TICK: Duration = Duration::from_millis(50);
/// Time that it waits for a better cause when a worker reports an error of another one.
const GRACE: Duration = Duration::from_secs(1);

/// The phases of the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// They start and connect to each other.
    #[default]
    Starting,
    /// They read, send and receive.
    Shuffling,
    /// They merge and write.
    Merging,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Shuffling => "reading and sending",
            Self::Merging => "merging and writing",
        })
    }
}

/// An event of a worker.
enum Event {
    Said(Answer),
    Nonsense(String),
    Gone,
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    /// Time since its last message, counted only while the coordinator itself was running.
    silent: Duration,
    mapped: u64,
    written: u64,
}

/// All workers. They are killed when this is dropped.
pub(crate) struct Workers<'w> {
    each: Vec<Worker>,
    ids: Vec<u32>,
    events: Receiver<(usize, Event)>,
    /// Messages that arrived early: a worker need not wait for the others.
    early: VecDeque<(usize, Answer)>,
    patience: Duration,
    phase: Phase,
    records: u64,
    watch: &'w mut dyn FnMut(&Progress<'_>) -> bool,
}

fn hear(worker: usize, output: ChildStdout, tell: &Sender<(usize, Event)>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let read = (&mut output).take(LINE_BYTES as u64).read_line(&mut line);
        let event = match (read, serde_json::from_str(&line)) {
            (Ok(0) | Err(_), _) => Event::Gone,
            // The stream ended within a line.
            _ if !line.ends_with('\n') && line.len() < LINE_BYTES => Event::Gone,
            (_, Ok(answer)) => Event::Said(answer),
            (_, Err(error)) => Event::Nonsense(error.to_string()),
        };
        let last = !matches!(event, Event::Said(_));
        if tell.send((worker, event)).is_err() || last {
            return;
        }
    }
}

impl<'w> Workers<'w> {
    /// Starts the workers.
    pub(crate) fn start(
        options: &SortOptions,
        records: u64,
        watch: &'w mut dyn FnMut(&Progress<'_>) -> bool,
    ) -> Result<Self, SortError> {
        let (tell, events) = channel();
        let mut workers = Self {
            each: Vec::new(),
            ids: Vec::new(),
            events,
            early: VecDeque::new(),
            patience: options.patience,
            phase: Phase::Starting,
            records,
            watch,
        };
        for number in 0..options.workers {
            let failed = |source| SortError::Start {
                worker: number + 1,
                source,
            };
            let mut child = (options.worker)()
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(failed)?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            workers.ids.push(child.id());
            workers.each.push(Worker {
                child,
                input,
                silent: Duration::ZERO,
                mapped: 0,
                written: 0,
            });
            let tell = tell.clone();
            let hearing = thread::Builder::new().name(format!("dunlin-worker-{}", number + 1));
            let hearing = hearing.spawn(move || {
                if let Some(output) = output {
                    hear(number, output, &tell);
                }
            });
            hearing.map_err(failed)?;
        }
        Ok(workers)
    }

    /// Enters a phase.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Sends an order to a worker. If the worker is gone, [`Workers::gather`] reports it.
    pub(crate) fn tell(&mut self, worker: usize, order: &Order) -> Result<(), SortError> {
        let line = serde_json::to_string(order).map_err(|error| SortError::Protocol {
            worker: worker + 1,
            why: error.to_string(),
        })?;
        if let Some(input) = &mut self.each[worker].input {
            let _ = writeln!(input, "{line}");
        }
        Ok(())
    }

    /// Collects from each worker the next message other than progress, through `take`, which returns an error for
    /// unexpected ones.
    pub(crate) fn gather<T: Clone>(
        &mut self,
        take: impl Fn(Answer) -> Result<T, Answer>,
    ) -> Result<Vec<T>, SortError> {
        let mut all: Vec<Option<T>> = vec![None; self.each.len()];
        let mut early = std::mem::take(&mut self.early);
        while all.iter().any(Option::is_none) {
            let heard = early.pop_front();
            let Some((worker, answer)) = heard.map_or_else(|| self.next(), |one| Ok(Some(one)))?
            else {
                continue;
            };
            if all[worker].is_some() {
                self.early.push_back((worker, answer));
                continue;
            }
            let taken = take(answer).map_err(|answer| SortError::Protocol {
                worker: worker + 1,
                why: format!("{answer:?}"),
            })?;
            all[worker] = Some(taken);
        }
        Ok(all.into_iter().flatten().collect())
    }

    fn next(&mut self) -> Result<Option<(usize, Answer)>, SortError> {
        let progress = Progress {
            phase: self.phase,
            records: self.records,
            mapped: self.each.iter().map(|worker| worker.mapped).sum(),
            written: self.each.iter().map(|worker| worker.written).sum(),
            processes: &self.ids,
        };
        if !(self.watch)(&progress) {
            return Err(SortError::Interrupted);
        }
        let began = Instant::now();
        let heard = self.events.recv_timeout(TICK);
        // If this process was suspended, the others need not have been.
        let waited = began.elapsed().min(2 * TICK);
        for worker in &mut self.each {
            worker.silent += waited;
        }
        let said = match heard {
            Ok((worker, event)) => self.heard(worker, event)?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        };
        // With many workers, there is always a message from another one.
        let still = self.each.iter().position(|one| one.silent > self.patience);
        still.map_or(Ok(said), |worker| {
            Err(self.is_still(worker, self.each[worker].silent))
        })
    }

    fn heard(&mut self, worker: usize, event: Event) -> Result<Option<(usize, Answer)>, SortError> {
        let one = &mut self.each[worker];
        one.silent = Duration::ZERO;
        match event {
            Event::Said(Answer::At { mapped, written }) => {
                (one.mapped, one.written) = (mapped, written);
                Ok(None)
            }
            Event::Said(Answer::Failed { why, peer }) => Err(self.cause(worker, why, peer)),
            Event::Said(answer) => Ok(Some((worker, answer))),
            Event::Nonsense(why) => Err(SortError::Protocol {
                worker: worker + 1,
                why,
            }),
            Event::Gone => Err(self.died(worker)),
        }
    }

    /// A worker that reports an error of another one is the cause only if no other is: the other may have died, hang,
    /// or report its own error.
    fn cause(&mut self, worker: usize, why: String, peer: Option<usize>) -> SortError {
        let failed = |ids: &[u32], worker: usize, why| SortError::Failed {
            worker: worker + 1,
            process: ids[worker],
            why,
        };
        let until = Instant::now() + GRACE;
        let peer = peer.map(|number| number.saturating_sub(1));
        let mut is_silent = true;
        while peer.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok((other, Event::Gone)) => return self.died(other),
                Ok((other, Event::Said(Answer::Failed { why, peer: None }))) => {
                    return failed(&self.ids, other, why);
                }
                Ok((other, _)) => is_silent &= Some(other) != peer,
                Err(_) => break,
            }
        }
        match peer.filter(|peer| is_silent && *peer < self.each.len()) {
            Some(peer) => self.is_still(peer, self.each[peer].silent + GRACE),
            None => failed(&self.ids, worker, why),
        }
    }

    fn is_still(&self, worker: usize, silent: Duration) -> SortError {
        SortError::Silent {
            worker: worker + 1,
            process: self.ids[worker],
            seconds: silent.as_secs(),
            phase: self.phase,
        }
    }

    fn died(&mut self, worker: usize) -> SortError {
        let child = &mut self.each[worker].child;
        // It has closed its output, and may take a moment to end, or not end at all.
        let until = Instant::now() + GRACE;
        let mut ended = child.try_wait();
        while matches!(ended, Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
            ended = child.try_wait();
        }
        let status = match ended {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "its output closed but still running,".into(),
            Err(error) => error.to_string(),
        };
        SortError::Died {
            worker: worker + 1,
            process: self.ids[worker],
            status,
            phase: self.phase,
        }
    }

    /// Lets the workers end. Their work is done: one that does not end is killed.
    pub(crate) fn finish(mut self) {
        for worker in &mut self.each {
            worker.input = None;
        }
        let until = Instant::now() + GRACE;
        for worker in &mut self.each {
            while matches!(worker.child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        for worker in &mut self.each {
            let _ = worker.child.kill();
        }
        for worker in &mut self.each {
            let _ = worker.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Processes that send nothing themselves.
    fn quiet(count: usize) -> Vec<Worker> {
        let start = || Command::new("sleep").arg("600").spawn();
        let worker = |_| Worker {
            child: start().unwrap(),
            input: None,
            silent: Duration::ZERO,
            mapped: 0,
            written: 0,
        };
        (0..count).map(worker).collect()
    }

    #[test]
    fn one_that_stands_still_is_noticed_while_others_speak_without_a_pause() {
        let (tell, events) = channel();
        let each = quiet(2);
        let mut workers = Workers {
            ids: each.iter().map(|worker| worker.child.id()).collect(),
            each,
            events,
            early: VecDeque::new(),
            patience: Duration::from_millis(300),
            phase: Phase::Shuffling,
            records: 0,
            watch: &mut |_| true,
        };
        let is_over = AtomicBool::new(false);
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                // Within the time that the coordinator waits for each, for far longer than its patience.
                for _ in 0..10_000 {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (mapped, written) = (0, 0);
                    let _ = tell.send((1, Event::Said(Answer::At { mapped, written })));
                    thread::sleep(Duration::from_millis(3));
                }
                let _ = tell.send((1, Event::Gone));
            });
            let error = loop {
                match workers.next() {
                    Ok(said) => assert!(said.is_none()),
                    Err(error) => break error,
                }
            };
            is_over.store(true, Ordering::Relaxed);
            error
        });
        assert!(
            matches!(error, SortError::Silent { worker: 1, .. }),
            "{error}"
        );
    }
}
