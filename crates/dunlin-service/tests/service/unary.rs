//! Unary calls: async and sync services, async and blocking clients, over every preset; status, metadata, deadlines and
//! cancellation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::probe_client::{ProbeBlockingClient, ProbeClient};
use crate::common::probe_server::{Probe, ProbeServer, SyncProbe, SyncProbeServer};
use crate::common::{until_async, Note, ProbeEcho, ProbeFail, PATIENCE};
use dunlin::{Client, Execution, Preset, RunningServer};
use dunlin_service::{
    Channel, Code, Request, Response, Server, Status, TraceContext, MAX_METADATA_BYTES, TRACEPARENT,
};

/// Handlers that run, now.
#[derive(Clone, Default)]
struct Running(Arc<AtomicUsize>);

impl Running {
    fn begin(&self) -> Guard {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(Arc::clone(&self.0))
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The service, in both forms.
#[derive(Clone, Default)]
pub(super) struct Prober {
    running: Running,
    /// The next server of a chain.
    next: Option<ProbeClient>,
}

fn failure(note: &Note) -> Status {
    let code = Code::from_number(note.number as u32);
    let mut status = Status::with_details(code, note.words.clone(), note.payload.clone());
    status.metadata_mut().append("x-why", "asked for").unwrap();
    status
}

/// What a server sees of a request beside its message.
fn seen<T>(request: &Request<T>) -> Note {
    let left = request
        .deadline()
        .map(|deadline| deadline.saturating_duration_since(Instant::now()));
    Note {
        words: request
            .metadata()
            .get(TRACEPARENT)
            .unwrap_or_default()
            .to_owned(),
        number: left.map_or(0, |left| left.as_millis() as u64),
        payload: request
            .metadata()
            .get_bytes("x-key-bin")
            .unwrap_or_default()
            .to_vec(),
    }
}

#[dunlin_service::async_trait]
impl Probe for Prober {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let mut response = Response::new(request.get_ref().clone());
        if let Some(user) = request.metadata().get("x-user") {
            response.metadata_mut().insert("x-greeted", user).unwrap();
        }
        Ok(response)
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        if request.get_ref().words == "panic" {
            panic!("a bug in an async handler");
        }
        Err(failure(request.get_ref()))
    }

    async fn sleep(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let _running = self.running.begin();
        tokio::time::sleep(Duration::from_millis(request.get_ref().number)).await;
        Ok(Response::new(request.into_inner()))
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        match (&self.next, request.get_ref().number) {
            (Some(next), hops @ 1..) => {
                next.look(Note {
                    number: hops - 1,
                    ..Note::default()
                })
                .await
            }
            _ => Ok(Response::new(seen(&request))),
        }
    }
}

impl SyncProbe for Prober {
    fn echo(&self, request: &mut Request<Note>, reply: &mut Response<Note>) -> Result<(), Status> {
        reply.get_mut().clone_from(request.get_ref());
        if let Some(user) = request.metadata().get("x-user") {
            reply.metadata_mut().insert("x-greeted", user).unwrap();
        }
        Ok(())
    }

    fn fail(&self, request: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Err(failure(request.get_ref()))
    }

    fn sleep(&self, request: &mut Request<Note>, reply: &mut Response<Note>) -> Result<(), Status> {
        let _running = self.running.begin();
        std::thread::sleep(Duration::from_millis(request.get_ref().number));
        reply.get_mut().number = request.get_ref().number;
        Ok(())
    }

    fn look(&self, request: &mut Request<Note>, reply: &mut Response<Note>) -> Result<(), Status> {
        *reply.get_mut() = seen(request);
        Ok(())
    }
}

pub(super) fn start(server: Server) -> (RunningServer, String) {
    let running = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = running.address().to_string();
    (running, address)
}

pub(super) fn with_user(note: Note) -> Request<Note> {
    let mut request = Request::new(note);
    request.metadata_mut().insert("x-user", "ada").unwrap();
    request
}

/// Requests of all lengths, and all that travels with them, whoever serves.
async fn everything_travels(client: &ProbeClient, preset: Preset) {
    for length in [0, 1, 60, 4000, 5000, 100_000] {
        let note = Note {
            words: "kiek".into(),
            number: u64::MAX,
            payload: vec![7; length],
        };
        let answer = client.echo(note.clone()).await.unwrap();
        assert_eq!(answer.into_inner(), note, "{preset} {length}");
        let answer = client.echo(with_user(note.clone())).await.unwrap();
        assert_eq!(
            answer.metadata().get("x-greeted"),
            Some("ada"),
            "{preset} {length}"
        );
        assert_eq!(answer.into_inner(), note, "{preset} {length}");
    }
    let refused = Note {
        words: "nö".into(),
        number: 5,
        payload: vec![0; 2000],
    };
    let status = client.fail(refused.clone()).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "nö"),
        "{preset}"
    );
    assert_eq!(status.details(), refused.payload);
    assert_eq!(status.metadata().get("x-why"), Some("asked for"));
    assert_eq!(status.execution(), Execution::Executed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_travels_over_every_preset_to_every_kind_of_server() {
    let prober = Prober::default;
    let servers = [
        start(Server::builder().add_service(ProbeServer::new(prober()))),
        start(Server::builder().add_service(SyncProbeServer::inline(prober()))),
        start(Server::builder().add_service(SyncProbeServer::on_workers(prober()))),
    ];
    for &preset in Preset::ALL {
        for (_, address) in &servers {
            let client = Client::builder().preset(preset).deadline(PATIENCE);
            let client = client.connect_async(address).await.unwrap();
            let client = ProbeClient::new(Channel::from_client(client).await.unwrap());
            everything_travels(&client, preset).await;
            let blocking = client.blocking();
            let blocked = tokio::task::spawn_blocking(move || {
                let note = Note::new("hello");
                assert_eq!(blocking.echo(note.clone()).unwrap().into_inner(), note);
                let status = blocking.fail(Note { number: 7, ..note }).unwrap_err();
                assert_eq!(status.code(), Code::PermissionDenied);
            });
            blocked.await.unwrap();
        }
    }
}

#[tokio::test]
async fn metadata_that_is_too_long_is_not_sent() {
    for server in [
        Server::builder().add_service(ProbeServer::new(Prober::default())),
        Server::builder().add_service(SyncProbeServer::inline(Prober::default())),
    ] {
        let (_server, address) = start(server);
        let client = ProbeClient::connect(&address).await.unwrap();
        // What comes back has a longer name.
        for room in ["x-user".len(), 0] {
            let mut request = Request::new(Note::new("hello"));
            let value = vec![b'a'; MAX_METADATA_BYTES - room];
            request.metadata_mut().insert("x-user", value).unwrap();
            let status = client.echo(request).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
    }
}

#[test]
fn blocking_clients_and_servers_need_no_runtime() {
    let (_server, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    let client = ProbeBlockingClient::connect(&address).unwrap();
    assert_eq!(
        client.echo(Note::new("hello")).unwrap().into_inner(),
        Note::new("hello")
    );
    let status = client.fail(Note::new("panic")).unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Internal, "the handler panicked")
    );
    let mut pipeline = Channel::connect_blocking(&address)
        .unwrap()
        .pipeline(8)
        .unwrap();
    let mut ended = Vec::new();
    for tag in 0..8 {
        let note = Note {
            number: tag,
            ..Note::default()
        };
        assert!(match tag % 2 {
            0 => pipeline.submit::<ProbeEcho>(&note, tag).unwrap(),
            _ => pipeline.submit::<ProbeFail>(&note, tag).unwrap(),
        });
    }
    while pipeline.outstanding() > 0 {
        pipeline
            .wait(|tag, answer| {
                let answer = answer.unwrap();
                ended.push((
                    tag,
                    answer
                        .with::<ProbeEcho, _>(|note| note.number)
                        .map_err(|s| s.code()),
                ));
            })
            .unwrap();
    }
    ended.sort_unstable_by_key(|(tag, _)| *tag);
    let wanted = (0..8).map(|tag| {
        (
            tag,
            match tag % 2 {
                0 => Ok(tag),
                _ => Err(Code::from_number(tag as u32)),
            },
        )
    });
    assert_eq!(ended, wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn who_gives_up_or_runs_out_of_time_stops_the_handler() {
    let prober = Prober::default();
    let running = prober.running.clone();
    let (_server, address) = start(Server::builder().add_service(ProbeServer::new(prober)));
    let client = ProbeClient::connect(&address).await.unwrap();
    let long = || Note {
        number: 3_600_000,
        ..Note::default()
    };
    // Given up.
    let given_up = client.clone();
    let task = tokio::spawn(async move { given_up.sleep(long()).await });
    until_async("the handler runs", || running.now() == 1).await;
    task.abort();
    until_async("the handler is dropped", || running.now() == 0).await;
    // Out of time.
    let mut request = Request::new(long());
    request.set_timeout(Duration::from_millis(20));
    let status = client.sleep(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.execution(), Execution::Unknown);
    until_async("the handler is dropped", || running.now() == 0).await;
    let mut request = Request::new(long());
    request.set_timeout(Duration::ZERO);
    assert_eq!(
        client.sleep(request).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    // The client goes altogether.
    let gone = ProbeClient::connect(&address).await.unwrap();
    let task = tokio::spawn(async move { gone.sleep(long()).await });
    until_async("the handler runs", || running.now() == 1).await;
    task.abort();
    until_async("the handler is dropped", || running.now() == 0).await;
}

#[tokio::test]
async fn deadline_and_trace_are_seen_two_hops_further() {
    let (_last, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    let mut next = Some(ProbeClient::connect(&address).await.unwrap());
    let mut servers = Vec::new();
    for _ in 0..2 {
        let prober = Prober {
            next: next.take(),
            ..Prober::default()
        };
        let (server, address) = start(Server::builder().add_service(ProbeServer::new(prober)));
        next = Some(ProbeClient::connect(&address).await.unwrap());
        servers.push(server);
    }
    let client = next.unwrap();
    let trace = TraceContext {
        trace_id: 0x4bf9_2f35,
        parent_id: 7,
        sampled: true,
    };
    let mut request = Request::new(Note {
        number: 2,
        ..Note::default()
    });
    request.set_timeout(Duration::from_secs(3600));
    request.metadata_mut().set_trace_context(&trace);
    let seen = client.look(request).await.unwrap().into_inner();
    assert_eq!(seen.words.parse(), Ok(trace));
    assert!(
        (1_800_000..=3_600_000).contains(&seen.number),
        "{} ms",
        seen.number
    );
    // Without either nothing is invented.
    let seen = client
        .look(Note {
            number: 2,
            ..Note::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((seen.words.as_str(), seen.number), ("", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_places_wait_for_one() {
    let (_server, address) =
        start(Server::builder().add_service(ProbeServer::new(Prober::default())));
    let client = ProbeClient::connect(&address).await.unwrap();
    let tasks: Vec<_> = (0..3000)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .echo(Note {
                        number,
                        ..Note::default()
                    })
                    .await
            })
        })
        .collect();
    for (number, task) in (0..).zip(tasks) {
        assert_eq!(task.await.unwrap().unwrap().get_ref().number, number);
    }
}

/// Where a handler ran, before and behind the place at which it may wait.
struct Whereabouts;

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[dunlin_service::async_trait]
impl Probe for Whereabouts {
    async fn echo(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(Note::new(&thread_name())))
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Probe::fail(&Prober::default(), request).await
    }

    async fn sleep(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let before = thread_name();
        tokio::time::sleep(Duration::from_millis(request.get_ref().number)).await;
        Ok(Response::new(Note::new(&format!(
            "{before} {}",
            thread_name()
        ))))
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(seen(&request)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_are_ready_can_answer_on_the_polling_thread() {
    let builder = || Server::builder().add_service(ProbeServer::new(Whereabouts));
    let as_tasks = builder().start("dunlin://127.0.0.1:0").unwrap();
    let polled = builder().poll_inline();
    let polled = polled.start("dunlin://127.0.0.1:0").unwrap();
    let client = |server: &RunningServer| ProbeClient::connect(server.address().to_string());
    let (tasks, polled) = (
        client(&as_tasks).await.unwrap(),
        client(&polled).await.unwrap(),
    );
    let ran = |answer: Response<Note>| answer.into_inner().words;
    let task = ran(tasks.echo(Note::default()).await.unwrap());
    let inline = ran(polled.echo(Note::default()).await.unwrap());
    assert!(task.starts_with("tokio"), "{task}");
    assert!(inline.starts_with("dunlin-poller"), "{inline}");
    // One that waits goes on as a task: many wait together.
    let long = Note {
        number: 50,
        ..Note::default()
    };
    let sleeping = (0..100).map(|_| polled.sleep(long.clone()));
    for slept in futures_util::future::join_all(sleeping).await {
        let slept = ran(slept.unwrap());
        assert!(
            slept.starts_with("dunlin-poller") && slept.contains(" tokio"),
            "{slept}"
        );
    }
    // Panics, deadlines and cancellation are as they were.
    let panicked = polled.fail(Note::new("panic")).await.unwrap_err();
    assert_eq!(panicked.code(), Code::Internal);
    let mut late = Request::new(Note {
        number: 60_000,
        ..Note::default()
    });
    late.set_timeout(Duration::from_millis(20));
    let late = polled.sleep(late).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
}
