//! The threads that make calls for `dunlin perf rpc`, slice by slice.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin::{CallError, Client, ConnectError, Pipeline};

use crate::affinity;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::report::Tally;
use crate::services::echo::MEASURE;

/// What each thread does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) size: usize,
    pub(super) response: u32,
    pub(super) outstanding: usize,
    /// Calls before the clock starts.
    pub(super) warm_up: usize,
}

/// A client thread that makes calls when told to.
pub(super) struct Loader {
    begin: Option<Sender<(usize, Duration)>>,
    end: Receiver<Result<Tally, CallError>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Each slice is made with one of `clients`.
    pub(super) fn start(
        clients: &[Client],
        load: Load,
        core: Option<usize>,
    ) -> Result<Self, Failure> {
        let (begin, begins) = channel();
        let (tell, end) = channel();
        let clients = clients.to_vec();
        let thread = std::thread::Builder::new()
            .name("dunlin-load".into())
            .spawn(move || {
                if let Some(core) = core {
                    affinity::pin(core);
                }
                let mut pipelines: Vec<Option<Pipeline>> = clients.iter().map(|_| None).collect();
                for (client, slice) in begins {
                    let tally = if load.outstanding == 1 && load.size <= LONG_BYTES {
                        one_by_one(&clients[client], load, slice)
                    } else {
                        many(&clients[client], &mut pipelines[client], load, slice)
                    };
                    if tell.send(tally).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            begin: Some(begin),
            end,
            thread: Some(thread),
        })
    }

    fn begin(&self, client: usize, slice: Duration) -> Result<(), Failure> {
        let sent = self.begin.as_ref().map(|begin| begin.send((client, slice)));
        sent.ok_or_else(thread_gone)?.map_err(|_| thread_gone())
    }

    fn end(&self) -> Result<Tally, Failure> {
        self.end
            .recv()
            .map_err(|_| thread_gone())?
            .map_err(Failure::new)
    }
}

fn thread_gone() -> Failure {
    Failure::new("a client thread ended early")
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Calls before the clock starts: both sides are awake then.
pub(super) const WARM_UP: usize = 64;
/// Calls between two looks at the end of the slice.
const STRIDE: usize = 64;
/// Of so many pipelined calls one is timed: reading the clock costs as much as a call.
const SAMPLE: u64 = 16;
/// Requests longer than this are filled in place.
const LONG_BYTES: usize = 4096;

fn one_by_one(client: &Client, load: Load, slice: Duration) -> Result<Tally, CallError> {
    let mut payload = vec![7; load.size];
    payload[..4].copy_from_slice(&load.response.to_le_bytes());
    for _ in 0..load.warm_up {
        client.call(MEASURE, &payload)?;
    }
    let mut tally = Tally::default();
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    let mut elapsed = 0;
    while elapsed < limit {
        for _ in 0..STRIDE {
            let before = now_ns();
            let ended = client.call(MEASURE, &payload);
            tally.latencies.record(now_ns() - before);
            count(&mut tally, load, &ended.map(|reply| reply.len()));
        }
        elapsed = now_ns() - start;
    }
    tally.elapsed = Duration::from_nanos(elapsed);
    Ok(tally)
}

fn count(tally: &mut Tally, load: Load, ended: &Result<usize, CallError>) {
    match ended {
        Ok(length) if *length == load.response as usize => {
            tally.operations += 1;
            tally.bytes += load.size as u64;
        }
        _ => tally.errors += 1,
    }
}

fn many(
    client: &Client,
    place: &mut Option<Pipeline>,
    load: Load,
    slice: Duration,
) -> Result<Tally, CallError> {
    let pipeline = match place {
        Some(pipeline) => pipeline,
        None => {
            let connect = |error: ConnectError| CallError::Connect(std::sync::Arc::new(error));
            place.insert(client.pipeline_of(load.outstanding).map_err(connect)?)
        }
    };
    let mut payload = vec![7; load.size];
    payload[..4].copy_from_slice(&load.response.to_le_bytes());
    let mut run = Run {
        tally: Tally::default(),
        load,
        timing: true,
    };
    let mut warm = Run {
        tally: Tally::default(),
        load,
        timing: false,
    };
    for _ in 0..load.warm_up.min(load.outstanding) {
        send(pipeline, &payload, u64::MAX)?;
        pipeline.wait(|tag, result| warm.take(tag, result))?;
    }
    let limit = slice.as_nanos() as u64;
    let start = now_ns();
    let (mut elapsed, mut sent) = (0, 0u64);
    while elapsed < limit {
        for _ in 0..STRIDE {
            for _ in pipeline.outstanding()..load.outstanding {
                sent += 1;
                let tag = if sent % SAMPLE == 0 {
                    now_ns()
                } else {
                    u64::MAX
                };
                if !send(pipeline, &payload, tag)? {
                    break;
                }
            }
            pipeline.wait(|tag, result| run.take(tag, result))?;
        }
        elapsed = now_ns() - start;
    }
    while pipeline.outstanding() > 0 {
        pipeline.wait(|tag, result| run.take(tag, result))?;
    }
    run.tally.elapsed = Duration::from_nanos(now_ns() - start);
    Ok(run.tally)
}

/// Sends one request: a long one in a registered buffer whose first bytes say what is wanted.
fn send(pipeline: &mut Pipeline, payload: &[u8], tag: u64) -> Result<bool, CallError> {
    if payload.len() <= LONG_BYTES {
        return pipeline.submit(MEASURE, payload, tag);
    }
    let mut request = pipeline.buffer(payload.len())?;
    request[..4].copy_from_slice(&payload[..4]);
    Ok(pipeline.submit_buffer(MEASURE, request, tag)?.is_none())
}

struct Run {
    tally: Tally,
    load: Load,
    timing: bool,
}

impl Run {
    #[inline]
    fn take(&mut self, tag: u64, result: Result<&[u8], CallError>) {
        if tag != u64::MAX && self.timing {
            self.tally.latencies.record(now_ns() - tag);
        }
        count(&mut self.tally, self.load, &result.map(<[u8]>::len));
    }
}

/// One slice on all threads.
/// `client` is a place in the list that the threads were started with.
pub(super) fn measure(
    threads: &[Loader],
    client: usize,
    slice: Duration,
) -> Result<Tally, Failure> {
    for thread in threads {
        thread.begin(client, slice)?;
    }
    let mut sum = Tally::default();
    for thread in threads {
        sum.merge_beside(&thread.end()?);
    }
    // Pollers go to sleep now; the next to measure has the cores to itself.
    std::thread::sleep(Duration::from_millis(1));
    Ok(sum)
}
