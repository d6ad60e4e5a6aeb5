//! Transfers of any length between memory of a client's and a region of a server's.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::future::Future;
use std::time::{Duration, Instant};

use common::{pattern, ECHO};
use dunlin::{CallError, Client, Preset, Region, RunningServer, Server};
use process::{listen, role, say, Other};
use rustix::process::{kill_process, Pid, Signal};

const BYTES: usize = 3 << 20;

fn serve(region: &Region) -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .region(region)
        .serve()
        .unwrap()
}

fn connect(server: &RunningServer, preset: Preset) -> Client {
    let address = server.address().to_string();
    Client::builder().preset(preset).connect(&address).unwrap()
}

#[test]
fn all_bytes_arrive_and_come_back() {
    let region = Region::new("memory", BYTES).writable();
    let server = serve(&region);
    for preset in [Preset::Auto, Preset::Plain, Preset::Flock] {
        let client = connect(&server, preset);
        let remote = client.attach("memory").unwrap();
        for (seed, (length, piece, lanes)) in [
            (0, 4096, 1),
            (1, 4096, 3),
            (4095, 4096, 1),
            (4097, 4096, 2),
            (100_003, 1000, 4),
            (BYTES - 7, 128 << 10, 1),
            (BYTES - 7, 64 << 10, 3),
        ]
        .into_iter()
        .enumerate()
        {
            let sent = pattern(length, seed as u64);
            let mut reports = Vec::new();
            let mut transfer = remote.transfer().lanes(lanes).piece_bytes(piece);
            transfer.put(7, &vec![0; length]).unwrap();
            let mut transfer = transfer.progress(|arrived| reports.push(arrived));
            transfer.put(7, &sent).unwrap();
            drop(transfer);
            assert!(reports.is_sorted_by(|one, next| one < next), "{reports:?}");
            assert_eq!(reports.last().copied().unwrap_or(0), length as u64);
            let mut stored = vec![0; length];
            region.memory().unwrap().read(7, &mut stored);
            assert!(stored == sent, "{preset}: {length} bytes were put");
            let mut back = vec![0; length];
            let mut transfer = remote.transfer().lanes(lanes).piece_bytes(piece);
            transfer.get(7, &mut back).unwrap();
            assert!(back == sent, "{preset}: {length} bytes were got");
        }
        // Calls go on meanwhile and after it.
        assert_eq!(&*client.call(ECHO, b"after").unwrap(), b"after");
    }
}

/// A client of a device, whatever else the server has.
fn connect_over(server: &RunningServer, device: &str) -> Client {
    let builder = Client::builder().device(device).preset(Preset::Plain);
    builder.connect(&server.address().to_string()).unwrap()
}

#[test]
fn all_devices_of_a_server_reach_a_region_and_a_transfer_may_use_several() {
    let region = Region::new("memory", BYTES).writable().atomic();
    let server = serve(&region);
    let clients = ["roce", "shm"].map(|device| connect_over(&server, device));
    let remotes = clients
        .each_ref()
        .map(|client| client.attach("memory").unwrap());
    for (index, remote) in remotes.iter().enumerate() {
        remote.write(16 * index as u64, b"written").unwrap();
        assert_eq!(remote.fetch_add(64, 1).unwrap(), index as u64);
    }
    for remote in &remotes {
        assert_eq!(&remote.read(0, 7).unwrap()[..], b"written");
        assert_eq!(&remote.read(16, 7).unwrap()[..], b"written");
    }
    let before = clients.each_ref().map(|client| client.info().device);
    assert_eq!(before, ["roce", "shm"]);
    let mut transfer = remotes[0].transfer().lanes(2).piece_bytes(10_000);
    transfer = transfer.also_by(&remotes[1]).unwrap();
    let sent = pattern(BYTES, 3);
    transfer.put(0, &sent).unwrap();
    let mut stored = vec![0; BYTES];
    region.memory().unwrap().read(0, &mut stored);
    assert!(stored == sent);
    let mut back = vec![0; BYTES];
    transfer.get(0, &mut back).unwrap();
    assert!(back == sent);
}

#[test]
fn registered_memory_is_put_and_got_where_it_stands() {
    let region = Region::new("memory", BYTES).writable();
    let server = serve(&region);
    for (device, preset) in [
        ("shm", Preset::Plain),
        ("roce", Preset::Plain),
        ("roce", Preset::Auto),
        ("roce", Preset::Flock),
    ] {
        let builder = Client::builder().device(device).preset(preset);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let remote = client.attach("memory").unwrap();
        let mut transfer = remote.transfer().lanes(2).piece_bytes(50_000);
        let mut buffer = transfer.buffer(BYTES).unwrap();
        let sent = pattern(BYTES, 5);
        buffer.bytes_mut().unwrap().copy_from_slice(&sent);
        transfer.put_from(3, &buffer, 10..BYTES - 10).unwrap();
        let mut stored = vec![0; BYTES - 20];
        region.memory().unwrap().read(3, &mut stored);
        assert!(stored == sent[10..BYTES - 10], "{device} {preset}");
        // One buffer may serve another transfer, and its memory is free again after each.
        let mut other = remote.transfer().piece_bytes(20_000);
        buffer.bytes_mut().unwrap().fill(0);
        other.get_into(3, &mut buffer, 100..200_100).unwrap();
        let bytes = buffer.bytes().unwrap();
        assert!(
            bytes[100..200_100] == sent[10..200_010],
            "{device} {preset}"
        );
        assert!(bytes[..100]
            .iter()
            .chain(&bytes[200_100..])
            .all(|byte| *byte == 0));
        drop((transfer, other, client));
        assert!(buffer.bytes().unwrap()[100..200_100] == sent[10..200_010]);
    }
}

#[test]
fn registered_memory_goes_over_two_devices_of_which_one_has_it() {
    let region = Region::new("memory", BYTES).writable();
    let server = serve(&region);
    let clients = ["shm", "roce"].map(|device| connect_over(&server, device));
    let remotes = clients
        .each_ref()
        .map(|client| client.attach("memory").unwrap());
    // What `shm` has allocated `roce` can register, and not the other way: there `shm` copies.
    for (first, second) in [(0, 1), (1, 0)] {
        let mut transfer = remotes[first].transfer().lanes(2).piece_bytes(10_000);
        transfer = transfer.also_by(&remotes[second]).unwrap();
        let mut buffer = transfer.buffer(BYTES).unwrap();
        let sent = pattern(BYTES, first as u64);
        buffer.bytes_mut().unwrap().copy_from_slice(&sent);
        transfer.put_from(0, &buffer, 0..BYTES).unwrap();
        let mut stored = vec![0; BYTES];
        region.memory().unwrap().read(0, &mut stored);
        assert!(stored == sent);
        buffer.bytes_mut().unwrap().fill(0);
        transfer.get_into(0, &mut buffer, 0..BYTES).unwrap();
        assert!(buffer.bytes().unwrap() == sent);
    }
}

#[test]
fn tasks_transfer_as_threads_do() {
    let region = Region::new("memory", BYTES).writable();
    let server = serve(&region);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    for device in ["shm", "roce"] {
        let client = connect_over(&server, device);
        let remote = client.attach("memory").unwrap();
        let sent = pattern(BYTES, 9);
        let moved = async {
            let mut transfer = remote.transfer().lanes(2).piece_bytes(10_000);
            transfer.put_async(0, &sent).await.unwrap();
            let mut back = vec![0; BYTES];
            transfer.get_async(0, &mut back).await.unwrap();
            assert!(back == sent);
            let mut buffer = transfer.buffer(BYTES).unwrap();
            transfer
                .get_into_async(0, &mut buffer, 0..BYTES)
                .await
                .unwrap();
            assert!(buffer.bytes().unwrap() == sent);
            buffer.bytes_mut().unwrap().reverse();
            transfer.put_from_async(0, &buffer, 0..BYTES).await.unwrap();
            // One that is given up under way leaves a transfer that goes on.
            let mut waits = std::pin::pin!(transfer.put_async(0, &sent));
            let polled =
                std::future::poll_fn(|task| std::task::Poll::Ready(waits.as_mut().poll(task)));
            assert!(polled.await.is_pending());
        };
        // Another task has its turns meanwhile.
        let turns = std::cell::Cell::new(0);
        let other = async {
            loop {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = moved => {}
                () = other => {}
            }
        });
        assert!(turns.get() > 3, "{} turns", turns.get());
        let mut stored = vec![0; BYTES];
        let mut transfer = remote.transfer();
        transfer.put(0, &sent).unwrap();
        region.memory().unwrap().read(0, &mut stored);
        assert!(stored == sent);
    }
}

#[test]
#[should_panic(expected = "range 0..101 exceeds the buffer of 100 bytes")]
fn a_part_stays_in_its_buffer() {
    let server = serve(&Region::new("memory", BYTES).writable());
    let client = connect(&server, Preset::Plain);
    let remote = client.attach("memory").unwrap();
    let mut transfer = remote.transfer();
    let buffer = transfer.buffer(100).unwrap();
    let _ = transfer.put_from(0, &buffer, 0..101);
}

#[test]
fn other_memory_is_no_second_way() {
    let server = serve(&Region::new("memory", BYTES));
    let other = serve(&Region::new("memory", BYTES + 8));
    let clients = [&server, &other].map(|server| connect(server, Preset::Plain));
    let remotes = clients
        .each_ref()
        .map(|client| client.attach("memory").unwrap());
    let error = remotes[0].transfer().also_by(&remotes[1]).unwrap_err();
    let words =
        "the region 'memory' (3145736 bytes) is not 'memory' (3145728 bytes), which is being transferred: attach that \
         region over another device";
    assert_eq!(error.to_string(), words);
}

#[test]
fn what_does_not_fit_or_is_not_granted_is_refused_whole() {
    let region = Region::new("memory", BYTES);
    let server = serve(&region);
    let client = connect(&server, Preset::Plain);
    let remote = client.attach("memory").unwrap();
    let mut into = vec![0; BYTES];
    let error = remote.transfer().get(1, &mut into).unwrap_err();
    assert_eq!((error.arrived, error.total), (0, BYTES as u64));
    assert!(
        matches!(error.cause, CallError::RegionBounds { .. }),
        "{error}"
    );
    let error = remote.transfer().put(0, &into).unwrap_err();
    assert_eq!(error.arrived, 0);
    assert!(
        matches!(error.cause, CallError::RegionRight { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("0 of 3145728 bytes arrived: "),
        "{error}"
    );
    remote.transfer().get(0, &mut into).unwrap();
}

/// A server that is killed in the middle: the error says how much had arrived.
#[test]
fn a_server_that_dies_ends_a_transfer() {
    if role().is_some() {
        let server = serve(&Region::new("memory", BYTES).writable());
        say(&server.address().to_string());
        while listen().is_some() {}
        return;
    }
    for lanes in [1, 3] {
        let mut server = Other::start("a_server_that_dies_ends_a_transfer", "server", "");
        let address = server.hear();
        let client = Client::builder()
            .preset(Preset::Plain)
            .connect(&address)
            .unwrap();
        let remote = client.attach("memory").unwrap();
        let sent = pattern(BYTES, 1);
        let mut reported = 0;
        let mut transfer = remote.transfer().lanes(lanes).piece_bytes(4096);
        // All connections have the region mapped: none is slow at its beginning, while the others go on.
        transfer.put(0, &sent[..64 << 10]).unwrap();
        let error = transfer
            .progress(|arrived| {
                reported = arrived;
                if arrived > 1 << 20 {
                    server.kill();
                    // It is known here, too, before the next piece is sent.
                    while client.call(ECHO, b"there?").is_ok() {}
                }
            })
            .put(0, &sent)
            .unwrap_err();
        assert_eq!(error.total, BYTES as u64);
        assert!(
            error.arrived > 1 << 20 && error.arrived < error.total,
            "{error}"
        );
        assert!(error.arrived >= reported, "{reported}: {error}");
        assert!(
            matches!(error.cause, CallError::ConnectionLost { .. }),
            "{error}"
        );
    }
}

/// A server that stands still: memory that its READs may still fill is lent to nobody, and comes back.
#[test]
fn memory_is_lent_out_when_nothing_fills_it_any_more() {
    if role().is_some() {
        let server = serve(&Region::new("memory", BYTES).writable());
        say(&server.address().to_string());
        while listen().is_some() {}
        return;
    }
    for preset in [Preset::Plain, Preset::Flock] {
        let name = "memory_is_lent_out_when_nothing_fills_it_any_more";
        let mut server = Other::start(name, "server", "");
        let address = server.hear();
        // A thread keeps its place on shared connections until it ends.
        let user = std::thread::spawn(move || {
            let builder = Client::builder().device("roce").preset(preset);
            let client = builder.connect(&address).unwrap();
            let remote = client.attach("memory").unwrap();
            let mut transfer = remote.transfer();
            let mut buffer = transfer.buffer(BYTES).unwrap();
            transfer.get_into(0, &mut buffer, 0..BYTES).unwrap();
            drop(transfer);
            kill_process(Pid::from_child(&server.child), Signal::STOP).unwrap();
            while !server.stands_still() {
                std::thread::yield_now();
            }
            let remote = remote.within(Duration::from_millis(200));
            let mut transfer = remote.transfer();
            let error = transfer.get_into(0, &mut buffer, 0..BYTES).unwrap_err();
            assert!(error.arrived < error.total, "{preset}: {error}");
            if let Err(error) = buffer.bytes() {
                assert!(matches!(error, CallError::BufferInUse), "{error}");
                let again = transfer.get_into(0, &mut buffer, 0..BYTES).unwrap_err();
                assert!(matches!(again.cause, CallError::BufferInUse), "{again}");
            }
            (buffer, server)
        });
        let (mut buffer, mut server) = user.join().unwrap();
        // Threads of the client that look after shared connections end behind it.
        let began = Instant::now();
        while buffer.bytes_mut().is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "{preset}");
            std::thread::yield_now();
        }
        server.kill();
    }
}
