//! The current state of the port: ports go down and up, and addresses change, while a device is open.
//!
//! The event thread queries it again whenever the library reports a change, and so does making a connection if the port
//! was last seen down, so that a missing event does no harm. Existing connections keep what they were created with.

use std::sync::{Arc, PoisonError, RwLock};

use dunlin_verbs::VerbsError;

use crate::context::Core;
use crate::error::invalid;
use crate::port::{examine, PortReport};

/// What is known about the port.
#[derive(Debug)]
pub(crate) struct Link {
    state: RwLock<State>,
}

#[derive(Clone, Debug)]
struct State {
    /// The last usable state.
    port: Arc<PortReport>,
    /// Why it is not usable now.
    down: Option<String>,
}

impl Link {
    pub(crate) fn new(port: PortReport) -> Self {
        Self {
            state: RwLock::new(State {
                port: Arc::new(port),
                down: None,
            }),
        }
    }

    fn state(&self) -> State {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    /// The port, usable or not.
    pub(crate) fn port(&self) -> Arc<PortReport> {
        self.state().port
    }

    /// Why it is not usable, as of the last query.
    pub(crate) fn down(&self) -> Option<String> {
        self.state().down
    }
}

/// The port to be used for a connection.
///
/// # Errors
/// The reason why there is none now.
pub(crate) fn usable(core: &Core) -> Result<Arc<PortReport>, VerbsError> {
    if core.link.down().is_some() {
        look_again(core);
    }
    let State { port, down } = core.link.state();
    match down {
        None => Ok(port),
        Some(why) => Err(invalid("port", why)),
    }
}

/// Queries the port again, and logs what has changed.
pub(crate) fn look_again(core: &Core) {
    let before = core.link.state();
    let (api, nic, config) = (&core.api, core.nic.as_str(), &core.config);
    let number = before.port.number;
    let after = match examine(api, core.context.0, nic, number, config, Some(&before.port)) {
        Ok(port) => State {
            port: Arc::new(port),
            down: None,
        },
        Err(error) => State {
            port: Arc::clone(&before.port),
            down: Some(match error {
                VerbsError::Invalid { why, .. } => why,
                other => other.to_string(),
            }),
        },
    };
    match (&before.down, &after.down) {
        (None, Some(why)) => tracing::warn!(device = %nic, "new connections are refused: {why}"),
        (Some(_), None) => {
            tracing::info!(device = %nic, gid = %after.port.gid, "port {number} is usable again")
        }
        _ if before.port != after.port => {
            tracing::info!(device = %nic, gid = %after.port.gid, "port {number} has changed");
        }
        _ => {}
    }
    *core
        .link
        .state
        .write()
        .unwrap_or_else(PoisonError::into_inner) = after;
}
