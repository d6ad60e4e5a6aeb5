//! Who is told of calls, at their clients and at their servers: OpenTelemetry; without that feature nobody, by types
//! without a size.

#[cfg(feature = "opentelemetry")]
pub(crate) use crate::telemetry::{Observed, Observer};

#[cfg(not(feature = "opentelemetry"))]
pub(crate) use nobody::{Observed, Observer};

#[cfg(not(feature = "opentelemetry"))]
mod nobody {
    use crate::context::Inherited;
    use crate::{MetadataMap, Request, Status};

    /// Of a channel or a server.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Observer(());

    impl Observer {
        /// A call begins at its client.
        #[inline]
        pub(crate) fn client<T>(&self, _: &str, _: &mut Request<T>) -> Observed {
            Observed(())
        }

        /// A call has come to its server.
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

    /// A call.
    #[derive(Debug, Default)]
    pub(crate) struct Observed(());

    /// As long as it is there, what the thread does belongs to the call.
    pub(crate) struct Current;

    impl Observed {
        /// What is done on this thread from now on belongs to the call, until what is returned is dropped.
        #[inline]
        pub(crate) fn enter(&self) -> Current {
            Current
        }

        /// It has ended; `None`: well.
        #[inline]
        pub(crate) fn end(&mut self, _: Option<&Status>) {}
    }
}
