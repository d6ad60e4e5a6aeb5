//! What calls as futures cost: echoes of 64 bytes on a tokio runtime of one thread, beside a pipeline's, in turns.
//!
//! ```sh
//! cargo run --release -p dunlin --example futures -- serve dunlin://127.0.0.1:7470
//! cargo run --release -p dunlin --example futures -- call dunlin://127.0.0.1:7470 64 200000
//! ```
//!
//! The second keeps so many calls out, and makes so many in each of its turns: as futures, by a pipeline that a thread
//! waits for (`pipeline`) or a task (`awaited`), as futures that one task awaits in their order (`window`), the same
//! two as calls of one thread (`local`, `local-window`), and none at all (`executor`: what as many tasks cost that only
//! run).

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::time::{Duration, Instant};

use dunlin::{CallError, ChannelConfig, Client, Server};

type Failure = Box<dyn Error + Send + Sync>;

const ECHO: u16 = 1;
const PAYLOAD: [u8; 64] = [7; 64];
const TURNS: usize = 5;

fn serve(address: &str) -> Result<(), Failure> {
    let server = Server::bind(address)?
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()?;
    println!("listening on {}", server.address());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// One call after the other.
async fn one_by_one<R: AsRef<[u8]>, F: Future<Output = Result<R, CallError>>>(
    calls: usize,
    call: impl Fn() -> F,
) -> Result<(), Failure> {
    for _ in 0..calls {
        if call().await?.as_ref() != PAYLOAD {
            return Err("another answer".into());
        }
    }
    Ok(())
}

/// So many tasks, each of which makes one call after the other.
async fn futures(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..out {
        let client = client.clone();
        tasks.spawn(
            async move { one_by_one(calls / out, || client.call_async(ECHO, &PAYLOAD)).await },
        );
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(start.elapsed())
}

/// As [`futures`], by a client of this thread.
async fn local(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    let (client, driver) = client.local()?;
    let tasks = tokio::task::LocalSet::new();
    let start = Instant::now();
    tasks.spawn_local(driver);
    for _ in 0..out {
        let client = client.clone();
        tasks.spawn_local(async move {
            one_by_one(calls / out, || client.call_async(ECHO, &PAYLOAD)).await
        });
    }
    drop(client);
    // The driver ends with the last of the calls.
    tasks.await;
    Ok(start.elapsed())
}

/// One task that keeps futures in a queue and awaits the oldest: most are never polled before their answer is there.
async fn in_order<R: AsRef<[u8]>, F: Future<Output = Result<R, CallError>>>(
    out: usize,
    calls: usize,
    call: impl Fn() -> F,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut queue = std::collections::VecDeque::with_capacity(out);
    let mut sent = 0;
    while sent < calls || !queue.is_empty() {
        while sent < calls && queue.len() < out {
            queue.push_back(call());
            sent += 1;
        }
        if let Some(oldest) = queue.pop_front() {
            if oldest.await?.as_ref() != PAYLOAD {
                return Err("another answer".into());
            }
        }
    }
    Ok(start.elapsed())
}

async fn window(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    in_order(out, calls, || client.call_async(ECHO, &PAYLOAD)).await
}

async fn local_window(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    let (client, mut driver) = client.local()?;
    let calls = in_order(out, calls, || client.call_async(ECHO, &PAYLOAD));
    driver.run_until(calls).await
}

/// What the executor alone takes: as many tasks that are woken and polled as often, and call nobody.
async fn executor(out: usize, calls: usize) -> Result<Duration, Failure> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..out {
        tasks.spawn(async move {
            for _ in 0..calls / out {
                tokio::task::yield_now().await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    Ok(start.elapsed())
}

/// Every way looks at its answers. By reference: a result that is moved is read by wider loads than it was stored by.
#[inline]
fn is_echo(answer: &Result<&[u8], CallError>) -> bool {
    matches!(answer, Ok(bytes) if **bytes == PAYLOAD)
}

fn pipeline(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    let mut pipeline = client.pipeline()?;
    let start = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < calls {
        while sent < calls && sent - answered < out && pipeline.submit(ECHO, &PAYLOAD, 0)? {
            sent += 1;
        }
        pipeline.wait(|_, answer| answered += usize::from(is_echo(&answer)))?;
    }
    Ok(start.elapsed())
}

/// The same loop as a task: one wakes for all answers that have come.
async fn awaited(client: &Client, out: usize, calls: usize) -> Result<Duration, Failure> {
    let mut pipeline = client.pipeline()?;
    let start = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < calls {
        while sent < calls && sent - answered < out && pipeline.submit(ECHO, &PAYLOAD, 0)? {
            sent += 1;
        }
        let take = |_, answer: Result<&[u8], _>| answered += usize::from(is_echo(&answer));
        pipeline.wait_async(take).await?;
    }
    Ok(start.elapsed())
}

/// What is measured.
const KINDS: [&str; 7] = [
    "futures",
    "window",
    "local",
    "local-window",
    "pipeline",
    "awaited",
    "executor",
];

async fn call(address: &str, out: usize, calls: usize, kinds: &[&str]) -> Result<(), Failure> {
    let channel = ChannelConfig {
        max_outstanding: out.max(1024),
        ..ChannelConfig::default()
    };
    let client = Client::builder().channel(channel).connect(address)?;
    let mut rates = vec![Vec::new(); kinds.len()];
    for _ in 0..TURNS {
        for (kind, rates) in kinds.iter().zip(&mut rates) {
            let took = match *kind {
                "futures" => futures(&client, out, calls).await?,
                "window" => window(&client, out, calls).await?,
                "local" => local(&client, out, calls).await?,
                "local-window" => local_window(&client, out, calls).await?,
                "pipeline" => pipeline(&client, out, calls)?,
                "awaited" => awaited(&client, out, calls).await?,
                "executor" => executor(out, calls).await?,
                _ => return Err(format!("{kind} is none of {KINDS:?}").into()),
            };
            rates.push(calls as f64 / took.as_secs_f64());
        }
    }
    for (kind, mut rates) in kinds.iter().zip(rates) {
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates[TURNS / 2];
        println!("{kind}, {out} out: {median:.0} calls/s (median of {TURNS})");
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => serve(address),
        ["call", address, out, calls, kinds @ ..] => {
            let kinds = if kinds.is_empty() { &KINDS } else { kinds };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(call(address, out.parse()?, calls.parse()?, kinds))
        }
        _ => Err("usage: futures serve ADDRESS | call ADDRESS OUT CALLS [KIND ...]".into()),
    }
}
