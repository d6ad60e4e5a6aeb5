//! Dunlin's store, through a pipeline.

use dunlin::{CallError, Pipeline};

use super::{Answer, Engine, FirstError, Request};
use crate::commands::Failure;
use crate::services::kv::{entries, put_request_into, scan_request_into, FULL, GET, PUT, SCAN};

/// `dunlin serve kv`.
#[derive(Debug)]
pub struct Ours {
    pipeline: Pipeline,
    payload: Vec<u8>,
    scans: bool,
    first_error: Option<FirstError>,
}

impl Ours {
    /// Over a pipeline of its own. `scans`: answers that are neither values nor words are entries.
    pub fn new(pipeline: Pipeline, scans: bool) -> Self {
        Self {
            pipeline,
            payload: Vec::new(),
            scans,
            first_error: None,
        }
    }
}

/// Out of line, because it is rare.
#[cold]
fn failed(error: &CallError) -> FirstError {
    FirstError {
        words: error.to_string(),
        is_full: matches!(error, CallError::Handler { code: FULL, .. }),
    }
}

/// A PUT is distinguished from a GET by the length of its answer; with scans, an answer is an entry if it can be parsed
/// as one.
#[inline]
fn answer(
    got: Result<&[u8], CallError>,
    scans: bool,
    first_error: &mut Option<FirstError>,
) -> Answer {
    match got {
        Ok([0 | 1]) => Answer::Stored,
        Ok([1, value @ ..]) if !scans => Answer::Value(value.len()),
        Ok(answer) if scans => {
            let (mut count, mut bytes) = (0, 0);
            for (_, value) in entries(answer) {
                count += 1;
                bytes += value.len();
            }
            Answer::Entries(count, bytes)
        }
        Ok(_) => Answer::Failed,
        Err(error) => {
            first_error.get_or_insert_with(|| failed(&error));
            Answer::Failed
        }
    }
}

impl Engine for Ours {
    #[inline]
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<bool, Failure> {
        let (handler, payload) = match request {
            Request::Get(key) => (GET, key),
            Request::Put(key, value) | Request::Insert(key, value) => {
                put_request_into(&mut self.payload, key, value);
                (PUT, &self.payload[..])
            }
            Request::Scan(first, most) => {
                scan_request_into(&mut self.payload, first, most);
                (SCAN, &self.payload[..])
            }
        };
        self.pipeline
            .submit(handler, payload, tag)
            .map_err(Failure::new)
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.pipeline.outstanding()
    }

    fn take_first_error(&mut self) -> Option<FirstError> {
        self.first_error.take()
    }

    #[inline]
    fn wait(&mut self, take: &mut impl FnMut(u64, Answer)) -> Result<(), Failure> {
        let (scans, first) = (self.scans, &mut self.first_error);
        let waited = self
            .pipeline
            .wait(|tag, got| take(tag, answer(got, scans, first)));
        waited.map(drop).map_err(Failure::new)
    }
}
