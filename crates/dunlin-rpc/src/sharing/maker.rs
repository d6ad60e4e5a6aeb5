//! Makes the lanes of a connection handle: everything that a handle needs of a device.

use std::sync::Arc;

use dunlin_verbs::VerbsError;

use super::lane::SharedLane;
use super::ports::Ports;
use super::Discipline;
use crate::call::lane::Sleeper;
use crate::channel::opening::Opening;
use crate::config::ChannelConfig;

/// Makes shared lanes, all of whose wake-ups go to one event.
pub(crate) trait LaneMaker: Send + Sync {
    /// What the dispatcher sleeps on.
    fn event(&self) -> Box<dyn Sleeper>;
    /// Opens the client's side of a new lane, of the handle with these ports.
    fn open(
        &self,
        config: &ChannelConfig,
        discipline: Discipline,
        ports: &Arc<Ports>,
    ) -> Result<Opening<Arc<dyn SharedLane>>, VerbsError>;
    /// Starts a thread of the client.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()>;
    /// Number of cores on which the client's threads run.
    fn cores(&self) -> usize;
    /// A random number, which need not be secret.
    fn random(&self) -> Result<u64, VerbsError>;
}
