//! Traces and metrics with OpenTelemetry: a span for each call at its client and one at its server, and histograms of
//! the duration of calls. Programs choose where they go (exporters, samplers) with `opentelemetry_sdk`.
//!
//! ```no_run
//! use dunlin_service::telemetry::Telemetry;
//! use dunlin_service::{Channel, Server};
//! # async fn example(greeter: impl dunlin_service::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let telemetry = Telemetry::global();
//! let server = Server::builder().telemetry(&telemetry).add_service(greeter).start("dunlin://0.0.0.0:7400")?;
//! let channel = Channel::connect("dunlin://db1:7400").await?.telemetry(&telemetry);
//! # Ok(())
//! # }
//! ```
//!
//! The trace is propagated by the W3C headers `traceparent` and `tracestate`. At the client a span's parent is the
//! current [`opentelemetry::Context`], or else the one in the request's metadata, or the one inherited from the handler
//! that makes the call. While a handler runs, the span of its call is the current one. A span lasts until the answer,
//! or the last message of a stream, has arrived; a call that is cancelled ends as `CANCELLED`.
//!
//! Names follow the semantic conventions 1.42: spans and both histograms have `rpc.system.name` (`dunlin`),
//! `rpc.method`, `rpc.response.status_code`, and `error.type` where the call failed. Clients count all codes but `OK`
//! as failures, servers only those for which the server itself is responsible: `UNKNOWN`, `DEADLINE_EXCEEDED`,
//! `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`. The histograms `rpc.client.call.duration` and
//! `rpc.server.call.duration` are in seconds.
//!
//! [`crate::Pipeline`] reports nothing: its calls take less time than making a span. Calls that never reach a handler
//! (unknown methods, malformed requests) have a span only at the client.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use dunlin::thread;
use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::metrics::{Histogram, Meter, MeterProvider};
use opentelemetry::trace::{
    Span, SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, ContextGuard, InstrumentationScope, KeyValue};

use crate::context::Inherited;
use crate::{Code, MetadataMap, Request, Status, TraceContext};

const SCOPE: &str = "dunlin-service";
/// The schema of the conventions.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.42.0";

const SYSTEM: &str = "rpc.system.name";
const METHOD: &str = "rpc.method";
const STATUS_CODE: &str = "rpc.response.status_code";
const ERROR_TYPE: &str = "error.type";

/// The header in addition to [`crate::TRACEPARENT`].
const TRACESTATE: &str = "tracestate";

/// Codes of failures for which the server is responsible, not its caller.
const SERVER_ERRORS: [Code; 6] = [
    Code::Unknown,
    Code::DeadlineExceeded,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
];

/// Bucket boundaries of the histograms, in seconds. Those of the conventions begin at 5 ms; nearly all calls here are
/// shorter.
const BOUNDARIES: [f64; 22] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1,
    0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// The destination of reports about calls. Cheap to clone; may be used for any number of servers and channels.
#[derive(Clone)]
pub struct Telemetry(Arc<Instruments>);

struct Instruments {
    tracer: BoxedTracer,
    /// `rpc.client.call.duration`.
    client: Histogram<f64>,
    /// `rpc.server.call.duration`.
    server: Histogram<f64>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Uses the providers that are now set in [`opentelemetry::global`]: set them before.
    pub fn global() -> Self {
        Self::new(&global::tracer_provider(), &*global::meter_provider())
    }

    /// Uses these providers.
    pub fn new<P>(tracers: &P, meters: &dyn MeterProvider) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Span + Send + Sync + 'static,
    {
        let scope = InstrumentationScope::builder(SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(SCHEMA)
            .build();
        let meter = meters.meter_with_scope(scope.clone());
        let tracer = tracers.tracer_with_scope(scope);
        Self(Arc::new(Instruments {
            tracer: BoxedTracer::new(Box::new(tracer)),
            client: duration(
                &meter,
                "rpc.client.call.duration",
                "Duration of calls as seen by clients",
            ),
            server: duration(
                &meter,
                "rpc.server.call.duration",
                "Duration of calls as seen by servers",
            ),
        }))
    }

    /// Begins a span, which lasts until the returned call is ended.
    fn begin(&self, side: Side, path: &str, parent: &Context) -> Call {
        let method: Arc<str> = path.trim_start_matches('/').into();
        let kind = match side {
            Side::Client => SpanKind::Client,
            Side::Server => SpanKind::Server,
        };
        let tracer = &self.0.tracer;
        let span = tracer
            .span_builder(method.to_string())
            .with_kind(kind)
            .with_attributes([
                KeyValue::new(SYSTEM, "dunlin"),
                KeyValue::new(METHOD, Arc::clone(&method)),
            ])
            .start_with_context(tracer, parent);
        Call {
            telemetry: self.clone(),
            side,
            method,
            context: parent.with_span(span),
            begun: thread::now(),
        }
    }
}

fn duration(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(BOUNDARIES.to_vec())
        .build()
}

/// The side on which a call is observed.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

/// The telemetry of a channel or a server, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer(Option<Telemetry>);

impl From<&Telemetry> for Observer {
    fn from(telemetry: &Telemetry) -> Self {
        Self(Some(telemetry.clone()))
    }
}

impl Observer {
    /// A call begins at its client; its trace is added to the metadata.
    #[inline]
    pub(crate) fn client<T>(&self, path: &str, request: &mut Request<T>) -> Observed {
        let call = self.0.as_ref();
        Observed(call.map(|telemetry| client(telemetry, path, request.metadata_mut())))
    }

    /// A call has arrived at its server; calls made by its handler belong to its trace.
    #[inline]
    pub(crate) fn server(
        &self,
        path: &str,
        metadata: &MetadataMap,
        inherited: &mut Option<Inherited>,
    ) -> Observed {
        let call = self.0.as_ref();
        Observed(call.map(|telemetry| server(telemetry, path, metadata, inherited)))
    }
}

// Out of line, as is everything that only observed calls need: the path of others stays short.
#[cold]
fn client(telemetry: &Telemetry, path: &str, metadata: &mut MetadataMap) -> Box<Call> {
    let mut parent = Context::current();
    if !parent.span().span_context().is_valid() {
        let named = metadata
            .trace_context()
            .map(|trace| remote(&trace, metadata));
        let inherited = || Inherited::current().and_then(|inherited| inherited.trace);
        let inherited = || inherited().map(|trace| remote(&trace, &MetadataMap::new()));
        if let Some(trace) = named.or_else(inherited) {
            parent = parent.with_remote_span_context(trace);
        }
    }
    let call = telemetry.begin(Side::Client, path, &parent);
    if let Some(trace) = call.trace() {
        metadata.set_trace_context(&trace);
        metadata.remove(TRACESTATE);
        let state = call.context.span().span_context().trace_state().header();
        if !state.is_empty() {
            // A state with other characters would be invalid.
            let _ = metadata.insert(TRACESTATE, state);
        }
    }
    Box::new(call)
}

#[cold]
fn server(
    telemetry: &Telemetry,
    path: &str,
    metadata: &MetadataMap,
    inherited: &mut Option<Inherited>,
) -> Box<Call> {
    let mut parent = Context::new();
    if let Some(trace) = metadata.trace_context() {
        parent = parent.with_remote_span_context(remote(&trace, metadata));
    }
    let call = telemetry.begin(Side::Server, path, &parent);
    if let Some(trace) = call.trace() {
        inherited.get_or_insert_default().trace = Some(trace);
    }
    Box::new(call)
}

/// The span of the other side.
fn remote(trace: &TraceContext, metadata: &MetadataMap) -> SpanContext {
    let state = metadata.get(TRACESTATE);
    let state: Option<TraceState> = state.and_then(|state| state.parse().ok());
    SpanContext::new(
        TraceId::from(trace.trace_id),
        SpanId::from(trace.parent_id),
        TraceFlags::default().with_sampled(trace.sampled),
        true,
        state.unwrap_or_default(),
    )
}

/// An outstanding call, or one whose handler is running.
struct Call {
    telemetry: Telemetry,
    side: Side,
    method: Arc<str>,
    /// The context whose current span is the call's.
    context: Context,
    begun: Instant,
}

impl Call {
    /// The trace context to send; `None` if no spans are made.
    fn trace(&self) -> Option<TraceContext> {
        let span = self.context.span();
        let context = span.span_context();
        context.is_valid().then(|| TraceContext {
            trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
            parent_id: u64::from_be_bytes(context.span_id().to_bytes()),
            sampled: context.is_sampled(),
        })
    }

    #[cold]
    fn end_with(self, status: Option<&Status>) {
        match status {
            None => self.end(Code::Ok, ""),
            Some(status) => self.end(status.code(), status.message()),
        }
    }

    #[cold]
    fn give_up(self) {
        match std::thread::panicking() {
            true => self.end(Code::Internal, "the handler panicked"),
            false => self.end(Code::Cancelled, "the call was cancelled"),
        }
    }

    fn end(self, code: Code, words: &str) {
        let is_error = match self.side {
            Side::Client => code != Code::Ok,
            Side::Server => SERVER_ERRORS.contains(&code),
        };
        let mut attributes = vec![
            KeyValue::new(SYSTEM, "dunlin"),
            KeyValue::new(METHOD, self.method),
            KeyValue::new(STATUS_CODE, code.name()),
        ];
        let span = self.context.span();
        if is_error {
            attributes.push(KeyValue::new(ERROR_TYPE, code.name()));
            span.set_status(SpanStatus::error(words.to_owned()));
        }
        // The span has had the first two since it began.
        span.set_attributes(attributes[2..].iter().cloned());
        span.end();
        let seconds = thread::now()
            .saturating_duration_since(self.begun)
            .as_secs_f64();
        let histogram = match self.side {
            Side::Client => &self.telemetry.0.client,
            Side::Server => &self.telemetry.0.server,
        };
        histogram.record(seconds, &attributes);
    }
}

/// A call that may be observed.
#[derive(Default)]
pub(crate) struct Observed(Option<Box<Call>>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.0.as_ref().map(|call| &call.method);
        f.debug_tuple("Observed").field(&method).finish()
    }
}

impl Observed {
    /// Attributes what is done on this thread to the call, until the returned value is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Option<ContextGuard> {
        let call = self.0.as_ref()?;
        Some(call.context.clone().attach())
    }

    /// The call has ended; `None` means success.
    #[inline]
    pub(crate) fn end(&mut self, status: Option<&Status>) {
        if let Some(call) = self.0.take() {
            call.end_with(status);
        }
    }
}

impl Drop for Observed {
    #[inline]
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.give_up();
        }
    }
}
