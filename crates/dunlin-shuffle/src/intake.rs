//! The receiving half of a worker: others request a place, fill it with records by one-sided WRITEs, and report that.
//! Received records are sorted while more arrive, and written to files when memory is full.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dunlin::{HandlerError, HandlerId, Memory, Region, ServerBuilder};

use crate::error::WorkError;
use crate::merge;
use crate::messages::{Job, Received};
use crate::plan::{Plan, SEGMENTS};
use crate::record::RECORD_BYTES;
use crate::runs::{sort, Runs};
use crate::segments::{Complete, Segments};

/// The region into which records are written.
pub(crate) const REGION: &str = "records";
/// Requests a place for this many bytes (u32): returns its number and its offset (two u64). Answered when there is
/// space.
pub(crate) const RESERVE: HandlerId = 1;
/// Reports that the place with this number (u64) is filled.
pub(crate) const FILLED: HandlerId = 2;
/// Reports that the worker with this number (u32, from 0 on) sends no more.
pub(crate) const END: HandlerId = 3;

/// The error code of a refused request.
const REFUSED: u32 = 1;

/// A place in the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

/// Called with the place, or with the reason why there will be none.
type Taker = Box<dyn FnOnce(Result<Place, String>) + Send>;

/// What was received, and which requests wait.
struct State {
    segments: Segments,
    waiting: VecDeque<(usize, Taker)>,
    complete: VecDeque<Complete>,
    /// Which workers send no more.
    ended: Vec<bool>,
    records: u64,
    failed: Option<String>,
}

/// The intake of one worker.
pub(crate) struct Intake {
    region: Region,
    plan: Plan,
    spill: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

impl Intake {
    pub(crate) fn new(job: &Job) -> Arc<Self> {
        Arc::new(Self {
            region: Region::new(REGION, job.plan.region_bytes()).writable(),
            plan: job.plan,
            spill: job.spill.clone(),
            state: Mutex::new(State {
                segments: Segments::new(SEGMENTS, job.plan.segment_bytes),
                waiting: VecDeque::new(),
                complete: VecDeque::new(),
                ended: vec![false; job.workers],
                records: 0,
                failed: None,
            }),
            changed: Condvar::new(),
        })
    }

    /// Adds the region and the handlers to a server.
    pub(crate) fn serve(self: &Arc<Self>, server: ServerBuilder) -> ServerBuilder {
        let (reserve, filled, end) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        server
            .region(&self.region)
            .handle_deferred(RESERVE, move |request, responder| {
                let Ok(bytes) = request.payload().try_into().map(u32::from_le_bytes) else {
                    return responder.fail(refused("a reservation without a valid length"));
                };
                let answer = |place: Result<Place, String>| match place {
                    Ok(place) => {
                        let words = [place.number, place.offset].map(u64::to_le_bytes);
                        responder.reply(words.concat());
                    }
                    Err(why) => responder.fail(refused(&why)),
                };
                reserve.reserve(bytes as usize, Box::new(answer));
            })
            .handle(FILLED, move |request, _| {
                let number = request.payload().try_into().map(u64::from_le_bytes);
                let known = number.is_ok_and(|number| filled.filled(number));
                known
                    .then_some(())
                    .ok_or_else(|| refused("unknown reservation number"))
            })
            .handle(END, move |request, _| {
                let number = request.payload().try_into().map(u32::from_le_bytes);
                let known = number.is_ok_and(|number| end.end(number as usize));
                known
                    .then_some(())
                    .ok_or_else(|| refused("unknown worker number"))
            })
    }

    /// The memory of the region, once the server is running.
    pub(crate) fn memory(&self) -> Result<&Memory, WorkError> {
        let memory = self.region.memory();
        memory.ok_or_else(|| WorkError::Order("to receive before the server runs".into()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `taker` with a place for this many bytes, at once or when there is space.
    pub(crate) fn reserve(&self, bytes: usize, taker: Taker) {
        let mut state = self.lock();
        let whole = bytes > 0 && bytes % RECORD_BYTES == 0 && bytes <= self.plan.block_bytes;
        let refusal = match &state.failed {
            Some(why) => Some(why.clone()),
            None if !whole => Some(format!("a reservation of {bytes} bytes")),
            // Each worker requests one at a time.
            None if state.waiting.len() >= state.ended.len() => {
                Some("too many reservations are waiting".into())
            }
            None => None,
        };
        if let Some(why) = refusal {
            drop(state);
            return taker(Err(why));
        }
        state.waiting.push_back((bytes, taker));
        self.grant(state);
    }

    /// Grants places to waiting requests, as far as there is space.
    fn grant(&self, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        while let Some((bytes, _)) = state.waiting.front() {
            let bytes = *bytes;
            let (grant, complete) = state.segments.reserve(bytes);
            state.complete.extend(complete);
            let Some(grant) = grant else { break };
            let place = Place {
                number: grant.number,
                offset: grant.offset as u64,
            };
            granted.extend(state.waiting.pop_front().map(|(_, taker)| (taker, place)));
        }
        drop(state);
        self.changed.notify_all();
        for (taker, place) in granted {
            taker(Ok(place));
        }
    }

    /// Records that a place is filled. Returns whether it exists.
    pub(crate) fn filled(&self, number: u64) -> bool {
        let mut state = self.lock();
        let Some((bytes, complete)) = state.segments.fill(number) else {
            return false;
        };
        state.records += (bytes / RECORD_BYTES) as u64;
        if complete.is_some() {
            state.complete.extend(complete);
            self.changed.notify_all();
        }
        true
    }

    /// Records that a worker sends no more. Returns whether there is one with this number that had not ended.
    pub(crate) fn end(&self, worker: usize) -> bool {
        let mut state = self.lock();
        let first = state
            .ended
            .get_mut(worker)
            .map(|ended| std::mem::replace(ended, true));
        self.changed.notify_all();
        first == Some(false)
    }

    /// Returns the next segment that can be sorted; `None` when all workers have ended and all segments are sorted.
    fn next(&self) -> Result<Option<Complete>, WorkError> {
        let mut state = self.lock();
        loop {
            if let Some(complete) = state.complete.pop_front() {
                return Ok(Some(complete));
            }
            if state.ended.iter().all(|ended| *ended) {
                if state.segments.open_grants() > 0 {
                    let words = "a worker ended before all its records had arrived";
                    return Err(WorkError::Order(words.into()));
                }
                return Ok(state.segments.close());
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sorts what arrives until all workers have ended.
    pub(crate) fn receive(&self) -> Result<(Runs, Received), WorkError> {
        self.sort_all().inspect_err(|error| {
            let mut state = self.lock();
            let why = error.to_string();
            state.failed = Some(why.clone());
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            for (_, taker) in waiting {
                taker(Err(why.clone()));
            }
        })
    }

    fn sort_all(&self) -> Result<(Runs, Received), WorkError> {
        let memory = self.memory()?;
        let mut runs = Runs::default();
        let mut held = 0;
        while let Some(Complete { segment, bytes }) = self.next()? {
            if held + bytes > self.plan.runs_bytes {
                self.spill(&mut runs)?;
                held = 0;
            }
            let start = segment * self.plan.segment_bytes;
            runs.in_memory.push(sort(memory, start, bytes));
            held += bytes;
            let mut state = self.lock();
            state.segments.free(segment);
            self.grant(state);
        }
        let received = Received {
            records: self.lock().records,
            spilled_runs: runs.in_files.len() as u64,
            spilled_bytes: runs.in_files.iter().map(|run| run.bytes).sum(),
        };
        Ok((runs, received))
    }

    /// Writes the runs in memory to a file.
    fn spill(&self, runs: &mut Runs) -> Result<(), WorkError> {
        if runs.in_files.len() == self.plan.runs_max() {
            return Err(WorkError::Runs {
                runs: runs.in_files.len(),
                bytes: self.plan.runs_bytes,
            });
        }
        let in_memory = std::mem::take(&mut runs.in_memory);
        let spilled = merge::spill(in_memory, &self.spill, &self.plan);
        let failed = |error| WorkError::Spill(format!("{}: {error}", self.spill.display()));
        runs.in_files.push(spilled.map_err(failed)?);
        Ok(())
    }
}

fn refused(why: &str) -> HandlerError {
    HandlerError::new(REFUSED, why)
}
