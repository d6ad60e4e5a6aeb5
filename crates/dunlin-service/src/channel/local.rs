//! Typed calls by tasks that stay on one thread.

use std::fmt;

use dunlin::{LocalClient, LocalDriver};

use super::callee::ByType;
use super::{Channel, Routes};
use crate::method::Method;
use crate::{Request, Response, Status};

/// A [`Channel`] for tasks that stay on one thread: a runtime with one thread per core, tokio's `LocalSet` or
/// `current_thread`, or any executor of futures that are not [`Send`]. A call costs a fraction of one through the
/// channel ([`LocalClient`]). Unary methods only; streams use the channel. Cheap to clone, for each task. Created by
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
    /// Creates a connection for this thread alone, and the driver of its calls, which is to be spawned on the tasks'
    /// executor, or to run the future that makes the calls ([`LocalDriver::run_until`]).
    ///
    /// # Errors
    /// If no connection can be made.
    pub fn local(&self) -> Result<(LocalChannel, LocalDriver), Status> {
        let (client, driver) = self.client().local()?;
        let channel = self.clone();
        Ok((LocalChannel { channel, client }, driver))
    }
}

impl LocalChannel {
    /// The channel from which it was created.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The underlying client.
    pub fn client(&self) -> &LocalClient {
        &self.client
    }

    /// A unary call. Dropping the future cancels the call and stops its handler. When all slots are in use, the call
    /// waits for one.
    ///
    /// # Errors
    /// The status with which the call ended.
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
