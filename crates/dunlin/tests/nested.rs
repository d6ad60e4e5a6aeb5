//! Servers whose handlers call each other, in circles: async ones wait without holding anything up, so none of them
//! waits for itself; an inline one that calls its own server is told so at once. `DUNLIN_SECONDS` says how long (1).

mod common;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::number;
use dunlin::{CallError, Client, HandlerError, Preset, RunningServer, Server};

const HOP: u16 = 1;
const OWN: u16 = 2;
const SERVERS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(30);

/// The clients by which the servers call each other; there once all servers are.
type Clients = Arc<OnceLock<Vec<Client>>>;

/// A request: hops that are left, and what chooses where they go.
fn request(hops: u8, path: u64) -> [u8; 9] {
    let mut bytes = [hops; 9];
    bytes[1..].copy_from_slice(&path.to_le_bytes());
    bytes
}

/// Answers with the servers of the path; the caller compares them with its own walk.
fn walk(at: usize, hops: u8, path: u64) -> Vec<u8> {
    let mut visited = vec![at as u8];
    let mut path = path;
    for _ in 0..hops {
        visited.push((path % SERVERS as u64) as u8);
        path /= SERVERS as u64;
    }
    visited
}

fn serve(at: usize, preset: Preset, clients: &Clients) -> RunningServer {
    let runtime = tokio::runtime::Handle::current();
    let (next, own) = (Arc::clone(clients), Arc::clone(clients));
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .executor(move |task| drop(runtime.spawn(task)))
        .handle_async(HOP, move |asked| {
            let next = Arc::clone(&next);
            async move {
                let bytes: [u8; 9] = asked.payload().try_into().expect("nine bytes");
                let (hops, path) = (bytes[0], u64::from_le_bytes(bytes[1..].try_into().unwrap()));
                let mut visited = vec![at as u8];
                if hops > 0 {
                    let to = &next.get().expect("all are there")[(path % SERVERS as u64) as usize];
                    let further = request(hops - 1, path / SERVERS as u64);
                    let answer = to.call_async(HOP, &further).await;
                    visited.extend_from_slice(
                        &answer.map_err(|error| HandlerError::new(1, error.to_string()))?,
                    );
                }
                Ok(visited)
            }
        })
        .handle(OWN, move |_, reply| {
            let own = &own.get().expect("all are there")[at];
            let refused = own.call(HOP, &request(0, 0));
            assert!(matches!(refused, Err(CallError::OwnServer)), "{refused:?}");
            reply.write(preset.name().as_bytes())
        })
        .serve()
        .unwrap()
}

/// So many tasks with paths of so many hops at most. A call that waits for another keeps its place on its lane, so what
/// is under way at once must be less than a lane holds: of datagrams and pools that is little.
async fn circles(preset: Preset, tasks: u64, most_hops: u8) -> u64 {
    let clients = Clients::default();
    let servers: Vec<_> = (0..SERVERS).map(|at| serve(at, preset, &clients)).collect();
    let connect = |server: &RunningServer| {
        let builder = Client::builder().preset(preset).deadline(DEADLINE);
        builder.connect(&server.address().to_string()).unwrap()
    };
    clients.set(servers.iter().map(connect).collect()).unwrap();
    let end = Instant::now() + Duration::from_secs(number("DUNLIN_SECONDS", 1) as u64);
    let outside: Vec<Client> = servers.iter().map(connect).collect();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let outside = outside.clone();
            tokio::spawn(async move {
                let mut calls = 0;
                let mut path = task.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                while calls == 0 || Instant::now() < end {
                    path = path.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(task);
                    let (at, hops) = (
                        (path >> 60) as usize % SERVERS,
                        (path >> 50) as u8 % (most_hops + 1),
                    );
                    let asked = outside[at].call_async(HOP, &request(hops, path));
                    assert_eq!(asked.await.unwrap()[..], walk(at, hops, path));
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.unwrap();
    }
    for client in &outside {
        let answer = client.call_async(OWN, b"").await.unwrap();
        assert_eq!(&answer[..], preset.name().as_bytes());
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_call_each_other_in_circles_never_stand_still() {
    let few = [Preset::Fasst, Preset::Erpc, Preset::Herd, Preset::ScaleRpc];
    let many = [Preset::Auto, Preset::Plain, Preset::Flock];
    let many = many.map(|preset| (preset, 24, 12));
    for (preset, tasks, most_hops) in many.into_iter().chain(few.map(|preset| (preset, 4, 2))) {
        let calls = circles(preset, tasks, most_hops).await;
        println!("{preset}: {calls} calls of up to {most_hops} hops, each answered");
    }
}
