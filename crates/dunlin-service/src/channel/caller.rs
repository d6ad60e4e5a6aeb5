//! The client that makes a unary call as a future: one whose futures any thread may poll, or one that belongs to a
//! single thread.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use dunlin::{
    CallError, CallFuture, Client, HandlerId, LocalCall, LocalClient, LocalPermit, LocalReply,
    Permit, Reply,
};

/// A client for unary calls. Timeouts apply to the one call; without one it has the client's deadline.
pub(super) trait Caller {
    type Reply: Deref<Target = [u8]>;
    type Call: Future<Output = Result<Self::Reply, CallError>>;
    type Permit;

    /// Sends at once; fails if no slot is free.
    fn send(&self, timeout: Option<Duration>, number: HandlerId, request: &[u8]) -> Self::Call;

    /// Waits for a free slot; the wait counts towards the call's time.
    fn ready(
        &self,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Self::Permit, CallError>>;

    /// Sends in the slot that `ready` has waited for.
    fn send_in(permit: Self::Permit, number: HandlerId, request: &[u8]) -> Self::Call;
}

impl Caller for Client {
    type Reply = Reply;
    type Call = CallFuture;
    type Permit = Permit;

    #[inline]
    fn send(&self, timeout: Option<Duration>, number: HandlerId, request: &[u8]) -> CallFuture {
        match timeout {
            Some(timeout) => self.within(timeout).call_async(number, request),
            None => self.call_async(number, request),
        }
    }

    async fn ready(&self, timeout: Option<Duration>) -> Result<Permit, CallError> {
        match timeout {
            Some(timeout) => self.within(timeout).ready().await,
            None => Client::ready(self).await,
        }
    }

    fn send_in(permit: Permit, number: HandlerId, request: &[u8]) -> CallFuture {
        permit.call(number, request)
    }
}

impl Caller for LocalClient {
    type Reply = LocalReply;
    type Call = LocalCall;
    type Permit = LocalPermit;

    #[inline]
    fn send(&self, timeout: Option<Duration>, number: HandlerId, request: &[u8]) -> LocalCall {
        match timeout {
            Some(timeout) => self.within(timeout).call_async(number, request),
            None => self.call_async(number, request),
        }
    }

    async fn ready(&self, timeout: Option<Duration>) -> Result<LocalPermit, CallError> {
        match timeout {
            Some(timeout) => self.within(timeout).ready().await,
            None => LocalClient::ready(self).await,
        }
    }

    fn send_in(permit: LocalPermit, number: HandlerId, request: &[u8]) -> LocalCall {
        permit.call(number, request)
    }
}
