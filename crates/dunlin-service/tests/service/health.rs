//! The health service, asked and watched.

use dunlin_service::health::health_client::HealthClient;
use dunlin_service::health::{health_reporter, HealthCheckRequest, ServingStatus};
use dunlin_service::{Code, Server};

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
