//! The calls of `dunlin perf rpc`.

use dunlin::{CallError, Client, Pipeline};

use crate::commands::perf::load::{no_pipeline, Load, Shape, LONG_BYTES};
use crate::commands::Failure;
use crate::services::echo::MEASURE;

/// Calls of bytes: `Client::call` for one, a `Pipeline` for more.
pub(super) struct Raw {
    client: Client,
    shape: Shape,
    payload: Vec<u8>,
    pipeline: Option<Pipeline>,
    first_error: Option<String>,
}

impl Raw {
    pub(super) fn new(client: &Client, shape: Shape) -> Self {
        let mut payload = vec![7; shape.size];
        payload[..4].copy_from_slice(&shape.response.to_le_bytes());
        Self {
            client: client.clone(),
            shape,
            payload,
            pipeline: None,
            first_error: None,
        }
    }

    /// Submits a long request in a registered buffer, whose first bytes give the length of the response.
    #[inline(never)]
    fn submit_long(&mut self, tag: u64) -> Result<bool, Failure> {
        let pipeline = self.pipeline.as_mut().ok_or_else(no_pipeline)?;
        let mut request = pipeline.buffer(self.payload.len()).map_err(Failure::new)?;
        request[..4].copy_from_slice(&self.payload[..4]);
        let submitted = pipeline.submit_buffer(MEASURE, request, tag);
        Ok(submitted.map_err(Failure::new)?.is_none())
    }
}

/// Out of line, so that the callback stays short enough to be inlined where responses are taken.
#[cold]
#[inline(never)]
fn failed(first: &mut Option<String>, error: &CallError) -> Option<usize> {
    first.get_or_insert_with(|| error.to_string());
    None
}

impl Load for Raw {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn call(&mut self) -> Result<usize, Failure> {
        let reply = self.client.call(MEASURE, &self.payload);
        reply.map(|reply| reply.len()).map_err(Failure::new)
    }

    fn open(&mut self) -> Result<(), Failure> {
        if self.pipeline.is_none() {
            self.pipeline = Some(self.client.pipeline_of(self.shape.outstanding)?);
        }
        Ok(())
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.pipeline.as_ref().map_or(0, Pipeline::outstanding)
    }

    #[inline(always)]
    fn submit(&mut self, tag: u64) -> Result<bool, Failure> {
        if self.payload.len() > LONG_BYTES {
            return self.submit_long(tag);
        }
        let pipeline = self.pipeline.as_mut().ok_or_else(no_pipeline)?;
        // By reference: a result that was just written is not to be moved at once.
        let submitted = pipeline.submit(MEASURE, &self.payload, tag);
        if let Ok(submitted) = &submitted {
            return Ok(*submitted);
        }
        submitted.map_err(Failure::new)
    }

    #[inline]
    fn wait(&mut self, mut take: impl FnMut(u64, Option<usize>)) -> Result<(), Failure> {
        let pipeline = self.pipeline.as_mut().ok_or_else(no_pipeline)?;
        let first = &mut self.first_error;
        let waited = pipeline.wait(|tag, result| {
            // By reference: a result that was just written is not to be moved at once.
            let length = match &result {
                Ok(bytes) => Some(bytes.len()),
                Err(error) => failed(first, error),
            };
            take(tag, length);
        });
        waited.map(drop).map_err(Failure::new)
    }

    fn first_error(&mut self) -> &mut Option<String> {
        &mut self.first_error
    }
}
