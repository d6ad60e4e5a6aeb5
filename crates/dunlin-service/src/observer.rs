//! The observer of calls at clients and servers: OpenTelemetry. Without that feature there is none, and its types have
//! no size.

#[cfg(feature = "opentelemetry")]
pub(crate) use crate::telemetry::{Observed, Observer};

#[cfg(not(feature = "opentelemetry"))]
pub(crate) use nobody::{Observed, Observer};

#[cfg(not(feature = "opentelemetry"))]
mod nobody {
    use crate::context::Inherited;
    use crate::{MetadataMap, Request, Status};

    /// The observer of a channel or a server.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Observer(());

    impl Observer {
        /// A call begins at its client.
        #[inline]
        pub(crate) fn client<T>(&self, _: &str, _: &mut Request<T>) -> Observed {
            Observed(())
        }

        /// A call has arrived at its server.
        #[inline]
        pub(crate) fn server(
            &self,
            _: &str,
            _: &MetadataMap,
            _: &mut Option<Inherited>,
        ) -> Observed {
            Observed(())
        }
    }

    /// An observed call.
    #[derive(Debug, Default)]
    pub(crate) struct Observed(());

    /// While it exists, what the thread does is attributed to the call.
    pub(crate) struct Current;

    impl Observed {
        /// Attributes what is done on this thread to the call, until the returned value is dropped.
        #[inline]
        pub(crate) fn enter(&self) -> Current {
            Current
        }

        /// The call has ended; `None` means success.
        #[inline]
        pub(crate) fn end(&mut self, _: Option<&Status>) {}
    }
}
