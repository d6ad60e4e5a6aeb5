//! What a wait in virtual time costs in real time: who looks in vain rests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{ChannelConfig, Client, WaitMode};
use dunlin_service::private::block_on;
use dunlin_service::{Channel, Code, Request, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::scene::{on, run_until, start, Place};
use crate::service::front_client::FrontClient;
use crate::service::front_server::FrontServer;
use crate::service::{Note, Service};

const WAIT: Duration = Duration::from_millis(100);
/// A look each 20 us, and what the server does meanwhile, take some ten thousand; one after the other without a rest
/// would be a million.
const MOST_EVENTS: u64 = 100_000;

#[test]
fn a_task_that_leads_rests_between_its_looks() {
    let host = HostParameters::xeon_gold_5118();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(1, 2, &host, &nic, &switch);
    let hosts = cluster.hosts();
    let place = Place::new(&cluster, hosts[0]);
    let services = Server::builder()
        .threads(place.threads())
        .add_service(FrontServer::new(Service::default()));
    let config = ChannelConfig::default();
    let server = start(services, dunlin::Server::unbound(), &place, &config);
    let client = Client::builder()
        .wait(WaitMode::Spin)
        .connect_on(cluster.device(hosts[1]), &server.acceptor())
        .expect("a client");
    let code = Arc::<Mutex<Option<Code>>>::default();
    let seen = Arc::clone(&code);
    let done = on(&cluster, hosts[1], move || {
        let ended = block_on(async {
            let front = FrontClient::new(Channel::from_client(client).await?);
            let mut request = Request::new(Note::new(1, 1, 0, 9));
            request.set_timeout(WAIT);
            front.stay(request).await
        });
        let status = ended.expect_err("it is never answered");
        *seen.lock().expect("nobody panicked") = Some(status.code());
    });
    let ended = || done.load(Ordering::Relaxed);
    assert!(run_until(&cluster, 2 * WAIT.as_nanos() as u64, ended));
    let code = *code.lock().expect("nobody panicked");
    assert_eq!(code, Some(Code::DeadlineExceeded));
    let events = cluster.events();
    assert!(events < MOST_EVENTS, "{events} events");
}
