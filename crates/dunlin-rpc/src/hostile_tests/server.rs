//! Servers that keep to nothing.

use super::*;

#[test]
fn a_server_that_writes_anything_gives_errors_and_no_harm() {
    let device = hostile_device();
    let fabrics = devices::fabrics(None, devices::Route::default(), devices::Kinds::Bare).unwrap();
    let config = AcceptorConfig {
        capabilities: devices::capabilities(&fabrics).unwrap(),
        ..AcceptorConfig::default()
    };
    let acceptor =
        Arc::new(Acceptor::bind(&"dunlin://127.0.0.1:0".parse().unwrap(), config).unwrap());
    let address = acceptor.local_address().to_string();
    let stop = StopHandle::new().unwrap();
    let (opened, peers) = mpsc::channel::<Raw>();
    let opened = std::sync::Mutex::new(opened);
    let accepting = {
        let (acceptor, stop) = (Arc::clone(&acceptor), stop.clone());
        std::thread::spawn(move || {
            acceptor
                .run(&stop, |request, _| {
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
        })
    };
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
        .connect(&address)
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
    stop.stop();
    accepting.join().unwrap();
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
