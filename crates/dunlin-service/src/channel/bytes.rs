//! Calls of methods that are known by name alone, for tools and proxies that learn of them when they run. Messages are
//! bytes, as the method's codec makes them.

use futures_core::Stream;

use super::callee::ByName;
use super::Channel;
use crate::codec::Raw;
use crate::method::Kind;
use crate::{Request, Response, Status, Streaming};

impl Channel {
    /// Names and kinds of all methods that the server had when it was asked last, in their order.
    pub fn methods(&self) -> Vec<(String, Kind)> {
        let known = self.known();
        let methods = known.directory.methods.iter();
        let mut methods: Vec<_> = methods
            .map(|(path, entry)| (path.clone(), entry.kind))
            .collect();
        methods.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        methods
    }

    /// A unary call of a method by its name (`/helloworld.Greeter/SayHello`), whose messages are bytes as the method's
    /// codec makes them.
    ///
    /// # Errors
    /// The status with which it ended.
    pub async fn unary_bytes(
        &self,
        path: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, Status> {
        let kind = Kind::Unary;
        self.call::<_, _, Raw>(ByName { path, kind }, request).await
    }

    /// As [`Channel::unary_bytes`]; blocks.
    ///
    /// # Errors
    /// As for [`Channel::unary_bytes`].
    pub fn unary_bytes_blocking(
        &self,
        path: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, Status> {
        let kind = Kind::Unary;
        self.call_blocking::<_, _, Raw>(&ByName { path, kind }, request)
    }

    /// A call with streams of a method by its name; for one that takes or answers a single message the stream has one.
    /// `kind` is what the server has to have: [`Channel::methods`] says it.
    ///
    /// # Errors
    /// As for [`Channel::bidirectional`].
    pub async fn streaming_bytes<S>(
        &self,
        path: &str,
        kind: Kind,
        request: Request<S>,
    ) -> Result<Response<Streaming<Vec<u8>>>, Status>
    where
        S: Stream<Item = Vec<u8>> + Send + 'static,
    {
        let callee = ByName { path, kind };
        self.open_both::<_, _, Raw>(&callee, request).await
    }
}
