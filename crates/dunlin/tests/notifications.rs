//! Writers of a region tell its owner.

mod common;

use std::time::Duration;

use common::eventually;
use dunlin::{
    CallError, CallableClients, Client, Grant, Notification, Preset, Region, Rights, RunningServer,
    Secret, Server, Who,
};

const LONG: Duration = Duration::from_secs(20);
/// Where a long write is, at an address that is no multiple of anything.
const LONG_AT: u64 = 200 * 512 + 7;
/// The handler that takes them: the highest ids are the server's own.
const NOTIFY: u16 = u16::MAX - 6;

fn serve(region: &Region) -> RunningServer {
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    server.region(region).serve().unwrap()
}

fn told(event: &Notification) -> (u64, u64, u32) {
    (event.offset, event.length, event.value)
}

fn stored(region: &Region, event: &Notification) -> Vec<u8> {
    let mut bytes = vec![0; event.length as usize];
    region
        .memory()
        .unwrap()
        .read(event.offset as usize, &mut bytes);
    bytes
}

#[test]
fn an_owner_hears_of_each_write_when_its_bytes_are_there() {
    let region = Region::new("table", 1 << 20).writable().notified(64);
    let server = serve(&region);
    let events = region.notifications().unwrap().clone();
    for (device, preset) in [
        ("shm", Preset::Auto),
        ("shm", Preset::Flock),
        ("roce", Preset::Plain),
        ("roce", Preset::Flor),
    ] {
        let builder = Client::builder().device(device).preset(preset);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let remote = client.attach("table").unwrap();
        let writer = std::thread::spawn(move || {
            for value in 0..200_u32 {
                let bytes = value.to_le_bytes().repeat(1 + value as usize % 50);
                let offset = u64::from(value) * 512;
                // A full queue is emptied by the owner, and nothing is lost meanwhile.
                remote.write(offset, &bytes).unwrap();
                while let Err(error) = remote.notify(offset, bytes.len() as u64, value) {
                    assert!(matches!(error, CallError::Overloaded(_)), "{error}");
                    std::thread::yield_now();
                }
            }
            // Behind all others, which the owner may not have read yet.
            remote.transfer().put(LONG_AT, &[9; 300_000]).unwrap();
            remote.notify(LONG_AT, 300_000, 200).unwrap();
        });
        for value in 0..=200 {
            let event = events.wait(LONG).expect("one comes");
            assert_eq!(event.value, value, "{device} {preset}");
            let bytes = stored(&region, &event);
            match value {
                200 => assert!(bytes == [9; 300_000]),
                _ => assert_eq!(bytes, value.to_le_bytes().repeat(1 + value as usize % 50)),
            }
        }
        writer.join().unwrap();
        assert_eq!(events.poll(), None);
    }
}

#[test]
fn tasks_write_and_wait_for_it() {
    let region = Region::new("table", 4096).writable().notified(4);
    let server = serve(&region);
    let client = Client::connect(&server.address().to_string()).unwrap();
    let remote = client.attach("table").unwrap();
    let events = region.notifications().unwrap();
    futures_executor::block_on(async {
        let next = events.next();
        remote.write_notify_async(16, b"async", 3).await.unwrap();
        let event = next.await;
        assert_eq!(told(&event), (16, 5, 3));
        assert_eq!(stored(&region, &event), b"async");
        remote.notify_async(0, 0, 4).await.unwrap();
        assert_eq!(told(&events.next().await), (0, 0, 4));
    });
    // Who waits is woken.
    let waits = events.clone();
    let waiting = std::thread::spawn(move || waits.wait(LONG));
    remote.write_notify(1, b"x", 5).unwrap();
    assert_eq!(waiting.join().unwrap().map(|event| event.value), Some(5));
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let region = Region::new("table", 64).writable().notified(2);
    let server = serve(&region);
    let client = Client::connect(&server.address().to_string()).unwrap();
    let remote = client.attach("table").unwrap();
    let events = region.notifications().unwrap();
    remote.write_notify(0, b"1", 1).unwrap();
    remote.write_notify(1, b"2", 2).unwrap();
    let full = remote.write_notify(2, b"3", 3).unwrap_err();
    assert!(matches!(full, CallError::Overloaded(_)), "{full}");
    assert!(full.to_string().contains("'table' has 2 pending"), "{full}");
    assert_eq!(events.refused(), 1);
    // Its bytes are there, and it can be said again.
    assert_eq!(&remote.read(0, 3).unwrap()[..], b"123");
    assert_eq!(events.poll().map(|event| event.value), Some(1));
    remote.notify(2, 1, 3).unwrap();
    let rest = [events.poll().unwrap().value, events.poll().unwrap().value];
    assert_eq!((rest, events.poll()), ([2, 3], None));
}

#[test]
fn what_cannot_be_is_refused_and_no_event() {
    let region = Region::new("table", 64).writable().notified(8);
    let shown = Region::new("shown", 64).notified(8);
    let quiet = Region::new("quiet", 64).writable();
    let secret = || Secret::new("a secret of some length").unwrap();
    let reader = Who::Anyone;
    let server = |rights: Grant| {
        Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .secret(secret())
            .rights(Rights::new().allow(reader.clone(), rights))
    };
    let connect = |server: &RunningServer| {
        let builder = Client::builder().secret(secret());
        builder.connect(&server.address().to_string()).unwrap()
    };
    let all = server(Grant::new().read("*").write("table").write("quiet"))
        .region(&region)
        .region(&shown)
        .region(&quiet)
        .serve()
        .unwrap();
    let client = connect(&all);
    let refused = client.attach("quiet").unwrap().notify(0, 1, 1).unwrap_err();
    assert!(matches!(&refused, CallError::UnknownRegion { name, .. } if name == "quiet"));
    assert!(
        refused.to_string().contains("not accept notifications"),
        "{refused}"
    );
    let refused = client.attach("shown").unwrap().notify(0, 1, 1).unwrap_err();
    assert!(matches!(refused, CallError::Forbidden { .. }), "{refused}");
    let table = client.attach("table").unwrap();
    let refused = table.notify(60, 5, 1).unwrap_err();
    assert!(
        matches!(refused, CallError::RegionBounds { .. }),
        "{refused}"
    );
    // Whoever does not look before it sends.
    for (offset, length) in [(60, 5_u64), (u64::MAX, 2), (0, u64::MAX)] {
        let notice = [
            &1_u32.to_le_bytes()[..],
            &u64::to_le_bytes(offset),
            &length.to_le_bytes(),
            b"table",
        ];
        let refused = client.call(NOTIFY, &notice.concat()).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("exceed the region of 64 bytes"),
            "{refused}"
        );
    }
    for garbage in [&b""[..], &[255; 19], &[255; 20], &[7; 4000]] {
        assert!(client.call(NOTIFY, garbage).is_err());
    }
    assert_eq!(region.notifications().unwrap().poll(), None);
    table.notify(63, 1, 9).unwrap();
    assert_eq!(
        told(&region.notifications().unwrap().poll().unwrap()),
        (63, 1, 9)
    );

    // Who may only read has nothing to tell.
    let region = Region::new("table", 64).writable().notified(8);
    let reads = server(Grant::new().read("table"))
        .region(&region)
        .serve()
        .unwrap();
    let remote = connect(&reads).attach("table").unwrap();
    let refused = remote.notify(0, 1, 1).unwrap_err();
    assert!(matches!(&refused, CallError::Forbidden { why } if why.contains("'table'")));
    assert_eq!(region.notifications().unwrap().poll(), None);
}

#[test]
fn a_server_writes_into_its_clients_and_they_hear_of_it() {
    let list = CallableClients::new(2);
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = server.callable_clients(&list).serve().unwrap();
    let joined = ["shm", "roce"].map(|device| {
        let prices = Region::new("prices", 4096).writable().notified(16);
        let builder = Client::builder().device(device);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let serving = Server::unbound().region(&prices).serve_to(&client).unwrap();
        (prices, serving, client)
    });
    eventually("both are there", || list.len() == 2);
    for (value, client) in (1..).zip(list.list()) {
        let prices = client.client().attach("prices").unwrap();
        prices
            .write_notify(8, &u64::from(value).to_le_bytes(), value)
            .unwrap();
    }
    for (value, (prices, ..)) in (1..).zip(&joined) {
        let event = prices.notifications().unwrap().wait(LONG).unwrap();
        assert_eq!(told(&event), (8, 8, value));
        assert_eq!(stored(prices, &event), u64::from(value).to_le_bytes());
    }
}
