//! A byte stream to a second process for a number of seconds, compared with the kernel's TCP.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dunlin::Stream;
use serde::Serialize;

use super::{device, Args};
use crate::commands::serve::wait_for_parent;
use crate::commands::Failure;
use crate::services::child::ServerProcess;
use crate::{affinity, interrupt, output};

/// Bytes written at once.
const PIECE: usize = 64 << 10;

/// The JSON object. What Ctrl-C left out is null.
#[derive(Debug, Serialize)]
struct Found {
    what: &'static str,
    bytes: u64,
    bytes_per_s: f64,
    /// The rate of the kernel's TCP over loopback, with pieces of the same length.
    tcp_bytes_per_s: Option<f64>,
    ratio: Option<f64>,
    device: String,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let mut arguments: Vec<String> = ["demo", "--what", "stream"].map(str::to_owned).to_vec();
    arguments.extend(["--take".to_owned(), tcp.local_addr()?.port().to_string()]);
    arguments.extend(device(args));
    let taker = ServerProcess::run(&arguments)?;
    if let Some((client, _)) = affinity::client_and_server() {
        affinity::pin(client);
    }
    let (kernel, _) = tcp.accept()?;
    let mut builder = Stream::builder();
    if let Some(device) = args.connect.device() {
        builder = builder.device(device);
    }
    let mut stream = builder
        .connect(&taker.address().to_string())
        .map_err(Failure::new)?;
    let device = stream.device().to_owned();
    let bar = output::progress_bar();
    let half = args.seconds / 2;
    bar.set_message("a stream");
    let show = |done: f64| bar.set_position((done.min(1.0) * 1000.0) as u64);
    let ours = pollster::block_on(send(&mut stream, half, show))?;
    bar.set_message("TCP");
    let began = !interrupt::came();
    // The other process waits for its end.
    let theirs = send_by_tcp(kernel, half, show)?;
    let tcp_bytes_per_s = began.then(|| theirs.rate()).filter(|rate| *rate > 0.0);
    bar.finish_and_clear();
    drop(stream);
    taker.stop()?;
    let found = Found {
        what: "stream",
        bytes: ours.bytes,
        bytes_per_s: ours.rate(),
        tcp_bytes_per_s,
        ratio: tcp_bytes_per_s.map(|theirs| ours.rate() / theirs),
        device,
    };
    if args.json {
        return output::print_json(&found);
    }
    let mut table = output::table(&["a byte stream between two processes", ""]);
    table.add_row(["bytes", &output::bytes(found.bytes as f64)]);
    table.add_row(["rate", &output::bandwidth(found.bytes_per_s)]);
    table.add_row([
        "TCP over loopback, in the same pieces",
        &output::measured(found.tcp_bytes_per_s, output::bandwidth),
    ]);
    let ratio = output::measured(found.ratio, |ratio| format!("{ratio:.2}"));
    table.add_row(["ratio", &ratio]);
    table.add_row(["device", &found.device]);
    output::print(table)
}

/// The bytes sent and the time taken.
struct Sent {
    bytes: u64,
    time: Duration,
}

impl Sent {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Checks that all of it has arrived.
    fn checked(bytes: u64, time: Duration, counted: [u8; 8]) -> Result<Self, Failure> {
        match u64::from_le_bytes(counted) {
            same if same == bytes => Ok(Self { bytes, time }),
            other => Err(Failure::new(format!(
                "{bytes} bytes were sent, but {other} arrived"
            ))),
        }
    }
}

/// Sends for this time, and waits until the other process reports how much has arrived.
async fn send(stream: &mut Stream, time: Duration, show: impl Fn(f64)) -> Result<Sent, Failure> {
    let (piece, began) = (vec![7; PIECE], Instant::now());
    let mut bytes = 0;
    while began.elapsed() < time && !interrupt::came() {
        bytes += poll_fn(|context| stream.poll_write(context, &piece)).await? as u64;
        show(began.elapsed().as_secs_f64() / time.as_secs_f64());
    }
    poll_fn(|context| stream.poll_shutdown(context)).await?;
    let (mut counted, mut had) = ([0; 8], 0);
    while had < counted.len() {
        match poll_fn(|context| stream.poll_read(context, &mut counted[had..])).await? {
            0 => return Err(Failure::new("the other process has ended")),
            more => had += more,
        }
    }
    Sent::checked(bytes, began.elapsed(), counted)
}

fn send_by_tcp(mut stream: TcpStream, time: Duration, show: impl Fn(f64)) -> Result<Sent, Failure> {
    let (piece, began) = (vec![7; PIECE], Instant::now());
    let mut bytes = 0;
    while began.elapsed() < time && !interrupt::came() {
        bytes += stream.write(&piece)? as u64;
        show(began.elapsed().as_secs_f64() / time.as_secs_f64());
    }
    stream.shutdown(Shutdown::Write)?;
    let mut counted = [0; 8];
    stream.read_exact(&mut counted)?;
    Sent::checked(bytes, began.elapsed(), counted)
}

/// The second process: receives a stream, and data by TCP from this port, and reports how much each was.
pub(super) fn take(args: &Args, port: u16) -> Result<(), Failure> {
    interrupt::ignore()?;
    if let Some((_, server)) = affinity::client_and_server() {
        affinity::pin(server);
    }
    let mut builder = Stream::builder();
    if let Some(device) = args.connect.device() {
        builder = builder.device(device);
    }
    let listener = builder.bind("dunlin://127.0.0.1:0").map_err(Failure::new)?;
    output::print(format_args!("listening on {}", listener.address()))?;
    let mut kernel = TcpStream::connect(("127.0.0.1", port))?;
    let mut stream = listener.accept().map_err(Failure::new)?;
    let mut piece = vec![0; PIECE];
    pollster::block_on(count(&mut stream, &mut piece))?;
    let mut bytes = 0u64;
    loop {
        match kernel.read(&mut piece)? {
            0 => break,
            more => bytes += more as u64,
        }
    }
    kernel.write_all(&bytes.to_le_bytes())?;
    wait_for_parent();
    Ok(())
}

async fn count(stream: &mut Stream, piece: &mut [u8]) -> Result<(), Failure> {
    let mut bytes = 0u64;
    loop {
        match poll_fn(|context| stream.poll_read(context, piece)).await? {
            0 => break,
            more => bytes += more as u64,
        }
    }
    let (counted, mut had) = (bytes.to_le_bytes(), 0);
    while had < counted.len() {
        had += poll_fn(|context| stream.poll_write(context, &counted[had..])).await?;
    }
    poll_fn(|context| stream.poll_shutdown(context)).await?;
    Ok(())
}
