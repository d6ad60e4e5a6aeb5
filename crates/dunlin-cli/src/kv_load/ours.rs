//! Our own store, by a pipeline.

use dunlin::{CallError, Pipeline};

use super::{Answer, Engine, Request};
use crate::commands::Failure;
use crate::services::kv::{entries, put_request_into, scan_request_into, GET, PUT, SCAN};

/// `dunlin serve kv`.
#[derive(Debug)]
pub struct Ours {
    pipeline: Pipeline,
    payload: Vec<u8>,
    scans: bool,
}

impl Ours {
    /// Over a pipeline of its own. `scans`: answers that are neither values nor words are entries.
    pub fn new(pipeline: Pipeline, scans: bool) -> Self {
        Self {
            pipeline,
            payload: Vec::new(),
            scans,
        }
    }
}

/// A PUT is told from a GET by the length of its answer; with scans an answer is what can be read as one.
#[inline]
fn answer(got: Result<&[u8], CallError>, scans: bool) -> Answer {
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
        _ => Answer::Failed,
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

    #[inline]
    fn wait(&mut self, take: &mut impl FnMut(u64, Answer)) -> Result<(), Failure> {
        let scans = self.scans;
        let waited = self.pipeline.wait(|tag, got| take(tag, answer(got, scans)));
        waited.map(drop).map_err(Failure::new)
    }
}
