//! A channel without streams for longer than a server remembers clients of which it hears nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{thread, ChannelConfig, Client, WaitMode};
use dunlin_service::private::block_on;
use dunlin_service::{Channel, Server, Status};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::scene::{on, run_until, start, Place};
use crate::service::front_client::FrontClient;
use crate::service::front_server::FrontServer;
use crate::service::{Note, Service};

/// Of virtual time.
const RESTS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_secs(4),
    Duration::from_secs(40),
];
const AT_MOST: Duration = Duration::from_secs(120);

/// Three notes.
async fn count(front: &FrontClient) -> Result<(), Status> {
    let mut notes = front.count(Note::new(1, 0, 3, 9)).await?.into_inner();
    for number in 0..3 {
        let note = notes.message().await?.expect("there are three");
        assert!(note.is(1, number));
    }
    assert!(notes.message().await?.is_none());
    Ok(())
}

#[test]
fn a_channel_without_streams_for_long_has_streams_again() {
    let host = HostParameters::xeon_gold_5118();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(1, 2, &host, &nic, &switch);
    let hosts = cluster.hosts();
    let (server_place, client_place) = (
        Place::new(&cluster, hosts[0]),
        Place::new(&cluster, hosts[1]),
    );
    let services = Server::builder()
        .threads(server_place.threads())
        .add_service(FrontServer::new(Service::default()));
    let config = ChannelConfig {
        wait: WaitMode::Doze {
            spin: Duration::from_micros(10),
        },
        ..ChannelConfig::default()
    };
    let server = start(services, dunlin::Server::unbound(), &server_place, &config);
    let client = Client::builder()
        .channel(config)
        .connect_on(cluster.device(hosts[1]), &server.acceptor())
        .expect("a client");
    let ended = Arc::<Mutex<Option<Result<(), Status>>>>::default();
    let (tells, threads) = (Arc::clone(&ended), client_place.threads());
    let done = on(&cluster, hosts[1], move || {
        let result = block_on(async {
            let channel = Channel::from_client(client).await?.threads(threads);
            let front = FrontClient::new(channel);
            count(&front).await?;
            for rest in RESTS {
                thread::sleep(rest);
                count(&front).await?;
            }
            Ok(())
        });
        *tells.lock().expect("nobody panicked") = Some(result);
    });
    let all_done = || done.load(Ordering::Relaxed);
    assert!(run_until(&cluster, AT_MOST.as_nanos() as u64, all_done));
    let ended = ended.lock().expect("nobody panicked").take();
    ended
        .expect("it has ended")
        .expect("the server is there all the time");
}
