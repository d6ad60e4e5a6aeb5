//! Calls of methods by name, for tools and proxies that do not know the methods when they are compiled. Messages are
//! bytes, encoded as the method's codec does.

use futures_core::Stream;

use super::callee::ByName;
use super::Channel;
use crate::codec::Raw;
use crate::method::Kind;
use crate::{Request, Response, Status, Streaming};

impl Channel {
    /// Names and kinds of all methods in the last directory received from the server, sorted by name.
    pub fn methods(&self) -> Vec<(String, Kind)> {
        let known = self.known();
        let methods = known.directory.methods.iter();
        let mut methods: Vec<_> = methods
            .map(|(path, entry)| (path.clone(), entry.kind))
            .collect();
        methods.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        methods
    }

    /// A unary call of a method by its name (`/helloworld.Greeter/SayHello`), with messages that are bytes in the
    /// encoding of the method's codec.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub async fn unary_bytes(
        &self,
        path: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, Status> {
        let kind = Kind::Unary;
        self.call::<_, _, Raw>(ByName { path, kind }, request).await
    }

    /// Like [`Channel::unary_bytes`], but blocks.
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

    /// A streaming call of a method by its name; where the method takes or returns a single message, the stream has one
    /// message. `kind` must be the server's, which [`Channel::methods`] returns.
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
