//! Memory that a server grants, read and written by its clients alone.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use common::{eventually, pattern, ECHO};
use dunlin::{CallError, Client, Preset, Region, RemoteRegion, RunningServer, Server};
use dunlin_verbs::thread;
use process::{listen, role, say, Other};

/// Every way of sharing that there is.
const PRESETS: [Preset; 5] = [
    Preset::Plain,
    Preset::Flock,
    Preset::Spinlock2,
    Preset::FlockNoCoalescing,
    Preset::FlockNoScheduling,
];
const TABLE_BYTES: usize = 1 << 20;

fn table() -> Region {
    Region::new("table", TABLE_BYTES).writable().atomic()
}

fn serve(regions: &[&Region]) -> RunningServer {
    let mut server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()));
    for region in regions {
        server = server.region(region);
    }
    server.serve().unwrap()
}

fn connect(address: &str, preset: Preset) -> Client {
    Client::builder()
        .preset(preset)
        .lanes(2)
        .connect(address)
        .unwrap()
}

/// A number of the server's own view of a region.
fn number(region: &Region, offset: usize) -> u64 {
    let memory = region.memory().unwrap();
    memory.atomic_u64(offset).load(Ordering::SeqCst)
}

/// Counts in the first word, and writes and reads in a part of the region that is this one's own.
fn load(client: &Client, region: &RemoteRegion, part: u64, rounds: u64) {
    let start = 4096 + part * 32 * 1024;
    for round in 0..rounds {
        region.fetch_add(0, 1).unwrap();
        let size = [1, 8, 64, 65, 512, 513, 20_000][(round % 7) as usize];
        let bytes = pattern(size, part << 32 | round);
        region.write(start, &bytes).unwrap();
        assert_eq!(*region.read(start, size).unwrap(), *bytes);
        // Calls go the same way meanwhile.
        let short = &bytes[..size.min(3000)];
        assert_eq!(*client.call(ECHO, short).unwrap(), *short);
        // A word that only this one changes: the exchange succeeds.
        let word = start + 24 * 1024;
        assert_eq!(
            region.compare_and_swap(word, round, round + 1).unwrap(),
            round
        );
        assert_eq!(
            region.compare_and_swap(word, round, 0).unwrap(),
            round + 1,
            "nothing is replaced"
        );
    }
}

#[test]
fn threads_of_every_preset_count_and_copy() {
    for preset in PRESETS {
        println!("{preset}");
        let table = table();
        let server = serve(&[&table]);
        let client = connect(&server.address().to_string(), preset);
        let region = client.attach("table").unwrap();
        assert_eq!((region.name(), region.len()), ("table", TABLE_BYTES as u64));
        std::thread::scope(|scope| {
            for part in 0..8 {
                let (client, region) = (&client, &region);
                scope.spawn(move || load(client, region, part, 40));
            }
        });
        assert_eq!(number(&table, 0), 8 * 40);
        assert_eq!(server.statistics().violations, 0);
        assert!(server.shutdown());
    }
}

#[test]
fn many_are_out_at_once() {
    for preset in [Preset::Plain, Preset::Flock] {
        let table = table();
        let server = serve(&[&table]);
        let client = connect(&server.address().to_string(), preset);
        let region = client.attach("table").unwrap();
        // A batch of calls and operations; more than may be out together.
        let mut batch = client.batch();
        for _ in 0..300 {
            batch = batch.fetch_add(&region, 8, 1).call(ECHO, b"and a call");
        }
        let results = batch.send().unwrap();
        let seen: HashSet<u64> = results
            .iter()
            .step_by(2)
            .map(|result| u64::from_ne_bytes(result.as_ref().unwrap()[..].try_into().unwrap()))
            .collect();
        assert_eq!(seen, (0..300).collect());
        assert!(results
            .iter()
            .skip(1)
            .step_by(2)
            .all(|r| **r.as_ref().unwrap() == *b"and a call"));
        // A pipeline.
        let mut pipeline = client.pipeline().unwrap();
        let (mut sent, mut seen) = (0, HashSet::new());
        while seen.len() < 2000 {
            while sent < 2000 && pipeline.fetch_add(&region, 16, 1, sent).unwrap() {
                sent += 1;
            }
            let taken = pipeline.wait(|_, old| {
                assert!(seen.insert(u64::from_ne_bytes(old.unwrap().try_into().unwrap())));
            });
            taken.unwrap();
        }
        assert_eq!(number(&table, 16), 2000);
        assert!(pipeline.write(&region, 64, b"written", 1).unwrap());
        while pipeline.outstanding() > 0 {
            pipeline
                .wait(|_, end| assert!(end.unwrap().is_empty()))
                .unwrap();
        }
        assert!(pipeline.read(&region, 64, 7, 2).unwrap());
        while pipeline.outstanding() > 0 {
            pipeline
                .wait(|tag, bytes| assert_eq!((tag, bytes.unwrap()), (2, &b"written"[..])))
                .unwrap();
        }
        if preset == Preset::Flock {
            let lanes = client.figures().unwrap().lanes;
            let operations: u64 = lanes.iter().map(|lane| lane.operations).sum();
            let lists: u64 = lanes.iter().map(|lane| lane.lists).sum();
            assert!(
                operations > lists,
                "operations go together: {operations} in {lists}"
            );
            let used = || {
                let lanes = server.senders().into_iter().flat_map(|sender| sender.lanes);
                lanes.count()
            };
            assert!(used() > 0);
        }
    }
}

#[test]
fn futures_of_operations() {
    for preset in [Preset::Plain, Preset::Flock] {
        let table = table();
        let server = serve(&[&table]);
        let client = connect(&server.address().to_string(), preset);
        let region = client.attach("table").unwrap();
        let adding: Vec<_> = (0..100).map(|_| region.fetch_add_async(0, 2)).collect();
        let call = client.call_async(ECHO, b"between");
        for future in adding {
            assert_eq!(thread::block_on(future).unwrap().len(), 8);
        }
        assert_eq!(*thread::block_on(call).unwrap(), *b"between");
        assert_eq!(number(&table, 0), 200);
        let bytes = pattern(10_000, 3);
        thread::block_on(region.write_async(4096, &bytes)).unwrap();
        assert_eq!(
            *thread::block_on(region.read_async(4096, 10_000)).unwrap(),
            *bytes
        );
        let old = thread::block_on(region.compare_and_swap_async(0, 200, 1)).unwrap();
        assert_eq!(*old, 200u64.to_ne_bytes());
        assert_eq!(number(&table, 0), 1);
        let refused = thread::block_on(region.read_async(TABLE_BYTES as u64, 1));
        assert!(matches!(refused, Err(CallError::RegionBounds { .. })));
    }
}

#[test]
fn what_was_not_granted_is_refused() {
    let table = table();
    let notes = Region::new("notes", 100);
    let server = serve(&[&table, &notes]);
    let mut clients = Vec::new();
    for preset in [Preset::Plain, Preset::Flock] {
        let client = connect(&server.address().to_string(), preset);
        let unknown = client.attach("tables");
        assert!(
            matches!(&unknown, Err(CallError::UnknownRegion { name, .. }) if name == "tables"),
            "{unknown:?}"
        );
        assert!(matches!(
            client.attach(""),
            Err(CallError::UnknownRegion { .. })
        ));
        let long = client.attach(&"x".repeat(201));
        assert!(matches!(long, Err(CallError::TooLong { limit: 200, .. })));
        let region = client.attach("table").unwrap();
        let end = TABLE_BYTES as u64;
        for (offset, length) in [
            (end, 1),
            (end - 1, 2),
            (u64::MAX, 1),
            (u64::MAX - 7, 8),
            (0, TABLE_BYTES + 1),
        ] {
            let error = region.read(offset, length).unwrap_err();
            assert!(matches!(error, CallError::RegionBounds { .. }), "{error}");
            assert!(region.write(offset, &vec![0; length]).is_err());
        }
        assert!(region.fetch_add(end - 4, 1).is_err());
        assert!(region.read(end, 0).unwrap().is_empty());
        let error = region.fetch_add(4, 1).unwrap_err();
        assert!(matches!(
            error,
            CallError::RegionAlignment { offset: 4, .. }
        ));
        let notes = client.attach("notes").unwrap();
        assert_eq!(*notes.read(0, 100).unwrap(), [0; 100]);
        for refused in [
            notes.write(0, b"x").unwrap_err(),
            notes.fetch_add(0, 1).map(drop).unwrap_err(),
            notes.compare_and_swap(0, 0, 1).map(drop).unwrap_err(),
        ] {
            assert!(
                matches!(refused, CallError::RegionRight { .. }),
                "{refused}"
            );
        }
        // None of that has cost the connection anything.
        assert_eq!(region.fetch_add(0, 0).unwrap(), 0);
        assert_eq!(*client.call(ECHO, b"still").unwrap(), *b"still");
        clients.push(client);
    }
    assert_eq!(server.statistics().closed, 0);
    assert_eq!(number(&table, 0), 0);
}

#[test]
fn regions_have_names_and_lengths_and_one_server() {
    let bind = || Server::bind("dunlin://127.0.0.1:0").unwrap();
    let words = |error: dunlin::ServeError| error.to_string();
    let error = bind().region(&Region::new("", 8)).serve();
    assert!(words(error.unwrap_err()).contains("name"));
    let error = bind().region(&Region::new("none", 0)).serve();
    assert!(words(error.unwrap_err()).contains("0 bytes"));
    let twice = Region::new("twice", 8);
    let error = bind()
        .region(&twice)
        .region(&Region::new("twice", 9))
        .serve();
    assert!(words(error.unwrap_err()).contains("duplicate region"));
    assert!(twice.memory().is_none());
    let server = bind().region(&twice).serve().unwrap();
    let error = bind().region(&twice).serve();
    assert!(words(error.unwrap_err()).contains("another server"));
    drop(server);
}

#[test]
fn a_region_ends_with_its_server_and_comes_back_with_the_next() {
    for preset in [Preset::Plain, Preset::Flock] {
        let first = table();
        let server = serve(&[&first]);
        let address = server.address().to_string();
        let client = connect(&address, preset);
        let region = client.attach("table").unwrap();
        region.write(0, &7u64.to_ne_bytes()).unwrap();
        drop(server);
        eventually("the region is gone", || region.write(0, &[0; 8]).is_err());
        let reached = std::iter::repeat_with(|| region.fetch_add(0, 1)).take(20);
        assert_eq!(reached.filter(Result::is_ok).count(), 0);
        // What the clients wrote before is there.
        assert!(number(&first, 0) == 7 || number(&first, 0) == 0);
        let second = table();
        let _server = Server::bind(&address)
            .unwrap()
            .region(&second)
            .serve()
            .unwrap();
        eventually("the next server's is found", || {
            region.fetch_add(0, 1).is_ok()
        });
        assert!(number(&second, 0) >= 1);
    }
}

fn other_process(role: &str, argument: &str) {
    match role {
        "server" => {
            let table = table();
            let server = serve(&[&table]);
            say(&server.address().to_string());
            while let Some(line) = listen() {
                if line == "count" {
                    say(&number(&table, 0).to_string());
                }
            }
        }
        "client" => {
            let (address, preset) = argument.split_once(' ').unwrap();
            let client = connect(address, preset.parse().unwrap());
            let region = client.attach("table").unwrap();
            let part: u64 = listen().unwrap().parse().unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (client, region) = (&client, &region);
                    scope.spawn(move || load(client, region, part * 2 + thread, 60));
                }
            });
            say("done");
            // Until the server is gone: every operation ends, once.
            let (mut well, mut badly) = (0u64, 0u64);
            while badly == 0 {
                match region.fetch_add(8, 1) {
                    Ok(old) => {
                        assert!(old >= well, "no answer comes twice");
                        well += 1;
                    }
                    Err(CallError::ConnectionLost { .. } | CallError::Connect(_)) => badly += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            say("lost");
        }
        _ => unreachable!(),
    }
}

#[test]
fn among_processes() {
    if let Some((role, argument)) = role() {
        return other_process(&role, &argument);
    }
    for preset in [Preset::Plain, Preset::Flock] {
        let mut server = Other::start("among_processes", "server", "");
        let address = server.hear();
        let argument = format!("{address} {preset}");
        let mut clients: Vec<_> = (0..3)
            .map(|_| Other::start("among_processes", "client", &argument))
            .collect();
        for (part, client) in clients.iter_mut().enumerate() {
            client.say(&part.to_string());
        }
        for client in &mut clients {
            assert_eq!(client.hear(), "done");
        }
        server.say("count");
        assert_eq!(server.hear(), (3 * 2 * 60).to_string());
        server.kill();
        for client in &mut clients {
            assert_eq!(client.hear(), "lost");
        }
    }
}
