//! The cases of gRPC's interoperability tests
//! (<https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md>) that say nothing of HTTP/2,
//! compression or credentials, over every preset.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{Client, Preset, RunningServer};
use dunlin_examples::interop::test_service_client::TestServiceClient;
use dunlin_examples::interop::test_service_server::{TestService, TestServiceServer};
use dunlin_examples::interop::unimplemented_service_client::UnimplementedServiceClient;
use dunlin_examples::interop::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputRequest, StreamingInputResponse, StreamingOutputRequest, StreamingOutputResponse,
};
use dunlin_service::{Channel, Code, MetadataMap, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

const PATIENCE: Duration = Duration::from_secs(60);
const INITIAL: &str = "x-grpc-test-echo-initial";
const BINARY: &str = "x-grpc-test-echo-trailing-bin";

#[derive(Clone, Default)]
struct Tested {
    running: Arc<AtomicUsize>,
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Tested {
    fn begin(&self) -> Guard {
        self.running.fetch_add(1, Ordering::SeqCst);
        Guard(Arc::clone(&self.running))
    }
}

fn payload(size: usize) -> Option<Payload> {
    Some(Payload {
        body: vec![0; size],
    })
}

fn size(payload: &Option<Payload>) -> usize {
    payload.as_ref().map_or(0, |payload| payload.body.len())
}

/// How the request wants the call to end.
fn wanted(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != 0 => Err(Status::new(status.code.into(), status.message)),
        _ => Ok(()),
    }
}

/// Metadata that is to come back.
fn echoed(from: &MetadataMap, to: &mut MetadataMap) {
    for name in [INITIAL, BINARY] {
        if let Some(value) = from.get_bytes(name) {
            to.insert(name, value).unwrap();
        }
    }
}

type Outputs = BoxStream<'static, Result<StreamingOutputResponse, Status>>;

fn outputs(parameters: Vec<ResponseParameters>) -> Outputs {
    stream::iter(parameters)
        .then(|one| async move {
            tokio::time::sleep(Duration::from_micros(one.interval_us as u64)).await;
            Ok(StreamingOutputResponse {
                payload: payload(one.size as usize),
            })
        })
        .boxed()
}

#[dunlin_service::async_trait]
impl TestService for Tested {
    type StreamingOutputCallStream = Outputs;
    type FullDuplexCallStream = Outputs;

    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let asked = request.get_ref();
        wanted(asked.response_status.clone())?;
        let payload = payload(asked.response_size as usize);
        let mut response = Response::new(SimpleResponse { payload });
        echoed(request.metadata(), response.metadata_mut());
        Ok(response)
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputRequest>,
    ) -> Result<Response<Outputs>, Status> {
        Ok(Response::new(outputs(
            request.into_inner().response_parameters,
        )))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputRequest>>,
    ) -> Result<Response<StreamingInputResponse>, Status> {
        let _running = self.begin();
        let mut inputs = request.into_inner();
        let mut sum = 0;
        while let Some(input) = inputs.message().await? {
            sum += size(&input.payload);
        }
        Ok(Response::new(StreamingInputResponse {
            aggregated_payload_size: sum as i32,
        }))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        let guard = self.begin();
        let mut metadata = MetadataMap::new();
        echoed(request.metadata(), &mut metadata);
        let answers = request.into_inner().flat_map(move |request| {
            let _running = &guard;
            let request = request.and_then(|one| {
                wanted(one.response_status)?;
                Ok(one.response_parameters)
            });
            match request {
                Ok(parameters) => outputs(parameters),
                Err(status) => stream::iter([Err(status)]).boxed(),
            }
        });
        let mut response = Response::new(answers.boxed());
        *response.metadata_mut() = metadata;
        Ok(response)
    }
}

struct Bench {
    server: RunningServer,
    preset: Preset,
    tested: Tested,
    channel: Channel,
    client: TestServiceClient,
}

async fn connect(preset: Preset, server: &RunningServer) -> Channel {
    let client = Client::builder().preset(preset).deadline(PATIENCE);
    let client = client
        .connect_async(&server.address().to_string())
        .await
        .unwrap();
    Channel::from_client(client).await.unwrap()
}

/// A server, and a client of a preset.
async fn bench(preset: Preset) -> Bench {
    let tested = Tested::default();
    let server = Server::builder().add_service(TestServiceServer::new(tested.clone()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let channel = connect(preset, &server).await;
    Bench {
        server,
        preset,
        tested,
        client: TestServiceClient::new(channel.clone()),
        channel,
    }
}

/// Each case is a test, over all presets.
macro_rules! cases {
    ($($case:ident;)*) => {
        mod cases {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    for &preset in Preset::ALL {
                        println!("{preset}");
                        super::$case(bench(preset).await).await;
                    }
                }
            )*
        }
    };
}

cases! {
    empty_unary;
    large_unary;
    client_streaming;
    server_streaming;
    ping_pong;
    empty_stream;
    custom_metadata;
    status_code_and_message;
    special_status_message;
    unimplemented_method;
    unimplemented_service;
    cancel_after_begin;
    cancel_after_first_response;
    timeout_on_sleeping_server;
    rpc_soak;
    channel_soak;
}

const REQUESTS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSES: [usize; 4] = [31_415, 9, 2_653, 58_979];

fn parameters(size: usize) -> ResponseParameters {
    ResponseParameters {
        size: size as i32,
        interval_us: 0,
    }
}

fn ping(request: usize, response: usize) -> StreamingOutputRequest {
    StreamingOutputRequest {
        response_parameters: vec![parameters(response)],
        payload: payload(request),
        response_status: None,
    }
}

async fn empty_unary(bench: Bench) {
    assert_eq!(
        bench
            .client
            .empty_call(Empty {})
            .await
            .unwrap()
            .into_inner(),
        Empty {}
    );
}

async fn large_unary(bench: Bench) {
    large_unary_once(&bench.client).await;
}

async fn large_unary_once(client: &TestServiceClient) {
    let request = SimpleRequest {
        response_size: 314_159,
        payload: payload(271_828),
        ..SimpleRequest::default()
    };
    let response = client.unary_call(request).await.unwrap().into_inner();
    assert_eq!(response.payload, payload(314_159));
}

/// Ten times as many as the test's own default.
async fn rpc_soak(bench: Bench) {
    for _ in 0..100 {
        large_unary_once(&bench.client).await;
    }
}

async fn channel_soak(bench: Bench) {
    for _ in 0..10 {
        let channel = connect(bench.preset, &bench.server).await;
        large_unary_once(&TestServiceClient::new(channel)).await;
    }
}

async fn client_streaming(bench: Bench) {
    let requests = REQUESTS.map(|size| StreamingInputRequest {
        payload: payload(size),
    });
    let response = bench
        .client
        .streaming_input_call(stream::iter(requests))
        .await
        .unwrap();
    assert_eq!(response.get_ref().aggregated_payload_size, 74_922);
}

async fn server_streaming(bench: Bench) {
    let request = StreamingOutputRequest {
        response_parameters: RESPONSES.map(parameters).to_vec(),
        ..StreamingOutputRequest::default()
    };
    let responses = bench
        .client
        .streaming_output_call(request)
        .await
        .unwrap()
        .into_inner();
    let sizes: Vec<usize> = responses
        .map(|one| size(&one.unwrap().payload))
        .collect()
        .await;
    assert_eq!(sizes, RESPONSES);
}

async fn ping_pong(bench: Bench) {
    let (say, said) = tokio::sync::mpsc::channel(1);
    let requests = stream::unfold(said, |mut said| async { Some((said.recv().await?, said)) });
    let mut responses = bench
        .client
        .full_duplex_call(requests)
        .await
        .unwrap()
        .into_inner();
    for (request, response) in REQUESTS.into_iter().zip(RESPONSES) {
        say.send(ping(request, response)).await.unwrap();
        let answer = responses.message().await.unwrap().unwrap();
        assert_eq!(answer.payload, payload(response));
    }
    drop(say);
    assert_eq!(responses.message().await.unwrap(), None);
}

async fn empty_stream(bench: Bench) {
    let mut responses = bench
        .client
        .full_duplex_call(stream::empty())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(responses.message().await.unwrap(), None);
}

async fn custom_metadata(bench: Bench) {
    let value = [0xab, 0xab, 0xab];
    let with = |mut metadata: MetadataMap| {
        metadata
            .insert(INITIAL, "test_initial_metadata_value")
            .unwrap();
        metadata.insert(BINARY, value).unwrap();
        metadata
    };
    let check = |metadata: &MetadataMap| {
        assert_eq!(metadata.get(INITIAL), Some("test_initial_metadata_value"));
        assert_eq!(metadata.get_bytes(BINARY), Some(&value[..]));
    };
    let mut request = Request::new(SimpleRequest {
        response_size: 314_159,
        payload: payload(271_828),
        ..SimpleRequest::default()
    });
    *request.metadata_mut() = with(MetadataMap::new());
    check(bench.client.unary_call(request).await.unwrap().metadata());
    let mut request = Request::new(stream::iter([ping(271_828, 314_159)]));
    *request.metadata_mut() = with(MetadataMap::new());
    let response = bench.client.full_duplex_call(request).await.unwrap();
    check(response.metadata());
    assert_eq!(response.into_inner().count().await, 1);
}

async fn ends_with(bench: Bench, code: Code, message: &str) {
    let status = Some(EchoStatus {
        code: code.into(),
        message: message.into(),
    });
    let request = SimpleRequest {
        response_status: status.clone(),
        ..SimpleRequest::default()
    };
    let ended = bench.client.unary_call(request).await.unwrap_err();
    assert_eq!((ended.code(), ended.message()), (code, message));
    let request = StreamingOutputRequest {
        response_status: status,
        ..StreamingOutputRequest::default()
    };
    let responses = bench
        .client
        .full_duplex_call(stream::iter([request]))
        .await
        .unwrap();
    let ended = responses.into_inner().message().await.unwrap_err();
    assert_eq!((ended.code(), ended.message()), (code, message));
}

async fn status_code_and_message(bench: Bench) {
    ends_with(bench, Code::Unknown, "test status message").await;
}

async fn special_status_message(bench: Bench) {
    let words = "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";
    ends_with(bench, Code::Unknown, words).await;
}

async fn unimplemented_method(bench: Bench) {
    let client = later::later_test_service_client::LaterTestServiceClient::new(bench.channel);
    let status = client.unimplemented_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(
        status
            .message()
            .contains("/interop.TestService/UnimplementedCall"),
        "{status}"
    );
}

/// The same service by a later definition.
#[allow(unreachable_pub)]
mod later {
    use super::Empty;

    dunlin_service::service! {
        /// It has a method that the server has not.
        pub service LaterTestService = "interop.TestService" with dunlin_service::codec::Prost {
            /// The method.
            rpc unimplemented_call as UnimplementedCall(Empty) -> Empty;
        }
    }
}

async fn unimplemented_service(bench: Bench) {
    let client = UnimplementedServiceClient::new(bench.channel);
    let status = client.unimplemented_call(Empty {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(
        status.message().contains("interop.UnimplementedService"),
        "{status}"
    );
}

async fn nobody_runs(tested: &Tested) {
    let start = Instant::now();
    while tested.running.load(Ordering::SeqCst) > 0 {
        assert!(start.elapsed() < PATIENCE, "a handler runs on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn cancel_after_begin(bench: Bench) {
    let client = bench.client.clone();
    let call = tokio::spawn(async move { client.streaming_input_call(stream::pending()).await });
    let start = Instant::now();
    while bench.tested.running.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE, "the handler does not begin");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    nobody_runs(&bench.tested).await;
}

async fn cancel_after_first_response(bench: Bench) {
    let requests = stream::iter([ping(27_182, 31_415)]).chain(stream::pending());
    let mut responses = bench
        .client
        .full_duplex_call(requests)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        responses.message().await.unwrap().unwrap().payload,
        payload(31_415)
    );
    drop(responses);
    nobody_runs(&bench.tested).await;
}

async fn timeout_on_sleeping_server(bench: Bench) {
    let mut request = Request::new(stream::iter([ping(27_182, 31_415)]).chain(stream::pending()));
    request.set_timeout(Duration::from_millis(1));
    let status = match bench.client.full_duplex_call(request).await {
        Err(status) => status,
        Ok(response) => {
            let mut responses = response.into_inner();
            loop {
                match responses.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the stream has no end"),
                    Err(status) => break status,
                }
            }
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
    nobody_runs(&bench.tested).await;
}
