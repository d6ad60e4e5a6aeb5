//! Tokio's I/O traits, for any type with the `poll_` functions of a [`Stream`]: this crate's, and the one of the public
//! API, which hides the device.

use dunlin_verbs::Device;

use super::Stream;

/// Implements `tokio::io::AsyncRead` and `AsyncWrite` for a stream in terms of its own `poll_read`, `poll_write`,
/// `poll_flush` and `poll_shutdown`.
#[doc(hidden)]
#[macro_export]
macro_rules! implement_tokio {
    ([$($generics:tt)*] $stream:ty) => {
        impl $($generics)* ::tokio::io::AsyncRead for $stream {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                target: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                let place = target.initialize_unfilled();
                let count = ::std::task::ready!(<$stream>::poll_read(self.get_mut(), context, place))?;
                target.advance(count);
                ::std::task::Poll::Ready(Ok(()))
            }
        }

        impl $($generics)* ::tokio::io::AsyncWrite for $stream {
            fn poll_write(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                source: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                <$stream>::poll_write(self.get_mut(), context, source)
            }

            fn poll_flush(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                <$stream>::poll_flush(self.get_mut(), context)
            }

            fn poll_shutdown(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                <$stream>::poll_shutdown(self.get_mut(), context)
            }
        }
    };
}

implement_tokio!([<D: Device>] Stream<D>);
