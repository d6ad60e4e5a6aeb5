//! Attaching of the server's regions by clients.

use std::sync::Arc;

use dunlin_verbs::{Access, Region};

use super::{Connection, Outcome};
use crate::channel::message::Header;
use crate::channel::one_sided::Attached;
use crate::channel::{Channel, ChannelError};
use crate::error::{FailureReason, WireFailure};

impl<C: Channel> Connection<C> {
    /// Grants a region to the client by a registration in this connection's protection domain, which ends with the
    /// connection.
    #[cold]
    pub(super) fn attach(&mut self, header: Header) -> Result<(), ChannelError> {
        if let Some(admitted) = &mut self.admitted {
            admitted.take()?;
        }
        let regions = Arc::clone(&self.regions);
        let name = self.channel.payload(header);
        let of_caller = self.caller.access(name);
        let Some((index, region)) = regions.find(name) else {
            let words = "it may exist on another device of the server, or not at all";
            return self.fail(
                header.call,
                WireFailure::new(FailureReason::UnknownRegion, 0, words),
            );
        };
        let access = region.access() & of_caller.unwrap_or(region.access());
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !access.intersects(remote) {
            let failure = self.caller.refuse_region(self.channel.payload(header));
            return self.fail(header.call, failure);
        }
        let known = self.attached.iter().find(|(known, _)| *known == index);
        let own = match known {
            Some((_, own)) => own.clone(),
            None => match self.channel.register_again(region, access) {
                Ok(own) => {
                    self.attached.push((index, own.clone()));
                    own
                }
                Err(error) => {
                    let words = error.to_string();
                    let failure = WireFailure::new(FailureReason::Overloaded, 0, words);
                    return self.fail(header.call, failure);
                }
            },
        };
        let grant = Attached {
            remote: own.remote(),
            length: own.memory().len() as u64,
            access: own.access(),
        };
        self.respond(header.call, Outcome::Short(grant.encode().to_vec()))
    }
}
