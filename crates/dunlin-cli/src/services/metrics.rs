//! Serves a server's metrics over HTTP, for Prometheus: `dunlin serve --metrics`.
//!
//! Clients are served one after the other, with one request each and within a bounded time, so that no client can keep
//! others from their responses, or the server from ending.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin::prometheus::ServerCollector;
use dunlin::ServerObserver;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use rustix::fd::OwnedFd;

use crate::commands::Failure;

/// The content type of the text (OpenMetrics).
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of everything else.
const PLAIN: &str = "text/plain; charset=utf-8";
/// Maximum bytes of a request's head.
const HEAD_BYTES: usize = 8 << 10;
/// Bytes read after the head, so that the response arrives even though they were sent.
const REST_BYTES: usize = 64 << 10;
/// Time limit for a client to send its request and to read the response.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a client could not be accepted, in which descriptors may become free.
const AGAIN: Duration = Duration::from_millis(50);

/// A port that answers `GET /metrics` until it is dropped.
pub struct MetricsPort {
    address: SocketAddr,
    /// Written to in order to end.
    over: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for MetricsPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MetricsPort").field(&self.address).finish()
    }
}

impl MetricsPort {
    /// Listens on `address` and serves the figures of the server of `observer`.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn open(address: SocketAddr, observer: ServerObserver) -> Result<Self, Failure> {
        let wrong = |error: std::io::Error| {
            match error.kind() {
            ErrorKind::AddrInUse => Failure::new(format!(
                "--metrics: address {address} is already in use by another process; stop that process, or use another \
                 port"
            )),
            _ => Failure::new(format!("--metrics {address}: {error}")),
        }
        };
        let listener = TcpListener::bind(address).map_err(wrong)?;
        let address = listener.local_addr()?;
        // Who has gone away before it is taken is not waited for.
        listener.set_nonblocking(true)?;
        let over = eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
        let over = Arc::new(over);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ServerCollector::new(observer)));
        let thread = std::thread::Builder::new().name("dunlin-metrics".into());
        let thread = thread.spawn({
            let over = Arc::clone(&over);
            move || serve(&listener, &over, &registry)
        })?;
        Ok(Self {
            address,
            over,
            thread: Some(thread),
        })
    }

    /// The address it listens on, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.over, &1u64.to_ne_bytes());
        // It ends as soon as the client has its answer, or its time is over.
        if let (Some(thread), Ok(_)) = (self.thread.take(), told) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, over: &OwnedFd, registry: &Registry) {
    loop {
        let mut ready = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(over, PollFlags::IN),
        ];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            // A client that goes away before the response does no harm.
            Ok((stream, _)) => drop(answer(stream, registry)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

/// A client and its deadline.
struct Client {
    stream: TcpStream,
    until: Instant,
}

impl Client {
    fn left(&self) -> std::io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// The head of a request; `None` if it is too long.
    fn head(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let (mut head, mut had) = (vec![0; HEAD_BYTES], 0);
        while had < head.len() {
            match self.read(&mut head[had..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => had += more,
            }
            if head[..had].windows(4).any(|four| four == b"\r\n\r\n") {
                head.truncate(had);
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// Closes it such that the response is not lost if the client has sent more than was read.
    fn close(mut self) -> std::io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let (mut rest, mut had) = ([0; 4096], 0);
        while had < REST_BYTES {
            match self.read(&mut rest)? {
                0 => break,
                more => had += more,
            }
        }
        Ok(())
    }
}

/// Answers one request.
fn answer(stream: TcpStream, registry: &Registry) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let until = Instant::now() + PATIENCE;
    let mut client = Client { stream, until };
    let head = client.head()?;
    let line = head.as_ref().and_then(|head| {
        let line = head.split(|byte| *byte == b'\r').next()?;
        std::str::from_utf8(line).ok()
    });
    let mut words = line.unwrap_or_default().split(' ');
    let (method, target) = (words.next(), words.next());
    let path = target.and_then(|target| target.split('?').next());
    let is_http = words
        .next()
        .is_some_and(|version| version.starts_with("HTTP/1."));
    let mut text = String::new();
    let (status, kind) = match (method, path) {
        _ if head.is_none() => ("431 Request Header Fields Too Large", PLAIN),
        (Some(_), Some(_)) if !is_http => ("400 Bad Request", PLAIN),
        (Some("GET" | "HEAD"), Some("/metrics")) => match encode(&mut text, registry) {
            Ok(()) => ("200 OK", CONTENT_TYPE),
            Err(error) => {
                text = error.to_string();
                ("500 Internal Server Error", PLAIN)
            }
        },
        (Some(_), Some("/metrics")) => ("405 Method Not Allowed\r\nAllow: GET, HEAD", PLAIN),
        (Some(_), Some(_)) => {
            text.push_str("metrics are at /metrics\n");
            ("404 Not Found", PLAIN)
        }
        _ => ("400 Bad Request", PLAIN),
    };
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    if method != Some("HEAD") {
        client.write_all(text.as_bytes())?;
    }
    client.close()
}
