//! A connection of a transfer.

use std::sync::Arc;

use super::PIECES_OUT;
use crate::client::{Pipeline, RemoteRegion};
use crate::error::CallError;

/// One connection of a transfer.
pub(super) struct TransferLane<'t> {
    pub(super) pipeline: Pipeline,
    /// The region, as attached by its client.
    pub(super) region: &'t RemoteRegion,
}

impl<'t> TransferLane<'t> {
    pub(super) fn open(region: &'t RemoteRegion) -> Result<Self, CallError> {
        let pipeline = region.client().pipeline_of(PIECES_OUT);
        Ok(Self {
            pipeline: pipeline.map_err(|error| CallError::Connect(Arc::new(error)))?,
            region,
        })
    }
}
