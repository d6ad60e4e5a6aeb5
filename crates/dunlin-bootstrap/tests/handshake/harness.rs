//! A running acceptor, and the values that tests send to it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_bootstrap::wire::{self, ClientHello};
use dunlin_bootstrap::{
    dial, Acceptor, AcceptorConfig, Address, BootstrapError, Capability, Counts, DialConfig,
    HostId, OpenReply, OpenRequest, Peer, Reach, Refusal, Secret, StopHandle,
};
use dunlin_verbs::EndpointAddress;

/// Longer than anything takes on a machine that works at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn shm() -> Capability {
    let reach = Reach::SameHost(HostId::of_this_process().unwrap());
    Capability {
        device: "shm".into(),
        reach,
    }
}

pub(crate) fn network(device: &str) -> Capability {
    Capability {
        device: device.into(),
        reach: Reach::Network,
    }
}

pub(crate) fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text).unwrap())
}

pub(crate) fn endpoint(number: u32) -> EndpointAddress {
    EndpointAddress {
        gid: [7; 16],
        lid: 3,
        mtu_bytes: 4096,
        queue_pair: number,
        packet_sequence: 0x00ab_cdef,
        queue_key: 11,
        token: u64::MAX - 1,
    }
}

pub(crate) fn request() -> OpenRequest {
    OpenRequest {
        device: String::new(),
        preset: "plain".into(),
        endpoint: endpoint(17),
        parameters: BTreeMap::from([("ring_bytes".into(), 1 << 20), ("ring_key".into(), 9)]),
    }
}

/// The parameters back, with one more; the queue pair's number plus one.
pub(crate) fn echo(request: OpenRequest, _: Peer) -> Result<OpenReply, Refusal> {
    let mut parameters = request.parameters;
    parameters.insert(request.device, 1);
    Ok(OpenReply {
        endpoint: endpoint(request.endpoint.queue_pair + 1),
        parameters,
    })
}

pub(crate) fn serving() -> AcceptorConfig {
    let capabilities = vec![shm()];
    AcceptorConfig {
        capabilities,
        handshake_timeout: PATIENCE,
        ..AcceptorConfig::default()
    }
}

pub(crate) fn dialing() -> DialConfig {
    DialConfig {
        capabilities: vec![shm()],
        timeout: PATIENCE,
        ..DialConfig::default()
    }
}

pub(crate) struct Server {
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) stop: StopHandle,
    thread: Option<JoinHandle<Result<(), BootstrapError>>>,
}

impl Server {
    pub(crate) fn new(config: AcceptorConfig) -> Self {
        Self::opening(config, echo)
    }

    pub(crate) fn opening(
        config: AcceptorConfig,
        on_open: impl Fn(OpenRequest, Peer) -> Result<OpenReply, Refusal> + Send + Sync + 'static,
    ) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let acceptor = Arc::new(Acceptor::bind(&any, config).unwrap());
        let stop = StopHandle::new().unwrap();
        let (ours, handle) = (Arc::clone(&acceptor), stop.clone());
        let thread = Some(thread::spawn(move || ours.run(&handle, on_open)));
        Self {
            acceptor,
            stop,
            thread,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.acceptor.local_address()
    }

    /// The whole handshake.
    pub(crate) fn open(&self, config: &DialConfig) -> Result<OpenReply, BootstrapError> {
        dial(self.address(), config)?.open(request())
    }

    /// A TCP connection and nothing on it.
    pub(crate) fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect((self.address().host(), self.address().port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Waits until the counters are as they should be.
    pub(crate) fn wait_for(&self, what: &str, holds: impl Fn(&Counts) -> bool) {
        let start = Instant::now();
        while !holds(&self.acceptor.counters()) {
            let counts = self.acceptor.counters();
            assert!(start.elapsed() < PATIENCE, "never came: {what}; {counts:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A client that knows what to do is still served.
    pub(crate) fn is_well(&self, config: &DialConfig) {
        let reply = self.open(config).unwrap();
        assert_eq!(reply.endpoint, endpoint(18));
    }

    pub(crate) fn stop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = u32::try_from(frame.len()).unwrap();
    stream.write_all(&length.to_le_bytes()).unwrap();
    stream.write_all(frame).unwrap();
}

pub(crate) fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    frame
}

/// The other side has closed the connection, with or without a reset.
pub(crate) fn is_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0; 16]) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("still open: {other:?}"),
    }
}

pub(crate) fn client_hello() -> Vec<u8> {
    let hello = ClientHello {
        nonce: [1; 32],
        has_secret: false,
        capabilities: vec![shm()],
        preference: None,
    };
    wire::encode_client_hello(&hello).unwrap()
}
