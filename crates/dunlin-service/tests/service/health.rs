//! The health service, asked and watched.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dunlin_service::health::health_client::HealthClient;
use dunlin_service::health::health_server::Health;
use dunlin_service::health::{health_reporter, HealthCheckRequest, ServingStatus};
use dunlin_service::{Code, Request, Server};
use futures_util::{FutureExt, StreamExt};

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.into(),
    }
}

#[tokio::test]
async fn changes_are_told_to_those_who_watch() {
    let (reporter, service) = health_reporter();
    let server = Server::builder().add_service(service);
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let client = HealthClient::connect(server.address().to_string())
        .await
        .unwrap();
    let whole = client.check(of("")).await.unwrap().into_inner();
    assert_eq!(whole.status(), ServingStatus::Serving);
    let unknown = client.check(of("a.Bird")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut watching = client.watch(of("a.Bird")).await.unwrap().into_inner();
    for status in [
        ServingStatus::ServiceUnknown,
        ServingStatus::Serving,
        ServingStatus::NotServing,
    ] {
        reporter.set("another.Bird", status);
        if status != ServingStatus::ServiceUnknown {
            reporter.set("a.Bird", status);
        }
        assert_eq!(watching.message().await.unwrap().unwrap().status(), status);
    }
    let now = client.check(of("a.Bird")).await.unwrap().into_inner();
    assert_eq!(now.status(), ServingStatus::NotServing);
}

struct Quiet;

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn nothing_is_left_of_who_watched() {
    let (reporter, _) = health_reporter();
    let quiet = Arc::new(Quiet);
    for _ in 0..10 {
        let watching = reporter.watch(Request::new(of("a.Bird")));
        let mut watching = watching.now_or_never().unwrap().unwrap().into_inner();
        // A task of its own.
        let waker = Waker::from(Arc::clone(&quiet));
        let mut context = Context::from_waker(&waker);
        assert!(matches!(
            watching.poll_next_unpin(&mut context),
            Poll::Ready(Some(Ok(_)))
        ));
        assert!(watching.poll_next_unpin(&mut context).is_pending());
        assert!(watching.poll_next_unpin(&mut context).is_pending());
        assert_eq!(Arc::strong_count(&quiet), 3, "one that is told");
    }
    assert_eq!(Arc::strong_count(&quiet), 1, "nobody is told any more");
}
