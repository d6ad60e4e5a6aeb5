//! Makes the lanes of a connection handle: all that a handle asks of a device.

use std::sync::Arc;

use dunlin_verbs::{EndpointAddress, VerbsError};

use super::lane::SharedLane;
use super::Discipline;
use crate::call::lane::Sleeper;
use crate::channel::Parameters;
use crate::config::ChannelConfig;

/// Makes shared lanes, whose wake-ups all go to one event.
pub(crate) trait LaneMaker: Send + Sync {
    /// What the dispatcher sleeps on.
    fn event(&self) -> Box<dyn Sleeper>;
    /// The client's side of a new lane.
    fn open(&self, config: &ChannelConfig) -> Result<Box<dyn OpeningShared>, VerbsError>;
    /// Starts a thread of the client.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;
    /// Cores that the client's threads run on.
    fn cores(&self) -> usize;
    /// A random number, which is no secret.
    fn random(&self) -> Result<u64, VerbsError>;
}

/// A shared lane whose server is not known yet.
pub(crate) trait OpeningShared: Send {
    /// Where the server reaches it.
    fn address(&self) -> EndpointAddress;
    /// What the server must know beyond that.
    fn parameters(&self) -> Parameters;
    /// Joins it to the server.
    fn connect(
        self: Box<Self>,
        peer: &EndpointAddress,
        parameters: &Parameters,
        discipline: Discipline,
    ) -> Result<Arc<dyn SharedLane>, VerbsError>;
}
