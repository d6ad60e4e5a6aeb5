//! The health service of gRPC (`grpc.health.v1.Health`): whether the services of a server are serving, asked once or
//! watched.
//!
//! ```
//! use dunlin_service::health::{health_reporter, ServingStatus};
//! use dunlin_service::Server;
//!
//! let (reporter, service) = health_reporter();
//! let server = Server::builder().add_service(service).start("dunlin://127.0.0.1:0")?;
//! reporter.set("helloworld.Greeter", ServingStatus::NotServing);
//! # Ok::<(), dunlin::ServeError>(())
//! ```

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::codec::Prost;
use crate::{Request, Response, Status};

/// The descriptors of the service, for [reflection](crate::reflection): the file `proto/grpc/health/v1/health.proto`,
/// compiled.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/health.binpb");

/// The service to check; the empty name is the server as a whole.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckRequest {
    /// The service's name, such as `helloworld.Greeter`.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The state of a service.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckResponse {
    /// See [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service is serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// No status has been set.
    Unknown = 0,
    /// The service is serving.
    Serving = 1,
    /// The service is not serving.
    NotServing = 2,
    /// There is no such service; sent only to watchers, because it may be added later.
    ServiceUnknown = 3,
}

crate::service! {
    /// Reports which services are serving.
    pub service Health = "grpc.health.v1.Health" with Prost {
        /// Returns the current status of a service; `NotFound` if there is none of this name.
        rpc check as Check(HealthCheckRequest) -> HealthCheckResponse;
        /// Sends the current status of a service, and the new one after each change.
        rpc watch as Watch(HealthCheckRequest) -> stream HealthCheckResponse;
    }
}

#[derive(Debug, Default)]
struct Known {
    services: HashMap<String, ServingStatus>,
    /// Wakers to notify of changes, by the number of the watcher.
    watching: HashMap<u64, Waker>,
    next: u64,
}

/// Sets the status of services. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HealthReporter(Arc<Mutex<Known>>);

/// Creates a reporter, and the service that reports the statuses set with it. The server as a whole is serving from the
/// beginning.
pub fn health_reporter() -> (HealthReporter, health_server::HealthServer<HealthReporter>) {
    let reporter = HealthReporter::default();
    reporter.set("", ServingStatus::Serving);
    let service = health_server::HealthServer::new(reporter.clone());
    (reporter, service)
}

impl HealthReporter {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the status of a service.
    pub fn set(&self, service: impl Into<String>, status: ServingStatus) {
        let mut known = self.lock();
        known.services.insert(service.into(), status);
        let watching = std::mem::take(&mut known.watching);
        drop(known);
        watching.into_values().for_each(Waker::wake);
    }

    /// Returns the status of a service, if it is known.
    pub fn get(&self, service: &str) -> Option<ServingStatus> {
        self.lock().services.get(service).copied()
    }
}

/// The stream of a service's statuses: the current one, and the new one after each change.
#[derive(Debug)]
pub struct Watching {
    reporter: HealthReporter,
    service: String,
    said: Option<ServingStatus>,
    number: u64,
}

impl Stream for Watching {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut known = this.reporter.lock();
        let status = known.services.get(&this.service).copied();
        let status = status.unwrap_or(ServingStatus::ServiceUnknown);
        if this.said.replace(status) != Some(status) {
            let status = status.into();
            return Poll::Ready(Some(Ok(HealthCheckResponse { status })));
        }
        let before = known.watching.insert(this.number, context.waker().clone());
        drop(known);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let waker = self.reporter.lock().watching.remove(&self.number);
        drop(waker);
    }
}

#[async_trait::async_trait]
impl health_server::Health for HealthReporter {
    type WatchStream = Watching;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        let status = self.get(service);
        let status = status.ok_or_else(|| Status::not_found(format!("no service '{service}'")))?;
        Ok(Response::new(HealthCheckResponse {
            status: status.into(),
        }))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Watching>, Status> {
        let mut known = self.lock();
        known.next += 1;
        Ok(Response::new(Watching {
            reporter: self.clone(),
            service: request.into_inner().service,
            said: None,
            number: known.next,
        }))
    }
}
