//! Metrics of a server over HTTP, for Prometheus: `dunlin serve --metrics`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use dunlin::prometheus::ServerCollector;
use dunlin::ServerObserver;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tiny_http::{Header, Method, Request, Response};

use crate::commands::Failure;

/// What the text is (OpenMetrics).
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A port that answers `GET /metrics` until it is dropped.
pub struct MetricsPort {
    address: SocketAddr,
    server: Arc<tiny_http::Server>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for MetricsPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MetricsPort").field(&self.address).finish()
    }
}

impl MetricsPort {
    /// Listens on `address` and answers with the figures of the server that `observer` looks at.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn open(address: SocketAddr, observer: ServerObserver) -> Result<Self, Failure> {
        let server = tiny_http::Server::http(address).map_err(|error| {
            let kind = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
            match kind {
                Some(ErrorKind::AddrInUse) => Failure::new(format!(
                    "--metrics {address} is in use by another process; stop it, or use another port"
                )),
                _ => Failure::new(format!("--metrics {address}: {error}")),
            }
        })?;
        let server = Arc::new(server);
        let address = server.server_addr().to_ip().unwrap_or(address);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ServerCollector::new(observer)));
        let thread = std::thread::Builder::new().name("dunlin-metrics".into());
        let thread = thread.spawn({
            let server = Arc::clone(&server);
            move || {
                for request in server.incoming_requests() {
                    answer(request, &registry);
                }
            }
        })?;
        Ok(Self {
            address,
            server,
            thread: Some(thread),
        })
    }

    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request. Who goes away before the answer has harmed nobody.
fn answer(request: Request, registry: &Registry) {
    let path = request.url().split('?').next().unwrap_or_default();
    let _ = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => request.respond(typed(text)),
                Err(error) => {
                    request.respond(Response::from_string(error.to_string()).with_status_code(500))
                }
            }
        }
        (_, "/metrics") => request.respond(Response::empty(405)),
        _ => request
            .respond(Response::from_string("metrics are at /metrics\n").with_status_code(404)),
    };
}

fn typed(text: String) -> Response<std::io::Cursor<Vec<u8>>> {
    let response = Response::from_string(text);
    match Header::from_bytes("Content-Type", CONTENT_TYPE) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}
