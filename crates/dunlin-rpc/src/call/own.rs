//! Memory of a caller's own, which one-sided operations read and fill where it stands: how a lane names it.

use std::ops::Range;
use std::sync::Arc;

use dunlin_verbs::AnyRegion;

use crate::channel::one_sided::{Direction, OwnPart, Registration};
use crate::channel::ChannelError;

/// Memory that a lane keeps registered: that of a transfer each way, and of the two before.
const REGISTERED_MAX: usize = 4;

/// A part of such memory that an operation is to read or to fill.
pub(crate) struct Own<'a> {
    pub(crate) memory: &'a Arc<dyn AnyRegion>,
    pub(crate) range: Range<usize>,
    pub(crate) direction: Direction,
    /// Held until the operation has ended.
    pub(crate) use_of: Arc<()>,
}

/// What a lane has registered. It holds the memory, too: until the lane ends, or others have taken its place.
#[derive(Debug, Default)]
pub(crate) struct Registered(Vec<(Arc<dyn AnyRegion>, Registration)>);

impl Registered {
    /// The part as operations of the lane name it; `None`: they cannot.
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

    /// Nothing: the lane is another.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
