//! Servers that keep to nothing.

use dunlin_verbs::Access;

use super::*;
use crate::channel::one_sided::Attached;
use crate::error::{FailureReason, WireFailure};

/// A server that keeps to the handshake: what it does on the connections is for a test to say.
struct HostileServer {
    address: String,
    opened: mpsc::Receiver<Raw>,
    stop: StopHandle,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl HostileServer {
    fn start() -> Self {
        let device = hostile_device();
        let route = devices::Route::default();
        let fabrics = fabric::fabrics(None, route, devices::Kinds::Bare).unwrap();
        let config = AcceptorConfig {
            capabilities: fabric::capabilities(&fabrics).unwrap(),
            ..AcceptorConfig::default()
        };
        let any = "dunlin://127.0.0.1:0".parse().unwrap();
        let acceptor = Acceptor::bind(&any, config).unwrap();
        let address = acceptor.local_address().to_string();
        let stop = StopHandle::new().unwrap();
        let (opened, peers) = mpsc::channel();
        let opened = std::sync::Mutex::new(opened);
        let stopped = stop.clone();
        let accepting = std::thread::spawn(move || {
            acceptor
                .run(&stopped, |request, _| {
                    let mut raw = Raw::new(&device, 64, Form::Twice);
                    raw.connect(&request.endpoint, &request.parameters);
                    let reply = OpenReply {
                        endpoint: raw.queue_pair.address(),
                        parameters: raw.parameters(),
                    };
                    let _ = opened.lock().unwrap().send(raw);
                    Ok(reply)
                })
                .unwrap();
        });
        Self {
            address,
            opened: peers,
            stop,
            accepting: Some(accepting),
        }
    }

    /// The next connection that a client has made.
    fn accepted(&self) -> Raw {
        self.opened.recv_timeout(PATIENCE).unwrap()
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.stop.stop();
        let accepting = self.accepting.take().unwrap();
        let ended = accepting.join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

impl Raw {
    /// Grants its inlet, whatever it is asked to attach by the first message on the connection; says the name of that
    /// call.
    fn grant_inlet(&mut self) -> u64 {
        let content = RING_AT + Form::Twice.content_at();
        let word = |raw: &Self, at| raw.inlet.memory().atomic_u64(at).load(Ordering::Acquire);
        eventually("a region is asked for", || {
            word(self, RING_AT) != 0 && word(self, content) >> 48 == Kind::Attach as u64
        });
        let call = word(self, content + 8);
        let grant = Attached {
            remote: self.inlet.remote(),
            length: self.inlet_bytes() as u64,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        };
        self.honest(Kind::Response, 0, call, &grant.encode());
        call
    }
}

/// A server knows the names of the operations to come, and may write its messages before the device has done one.
#[test]
fn a_message_answers_no_one_sided_operation() {
    let long = Descriptor {
        address: 0,
        length: 5000,
        key: 1,
    };
    let messages = [
        (Kind::Response, &b"!"[..]),
        (Kind::Response, b""),
        (
            Kind::Failure,
            &WireFailure::new(FailureReason::Handler, 0, "no").encode(),
        ),
        (Kind::LongResponse, &long.encode()),
    ];
    // Where the generation stands in a call's name.
    for (preset, generation) in [(Preset::Plain, 16), (Preset::QpPerThread, 24)] {
        for (kind, payload) in messages {
            let server = HostileServer::start();
            let client = Client::builder().preset(preset).deadline(PATIENCE);
            let client = client.connect(&server.address).unwrap();
            let mut first = server.accepted();
            let region = std::thread::scope(|scope| {
                scope.spawn(|| first.grant_inlet());
                client.attach("memory").unwrap()
            });
            let mut pipeline = client.pipeline().unwrap();
            let mut lane = server.accepted();
            let attached = std::thread::scope(|scope| {
                let granting = scope.spawn(|| lane.grant_inlet());
                assert!(pipeline.read(&region, 0, 8, 7).unwrap());
                granting.join().unwrap()
            });
            // The READ has a name, and leaves with the next poll.
            assert!(lane.honest(kind, 0, attached + (1 << generation), payload));
            let mut ends = Vec::new();
            eventually("the READ ends", || {
                let polled = pipeline.poll(|tag, end| ends.push((tag, end.map(<[u8]>::to_vec))));
                polled.is_err() || !ends.is_empty()
            });
            let is_lost = matches!(ends[..], [(7, Err(CallError::ConnectionLost { .. }))]);
            assert!(is_lost, "{preset}, {kind:?} of {payload:?}: {ends:?}");
        }
    }
}

/// A server that said goodbye without end would keep those who wait from everything else.
#[test]
fn a_second_goodbye_ends_the_connection() {
    for preset in [Preset::Plain, Preset::QpPerThread] {
        let server = HostileServer::start();
        let client = Client::builder().preset(preset).deadline(PATIENCE);
        let client = client.connect(&server.address).unwrap();
        let mut lane = server.accepted();
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                let commit = lane.inlet.memory().atomic_u64(RING_AT);
                eventually("a call is out", || commit.load(Ordering::Acquire) != 0);
                for _ in 0..2 {
                    assert!(lane.honest(Kind::Goodbye, 0, 0, &[]));
                }
            });
            client.call(ECHO, b"?")
        });
        let is_lost = matches!(ended, Err(CallError::ConnectionLost { .. }));
        assert!(is_lost, "{preset}: {ended:?}");
    }
}

#[test]
fn a_server_that_writes_anything_gives_errors_and_no_harm() {
    let mut server = HostileServer::start();
    let peers = std::mem::replace(&mut server.opened, mpsc::channel().1);
    let hostile = std::thread::spawn(move || {
        let mut random = Random::new(11);
        let mut lanes: Vec<Raw> = Vec::new();
        loop {
            match peers.recv_timeout(Duration::from_micros(200)) {
                Ok(raw) => lanes.push(raw),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            // Mostly answers to calls that are really out: slot 0 or 1 of the first generations.
            let calls = [0, 1, 1 << 16, 2 << 16, 3 << 16];
            lanes.retain_mut(|raw| raw.misbehave(&mut random, &calls) && raw.is_alive());
        }
    });
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut note = |result: Result<usize, CallError>| {
        let name = match result {
            Ok(_) => "an answer".to_owned(),
            Err(error) => {
                let words = format!("{error:?}");
                words.split([' ', '(', '{']).next().unwrap().to_owned()
            }
        };
        *ends.entry(name).or_default() += 1;
    };
    let deadline = Duration::from_millis(20);
    let client = Client::builder()
        .deadline(deadline)
        .connect(&server.address)
        .unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0..150usize {
        let payload = vec![round as u8; [10, 3000, 20_000][round % 3]];
        let started = Instant::now();
        note(client.call(ECHO, &payload).map(|reply| reply.len()));
        let future = client.call_async(ECHO, &payload);
        note(pollster(future).map(|reply| reply.len()));
        match client.batch().call(ECHO, &payload).call(LONG, b"").send() {
            Ok(answers) => answers
                .into_iter()
                .for_each(|answer| note(answer.map(|reply| reply.len()))),
            Err(error) => note(Err(error)),
        }
        slowest = slowest.max(started.elapsed());
        assert!(started.elapsed() < PATIENCE, "a call hangs");
    }
    println!("{ends:?}; slowest round of three calls {slowest:?}");
    assert!(ends.contains_key("ConnectionLost"), "{ends:?}");
    drop(client);
    drop(server);
    hostile.join().unwrap();
}

/// The smallest executor.
fn pollster<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}
