//! The `futures` I/O traits, for any type with the `poll_` functions of a [`Stream`]: this crate's, and the one of the
//! public API, which hides the device.

use dunlin_verbs::Device;

use super::Stream;

/// Implements `futures_io::AsyncRead` and `AsyncWrite` for a stream in terms of its own `poll_read`, `poll_write`,
/// `poll_flush` and `poll_shutdown`.
#[doc(hidden)]
#[macro_export]
macro_rules! implement_futures {
    ([$($generics:tt)*] $stream:ty) => {
        impl $($generics)* ::futures_io::AsyncRead for $stream {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                target: &mut [u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                <$stream>::poll_read(self.get_mut(), context, target)
            }
        }

        impl $($generics)* ::futures_io::AsyncWrite for $stream {
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

            fn poll_close(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                <$stream>::poll_shutdown(self.get_mut(), context)
            }
        }
    };
}

implement_futures!([<D: Device>] Stream<D>);
