//! Tokio's traits.

use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use dunlin_verbs::Device;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

impl<D: Device> AsyncRead for Stream<D> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let count = ready!(Stream::poll_read(
            stream,
            context,
            target.initialize_unfilled()
        ))?;
        target.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<D: Device> AsyncWrite for Stream<D> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        Stream::poll_write(self.get_mut(), context, source)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_flush(self.get_mut(), context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_shutdown(self.get_mut(), context)
    }
}
