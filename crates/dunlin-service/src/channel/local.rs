//! Typed calls of tasks that stay on one thread.

use std::fmt;

use dunlin::{LocalClient, LocalDriver};

use super::callee::ByType;
use super::{Channel, Routes};
use crate::method::Method;
use crate::{Request, Response, Status};

/// A [`Channel`] for tasks that stay on one thread: a runtime of one thread for each core, tokio's `LocalSet` or
/// `current_thread`, or any executor of futures that are not [`Send`]. A call costs a fraction of what it costs by the
/// channel ([`LocalClient`]). Unary methods only: streams go by the channel. Cheap to clone, for each task. Made by
/// [`Channel::local`].
#[derive(Clone)]
pub struct LocalChannel {
    channel: Channel,
    client: LocalClient,
}

impl fmt::Debug for LocalChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalChannel")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// A connection of this thread's own, and what drives its calls: to be spawned where the tasks are, or to be given
    /// what calls ([`LocalDriver::run_until`]).
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn local(&self) -> Result<(LocalChannel, LocalDriver), Status> {
        let (client, driver) = self.client().local()?;
        let channel = self.clone();
        Ok((LocalChannel { channel, client }, driver))
    }
}

impl LocalChannel {
    /// The channel that it was made of.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The client below.
    pub fn client(&self) -> &LocalClient {
        &self.client
    }

    /// A unary call. Dropping the future gives it up, and stops its handler. More calls than places wait for one.
    ///
    /// # Errors
    /// The status with which it ended.
    pub async fn unary<M: Method>(
        &self,
        routes: &Routes,
        request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let callee = ByType::<M>::new(routes);
        self.channel
            .call_by::<_, _, _, M::Codec>(&self.client, callee, request)
            .await
    }
}
