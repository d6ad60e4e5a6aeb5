//! Clients that connect to the port and cannot prove their identity on the device: nothing is made for them, and
//! nothing is counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dunlin_bootstrap::{
    dial, Address, BootstrapError, Capability, DialConfig, HostId, OpenRequest, Reach,
};
use dunlin_rpc::{Client, HandlerId, Preset, RunningServer, Server};
use dunlin_shm::{ShmConfig, ShmDevice, ShmSharedReceiveQueue};
use dunlin_verbs::{Device, EndpointAddress, QueuePair, QueuePairConfig, ReceiveQueue, Transport};

const ECHO: HandlerId = 1;
/// Longer than anything takes on a machine that works at all.
const PATIENCE: Duration = Duration::from_secs(60);
const MOST: usize = 8;

fn server() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .device("shm")
        .max_connections(MOST)
        .serve()
        .unwrap()
}

/// What any process can claim that has read two files in `/proc`.
fn claim() -> DialConfig {
    let reach = Reach::SameHost(HostId::of_this_process().unwrap());
    let device = "shm".to_owned();
    DialConfig {
        capabilities: vec![Capability { device, reach }],
        timeout: PATIENCE,
        ..DialConfig::default()
    }
}

fn open(
    address: &Address,
    claim: &DialConfig,
    preset: Preset,
    endpoint: EndpointAddress,
) -> Result<(), BootstrapError> {
    let names = [
        "inlet-address",
        "inlet-key",
        "ring-canaries",
        "ring-in-order",
    ];
    let mut parameters: std::collections::BTreeMap<String, u64> =
        names.iter().map(|name| (name.to_string(), 1)).collect();
    parameters.insert("ring-lines".into(), 1024);
    parameters.insert("eager-bytes".into(), 1024);
    parameters.insert("max-message-bytes".into(), 1 << 20);
    let request = OpenRequest {
        device: String::new(),
        preset: preset.name().into(),
        endpoint,
        parameters,
    };
    dial(address, claim)?.open(request).map(drop)
}

/// A queue pair of a device.
fn queue_pair(device: &ShmDevice) -> dunlin_shm::ShmQueuePair {
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(16, None).unwrap();
    let config = QueuePairConfig {
        transport: Transport::ReliableConnection,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: 4,
        receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(4),
        segments: 1,
        inline_bytes: 64,
    };
    device.create_queue_pair(&domain, &config).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The call of an honest client, on a connection of its own.
fn good_call(address: &str) {
    let client = Client::builder().connect_timeout(PATIENCE).connect(address);
    let answer = client.unwrap().call(ECHO, b"hello").unwrap();
    assert_eq!(&*answer, b"hello");
}

/// Ends the hostile threads, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn claims_of_queue_pairs_that_are_not_there_use_up_nothing() {
    let server = server();
    let address = server.address();
    let good = address.to_string();
    good_call(&good);
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let real = queue_pair(&device).address();
    let forged = |change: fn(&mut EndpointAddress)| {
        let mut address = real;
        change(&mut address);
        address
    };
    let claims = [
        // A device that does not exist, an existing one with a queue pair that does not exist, and an existing one with
        // a guessed token.
        forged(|address| address.gid = [7; 16]),
        forged(|address| address.queue_pair ^= 1 << 12),
        forged(|address| address.token ^= 1),
    ];
    let (stop, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = descriptors();
    std::thread::scope(|scope| {
        let _end = End(&stop);
        for endpoint in claims {
            let (address, stop, refused) = (&address, &stop, &refused);
            scope.spawn(move || {
                for preset in Preset::ALL.iter().cycle() {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let error = open(address, &claim(), *preset, endpoint).unwrap_err();
                    let words = error.to_string();
                    let known = ["does not have such a queue pair", "cannot reach its device"];
                    assert!(known.iter().any(|one| words.contains(one)), "{words}");
                    refused.fetch_add(1, Relaxed);
                }
            });
        }
        // More than there is room for, if any of it were counted.
        while refused.load(Relaxed) < 20 * MOST as u64 {
            let connections = server.connections();
            assert!(connections <= 2, "{connections} connections");
            std::thread::sleep(Duration::from_millis(1));
        }
        (0..20).for_each(|_| good_call(&good));
    });
    // Some may stay: the other test has its own meanwhile. Those of the honest clients' last connections, and sockets
    // of the port, go a moment later.
    let began = std::time::Instant::now();
    loop {
        let left = descriptors();
        if left <= before + 64 {
            break;
        }
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{before} descriptors before, {left} after {waited:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn another_user_is_not_let_in_with_a_device_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let server = server();
    let address = server.address();
    let claim = claim();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Only of this thread and of those that it starts, including its device's.
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            let device = ShmDevice::open(ShmConfig::default()).unwrap();
            let pair = queue_pair(&device);
            for _ in 0..4 * MOST {
                let error = open(&address, &claim, Preset::Plain, pair.address()).unwrap_err();
                assert!(error.to_string().contains("another user"), "{error}");
            }
        });
    });
    assert_eq!(server.connections(), 0);
    (0..MOST).for_each(|_| good_call(&address.to_string()));
}
