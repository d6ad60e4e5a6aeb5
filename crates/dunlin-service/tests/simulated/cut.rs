//! A network that is cut for three seconds while a stream and calls are out: shorter than their deadlines, and than a
//! queue pair retransmits. They wait, and go on where they were.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{thread, ChannelConfig, Client, Preset, WaitMode};
use dunlin_service::private::block_on;
use dunlin_service::{Channel, Server, Status};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use futures_util::future::try_join;

use crate::scene::{on, run_until, start, Place};
use crate::service::front_client::FrontClient;
use crate::service::front_server::FrontServer;
use crate::service::{Note, Service};

const ROUNDS: u64 = 20;
/// Of virtual time: between two rounds, the cut, and for how long all of it may last.
const PAUSE: Duration = Duration::from_millis(100);
const CUT: Duration = Duration::from_secs(3);
const AT_MOST: Duration = Duration::from_secs(60);
/// Of calls and of the stream.
const DEADLINE: Duration = Duration::from_secs(20);

const CHAT: u64 = 1;
const ECHO: u64 = 2;

/// In each round a note goes over a stream and comes back, and a unary call is answered.
async fn talk(front: &FrontClient, rounds: &AtomicU64) -> Result<(), Status> {
    let (says, said) = futures_channel::mpsc::unbounded();
    let mut notes = front.chat(said).await?.into_inner();
    for number in 0..ROUNDS {
        let said = says.unbounded_send(Note::new(CHAT, number, ROUNDS, 9));
        said.expect("it is read");
        let (heard, echoed) = try_join(notes.message(), async {
            front.echo(Note::new(ECHO, number, ROUNDS, 9)).await
        })
        .await?;
        let heard = heard.expect("it has not ended");
        assert!(heard.is(CHAT, number), "{heard:?} instead of {number}");
        assert!(echoed.get_ref().is(ECHO, number), "{echoed:?}");
        rounds.store(number + 1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    drop(says);
    assert_eq!(notes.message().await?, None);
    Ok(())
}

fn is_cut_for_three_seconds(preset: Preset) {
    let host = HostParameters::xeon_gold_5118();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(1, 2, &host, &nic, &switch);
    let hosts = cluster.hosts();
    let (server_place, client_place) = (
        Place::new(&cluster, hosts[0]),
        Place::new(&cluster, hosts[1]),
    );
    let service = Service::default();
    let services = Server::builder()
        .threads(server_place.threads())
        .add_service(FrontServer::new(service.clone()));
    let config = ChannelConfig {
        wait: WaitMode::Doze {
            spin: Duration::from_micros(10),
        },
        ..ChannelConfig::default()
    };
    let server = start(services, dunlin::Server::unbound(), &server_place, &config);
    let client = Client::builder()
        .preset(preset)
        .channel(config)
        .deadline(DEADLINE)
        .connect_on(cluster.device(hosts[1]), &server.acceptor())
        .expect("a client");
    let ended = Arc::<Mutex<Option<Result<(), Status>>>>::default();
    let rounds = Arc::<AtomicU64>::default();
    let (tells, counts, threads) = (
        Arc::clone(&ended),
        Arc::clone(&rounds),
        client_place.threads(),
    );
    let done = on(&cluster, hosts[1], move || {
        let result = block_on(async {
            let channel = Channel::from_client(client).await?.threads(threads);
            talk(&FrontClient::new(channel), &counts).await
        });
        *tells.lock().expect("nobody panicked") = Some(result);
    });
    let at_most = AT_MOST.as_nanos() as u64;
    let count = || rounds.load(Ordering::Relaxed);
    assert!(run_until(&cluster, at_most, || count() >= ROUNDS / 4));
    let cut = cluster.partition(&[hosts[1]]);
    let before = count();
    cluster.run_for(CUT.as_nanos() as u64);
    // What was answered before may have been on its way through the client.
    assert!(count() <= before + 1, "{preset}: the network is cut");
    drop(cut);
    assert!(
        run_until(&cluster, at_most, || done.load(Ordering::Relaxed)),
        "{preset}: {} rounds",
        count()
    );
    let ended = ended.lock().expect("nobody panicked").take();
    ended
        .expect("it has ended")
        .unwrap_or_else(|status| panic!("{preset}: {status}"));
    let seen = service.seen();
    assert_eq!(seen.wrong, Vec::<String>::new(), "{preset}");
    assert_eq!(seen.messages as u64, ROUNDS, "{preset}");
    for number in 0..ROUNDS {
        assert_eq!(seen.executed.get(&(ECHO, number)), Some(&1), "{preset}");
    }
}

#[test]
fn streams_and_calls_outlast_a_cut_of_the_network() {
    for preset in [Preset::Auto, Preset::Plain, Preset::ScaleRpc] {
        is_cut_for_three_seconds(preset);
    }
}
