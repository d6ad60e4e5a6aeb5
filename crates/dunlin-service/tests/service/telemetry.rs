//! What OpenTelemetry is told: one trace through client, server and the calls of its handler; how calls end; metrics.

use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use opentelemetry::trace::{
    SpanId, SpanKind, Status as SpanStatus, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

use crate::common::flow_client::FlowClient;
use crate::common::flow_server::{Flow, FlowServer};
use crate::common::probe_client::{ProbeBlockingClient, ProbeClient};
use crate::common::probe_server::{Probe, ProbeServer, SyncProbe, SyncProbeServer};
use crate::common::{until_async, Note};
use dunlin::RunningServer;
use dunlin_service::server::Service;
use dunlin_service::telemetry::Telemetry;
use dunlin_service::{Channel, Code, Request, Response, Server, Status, Streaming};

/// What has been told, of the clients and servers of one test.
struct Told {
    spans: InMemorySpanExporter,
    metrics: InMemoryMetricExporter,
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
    telemetry: Telemetry,
}

impl Told {
    fn new() -> Self {
        let spans = InMemorySpanExporter::default();
        let tracers = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let metrics = InMemoryMetricExporter::default();
        let meters = SdkMeterProvider::builder()
            .with_periodic_exporter(metrics.clone())
            .build();
        let telemetry = Telemetry::new(&tracers, &meters);
        Self {
            spans,
            metrics,
            tracers,
            meters,
            telemetry,
        }
    }

    fn serve(&self, service: impl Service) -> RunningServer {
        let server = Server::builder()
            .telemetry(&self.telemetry)
            .add_service(service);
        server.start("dunlin://127.0.0.1:0").unwrap()
    }

    async fn channel(&self, server: &RunningServer) -> Channel {
        let channel = Channel::connect(&server.address().to_string())
            .await
            .unwrap();
        channel.telemetry(&self.telemetry)
    }

    fn spans(&self) -> Vec<SpanData> {
        self.spans.get_finished_spans().unwrap()
    }

    /// The only span of this kind and method.
    fn span(&self, kind: SpanKind, method: &str) -> SpanData {
        let mut spans = self.spans();
        spans.retain(|span| span.span_kind == kind && span.name == method);
        assert_eq!(spans.len(), 1, "{kind:?} {method}");
        spans.remove(0)
    }

    /// Calls that a histogram has counted with these attributes.
    fn counted(&self, histogram: &str, wanted: &[KeyValue]) -> u64 {
        self.meters.force_flush().unwrap();
        let exported = self.metrics.get_finished_metrics().unwrap();
        let last = exported.last().expect("metrics");
        let metrics = last.scope_metrics().flat_map(|scope| scope.metrics());
        let mut count = 0;
        for metric in metrics.filter(|metric| metric.name() == histogram) {
            assert_eq!(metric.unit(), "s");
            let AggregatedMetrics::F64(MetricData::Histogram(histogram)) = metric.data() else {
                panic!("{histogram} is no histogram");
            };
            for point in histogram.data_points() {
                let has = |wanted: &KeyValue| point.attributes().any(|other| other == wanted);
                if wanted.iter().all(has) {
                    count += point.count();
                }
            }
        }
        count
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let mut all = span.attributes.iter();
    let found = all.find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string())
}

/// Calls the next server, if there is one; its first byte says how.
#[derive(Default)]
struct Link(Option<ProbeClient>);

#[dunlin_service::async_trait]
impl Probe for Link {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let note = request.into_inner();
        match &self.0 {
            Some(next) => {
                // Not at the first poll.
                tokio::task::yield_now().await;
                next.echo(note).await
            }
            None => Ok(Response::new(note)),
        }
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let note = request.into_inner();
        Err(Status::new(
            Code::from_number(note.number as u32),
            note.words,
        ))
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        std::future::pending().await
    }

    async fn look(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        panic!("as it is to");
    }
}

#[tokio::test]
async fn a_trace_goes_through_client_server_and_the_calls_of_its_handler() {
    let told = Told::new();
    let last = told.serve(ProbeServer::new(Link::default()));
    let next = ProbeClient::new(told.channel(&last).await);
    let first = told.serve(ProbeServer::new(Link(Some(next))));
    let client = ProbeClient::new(told.channel(&first).await);

    let tracer = told.tracers.tracer("test");
    let root = Context::new().with_span(tracer.start("root"));
    let (trace, root_span) = {
        let span = root.span();
        (
            span.span_context().trace_id(),
            span.span_context().span_id(),
        )
    };
    let call = client.echo(Note::new("hello"));
    let answer = opentelemetry::trace::FutureExt::with_context(call, root.clone()).await;
    assert_eq!(answer.unwrap().into_inner(), Note::new("hello"));

    let spans = told.spans();
    assert_eq!(spans.len(), 4, "two clients, two servers");
    let mut parent: SpanId = root_span;
    for kind in [
        SpanKind::Client,
        SpanKind::Server,
        SpanKind::Client,
        SpanKind::Server,
    ] {
        let span = spans
            .iter()
            .find(|span| span.parent_span_id == parent)
            .expect("a child");
        assert_eq!(span.span_kind, kind);
        assert_eq!(span.name, "test.Probe/Echo");
        assert_eq!(span.span_context.trace_id(), trace);
        assert_eq!(span.parent_span_is_remote, kind == SpanKind::Server);
        assert_eq!(span.status, SpanStatus::Unset);
        assert_eq!(
            attribute(span, "rpc.system.name").as_deref(),
            Some("dunlin")
        );
        assert_eq!(
            attribute(span, "rpc.method").as_deref(),
            Some("test.Probe/Echo")
        );
        assert_eq!(
            attribute(span, "rpc.response.status_code").as_deref(),
            Some("OK")
        );
        assert_eq!(attribute(span, "error.type"), None);
        parent = span.span_context.span_id();
    }
}

/// A server that tells nothing stands between two that do: the trace is inherited, as without the feature.
#[tokio::test]
async fn the_trace_goes_through_who_makes_no_spans() {
    let told = Told::new();
    let last = told.serve(ProbeServer::new(Link::default()));
    let next = ProbeClient::connect(last.address().to_string())
        .await
        .unwrap();
    let silent = Server::builder().add_service(ProbeServer::new(Link(Some(next))));
    let silent = silent.start("dunlin://127.0.0.1:0").unwrap();
    let client = ProbeClient::new(told.channel(&silent).await);
    client.echo(Note::new("hello")).await.unwrap();
    let client = told.span(SpanKind::Client, "test.Probe/Echo");
    let server = told.span(SpanKind::Server, "test.Probe/Echo");
    assert_eq!(server.parent_span_id, client.span_context.span_id());
    assert_eq!(
        server.span_context.trace_id(),
        client.span_context.trace_id()
    );
}

#[tokio::test]
async fn how_calls_end_is_told() {
    let told = Told::new();
    let server = told.serve(ProbeServer::new(Link::default()));
    let client = ProbeClient::new(told.channel(&server).await);
    let fail = |code: Code| {
        let mut note = Note::new("why");
        note.number = code as u64;
        client.fail(note)
    };
    let error = |words: &'static str| SpanStatus::error(words);
    // A failure of both, and one that is the client's alone.
    for (code, at_server) in [
        (Code::DataLoss, error("why")),
        (Code::NotFound, SpanStatus::Unset),
    ] {
        told.spans.reset();
        assert_eq!(fail(code).await.unwrap_err().code(), code);
        let (client, server) = (
            told.span(SpanKind::Client, "test.Probe/Fail"),
            told.span(SpanKind::Server, "test.Probe/Fail"),
        );
        assert_eq!(client.status, error("why"));
        assert_eq!(server.status, at_server);
        for span in [&client, &server] {
            let said = attribute(span, "rpc.response.status_code");
            assert_eq!(said.as_deref(), Some(code.name()));
        }
        assert_eq!(
            attribute(&client, "error.type").as_deref(),
            Some(code.name())
        );
    }
    // One that panics.
    assert_eq!(
        client.look(Note::default()).await.unwrap_err().code(),
        Code::Internal
    );
    let panicked = told.span(SpanKind::Server, "test.Probe/Look");
    assert_eq!(panicked.status, error("the handler panicked"));
    // One that is given up.
    let given_up = tokio::time::timeout(Duration::from_millis(20), client.sleep(Note::default()));
    assert!(given_up.await.is_err());
    let client = told.span(SpanKind::Client, "test.Probe/Sleep");
    assert_eq!(
        attribute(&client, "error.type").as_deref(),
        Some("CANCELLED")
    );
    let is_server =
        |span: &SpanData| span.span_kind == SpanKind::Server && span.name == "test.Probe/Sleep";
    until_async("the server's span ends", || {
        told.spans().iter().any(is_server)
    })
    .await;
    let server = told.span(SpanKind::Server, "test.Probe/Sleep");
    let said = attribute(&server, "rpc.response.status_code");
    assert_eq!(said.as_deref(), Some("CANCELLED"));

    for (code, count) in [("DATA_LOSS", 1), ("NOT_FOUND", 1), ("OK", 0)] {
        let wanted = [
            KeyValue::new("rpc.system.name", "dunlin"),
            KeyValue::new("rpc.method", "test.Probe/Fail"),
            KeyValue::new("rpc.response.status_code", code),
        ];
        assert_eq!(
            told.counted("rpc.client.call.duration", &wanted),
            count,
            "{code}"
        );
        assert_eq!(
            told.counted("rpc.server.call.duration", &wanted),
            count,
            "{code}"
        );
    }
    let errors = [KeyValue::new("error.type", "NOT_FOUND")];
    assert_eq!(told.counted("rpc.client.call.duration", &errors), 1);
    assert_eq!(told.counted("rpc.server.call.duration", &errors), 0);
}

/// Handlers that are no futures, and clients that block.
struct Plain;

impl SyncProbe for Plain {
    fn echo(&self, request: &mut Request<Note>, reply: &mut Response<Note>) -> Result<(), Status> {
        // What the handler does belongs to its span.
        let context = Context::current();
        let span = context.span().span_context().clone();
        reply.get_mut().words = span.span_id().to_string();
        reply.get_mut().number = request.get_ref().number;
        Ok(())
    }

    fn fail(&self, _: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Err(Status::internal("broken"))
    }

    fn sleep(&self, _: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Ok(())
    }

    fn look(&self, _: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Ok(())
    }
}

#[test]
fn sync_handlers_and_blocking_clients_are_told_of() {
    let told = Told::new();
    let server = told.serve(SyncProbeServer::inline(Plain));
    let channel = Channel::connect_blocking(&server.address().to_string()).unwrap();
    let client = ProbeBlockingClient::new(channel.clone().telemetry(&told.telemetry));
    let answer = client.echo(Note::default()).unwrap().into_inner();
    let span = told.span(SpanKind::Server, "test.Probe/Echo");
    assert_eq!(answer.words, span.span_context.span_id().to_string());
    let of_client = told.span(SpanKind::Client, "test.Probe/Echo");
    assert_eq!(span.parent_span_id, of_client.span_context.span_id());
    assert_eq!(
        client.fail(Note::default()).unwrap_err().code(),
        Code::Internal
    );
    let failed = told.span(SpanKind::Server, "test.Probe/Fail");
    assert_eq!(failed.status, SpanStatus::error("broken"));
    // A channel that tells nothing.
    told.spans.reset();
    ProbeBlockingClient::new(channel)
        .sleep(Note::default())
        .unwrap();
    assert_eq!(told.spans().len(), 1, "the server's alone");
}

struct Streams;

#[dunlin_service::async_trait]
impl Flow for Streams {
    type CountStream = BoxStream<'static, Result<Note, Status>>;
    type ChatStream = BoxStream<'static, Result<Note, Status>>;
    type HangStream = BoxStream<'static, Result<Note, Status>>;

    /// Ends with an error behind the notes, where the words ask for one.
    async fn count(&self, request: Request<Note>) -> Result<Response<Self::CountStream>, Status> {
        let note = request.into_inner();
        let end = (!note.words.is_empty()).then(|| Err(Status::aborted(note.words)));
        let notes = stream::iter((0..note.number).map(|_| Ok(Note::default())));
        Ok(Response::new(notes.chain(stream::iter(end)).boxed()))
    }

    async fn sum(&self, request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        let count = request.into_inner().count().await;
        let number = count as u64;
        Ok(Response::new(Note {
            number,
            ..Note::default()
        }))
    }

    async fn chat(
        &self,
        request: Request<Streaming<Note>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Ok(Response::new(request.into_inner().boxed()))
    }

    async fn hang(
        &self,
        _: Request<Streaming<Note>>,
    ) -> Result<Response<Self::HangStream>, Status> {
        Ok(Response::new(
            stream::iter([Ok(Note::default())])
                .chain(stream::pending())
                .boxed(),
        ))
    }
}

#[tokio::test]
async fn the_span_of_a_stream_ends_with_the_stream() {
    let told = Told::new();
    let server = told.serve(FlowServer::new(Streams));
    let client = FlowClient::new(told.channel(&server).await);
    let both = |method: &str| {
        let (client, server) = (
            told.span(SpanKind::Client, method),
            told.span(SpanKind::Server, method),
        );
        assert_eq!(server.parent_span_id, client.span_context.span_id());
        (client, server)
    };
    let mut three = Note {
        number: 3,
        ..Note::default()
    };

    let mut count = client.count(three.clone()).await.unwrap().into_inner();
    assert!(count.message().await.unwrap().is_some());
    let of_client = |span: &SpanData| span.span_kind == SpanKind::Client;
    assert!(
        !told.spans().iter().any(of_client),
        "there are more messages"
    );
    assert!(count.message().await.unwrap().is_some());
    assert!(count.message().await.unwrap().is_some());
    assert!(count.message().await.unwrap().is_none());
    let (of_client, of_server) = both("test.Flow/Count");
    assert_eq!(of_client.status, SpanStatus::Unset);
    assert_eq!(of_server.status, SpanStatus::Unset);
    assert!(of_client.end_time >= of_server.end_time);

    let sum = client
        .sum(stream::iter([Note::default(), Note::default()]))
        .await
        .unwrap();
    assert_eq!(sum.into_inner().number, 2);
    both("test.Flow/Sum");

    let chat = client.chat(stream::iter([Note::default()])).await.unwrap();
    assert_eq!(chat.into_inner().count().await, 1);
    both("test.Flow/Chat");

    // One that fails behind its messages.
    told.spans.reset();
    three.words = "in the middle".into();
    let mut count = client.count(three).await.unwrap().into_inner();
    let failed = loop {
        match count.message().await {
            Ok(Some(_)) => {}
            ended => break ended.unwrap_err(),
        }
    };
    assert_eq!(failed.code(), Code::Aborted);
    let (of_client, of_server) = both("test.Flow/Count");
    assert_eq!(of_client.status, SpanStatus::error("in the middle"));
    assert_eq!(
        of_server.status,
        SpanStatus::Unset,
        "ABORTED is no failure of the server"
    );
    let said = attribute(&of_server, "rpc.response.status_code");
    assert_eq!(said.as_deref(), Some("ABORTED"));

    // One that is given up.
    let hang = client
        .hang(stream::pending::<Note>())
        .await
        .unwrap()
        .into_inner();
    drop(hang);
    let of_hang = |span: &SpanData| span.name == "test.Flow/Hang";
    until_async("both spans end", || {
        told.spans().iter().filter(|span| of_hang(span)).count() == 2
    })
    .await;
    let (of_client, of_server) = both("test.Flow/Hang");
    for span in [of_client, of_server] {
        let said = attribute(&span, "rpc.response.status_code");
        assert_eq!(said.as_deref(), Some("CANCELLED"));
    }
    let wanted = [KeyValue::new("rpc.method", "test.Flow/Count")];
    assert_eq!(told.counted("rpc.client.call.duration", &wanted), 2);
    assert_eq!(told.counted("rpc.server.call.duration", &wanted), 2);
}

#[tokio::test]
async fn state_of_other_systems_travels_and_a_trace_of_the_metadata_is_gone_on_with() {
    let told = Told::new();
    let server = told.serve(ProbeServer::new(Link::default()));
    let client = ProbeClient::new(told.channel(&server).await);
    let mut request = Request::new(Note::default());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request
        .metadata_mut()
        .insert("traceparent", parent)
        .unwrap();
    request
        .metadata_mut()
        .insert("tracestate", "vendor=value")
        .unwrap();
    client.echo(request).await.unwrap();
    let (of_client, of_server) = (
        told.span(SpanKind::Client, "test.Probe/Echo"),
        told.span(SpanKind::Server, "test.Probe/Echo"),
    );
    assert_eq!(of_client.parent_span_id.to_string(), "00f067aa0ba902b7");
    for span in [&of_client, &of_server] {
        assert_eq!(
            span.span_context.trace_id().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(span.span_context.trace_state().header(), "vendor=value");
    }
    assert_eq!(of_server.parent_span_id, of_client.span_context.span_id());
}
