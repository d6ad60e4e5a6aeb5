//! The caller's own memory, which one-sided operations read and fill in place, as a lane refers to it.

use std::ops::Range;
use std::sync::Arc;

use dunlin_verbs::AnyRegion;

use crate::channel::one_sided::{Direction, OwnPart, Registration};
use crate::channel::ChannelError;

/// Maximum number of regions that a lane keeps registered: those of a transfer in each direction, and of the two
/// before.
const REGISTERED_MAX: usize = 4;

/// A part of such memory that an operation reads or fills.
pub(crate) struct Own<'a> {
    pub(crate) memory: &'a Arc<dyn AnyRegion>,
    pub(crate) range: Range<usize>,
    pub(crate) direction: Direction,
    /// Held until the operation has completed.
    pub(crate) use_of: Arc<()>,
}

/// The memory that a lane has registered. It also keeps the memory alive, until the lane ends or other memory has
/// replaced it.
#[derive(Debug, Default)]
pub(crate) struct Registered(Vec<(Arc<dyn AnyRegion>, Registration)>);

impl Registered {
    /// The part as operations of the lane refer to it; `None` if they cannot use it.
    pub(crate) fn part(
        &mut self,
        own: &Own<'_>,
        register: impl FnOnce(&Arc<dyn AnyRegion>) -> Result<Registration, ChannelError>,
    ) -> Result<Option<OwnPart>, ChannelError> {
        let known = self
            .0
            .iter()
            .find(|(known, _)| Arc::ptr_eq(known, own.memory));
        let registration = match known {
            Some((_, registration)) => registration.clone(),
            None => {
                let registration = register(own.memory)?;
                if self.0.len() == REGISTERED_MAX {
                    self.0.remove(0);
                }
                let memory = Arc::clone(own.memory);
                self.0.push((memory, registration.clone()));
                registration
            }
        };
        Ok(registration.map(|region| OwnPart {
            region,
            offset: own.range.start,
            length: own.range.len(),
            use_of: Arc::clone(&own.use_of),
        }))
    }

    /// Forgets all registrations, because the lane was replaced.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
