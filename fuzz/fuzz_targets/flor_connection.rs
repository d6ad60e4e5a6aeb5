//! Flor's connection against a peer that says anything: SENDs, WRITEs and acknowledgements of any bytes, in any order,
//! while messages are submitted and queue pairs fail. Each receive buffer comes back once, nothing is placed outside
//! its message, and a message is finished once.
#![no_main]

use std::collections::{HashSet, VecDeque};

use dunlin_flor::connection::{
    Action, Config, Connection, Delivery, Deployment, LateWrites, MessageId, Network, Received,
};
use dunlin_flor::number::GlobalNumber;
use dunlin_verbs::{EndpointAddress, RemoteAddress, RemoteKey, ENDPOINT_ADDRESS_BYTES};

/// More actions than this by one event are a loop.
const MOST_ACTIONS: usize = 100_000;

/// What drives the connection, and what it knows.
struct Driver {
    connection: Connection,
    now_ns: u64,
    /// Work requests that have not completed.
    posted: VecDeque<GlobalNumber>,
    /// Receive buffers that the connection has.
    held: HashSet<u64>,
    receives: u64,
    submitted: HashSet<MessageId>,
    /// Messages of the peer that wait for memory.
    asked: VecDeque<u32>,
    renewing: VecDeque<usize>,
    most_bytes: u64,
}

impl Driver {
    fn new(choice: u8) -> Self {
        let deployment = Deployment::ALL[usize::from(choice) % Deployment::ALL.len()];
        let late_writes = match choice / 64 {
            0 => LateWrites::Dropped,
            1 => LateWrites::AfterRepair {
                quarantine_ns: 1000,
            },
            _ => LateWrites::Always {
                quarantine_ns: 1000,
            },
        };
        let config = Config {
            late_writes,
            ..Config::DEFAULT
        };
        let modules = deployment
            .modules(&Network::DEFAULT)
            .expect("the paper's network");
        let connection = Connection::new(config, modules).expect("limits within their range");
        Self {
            most_bytes: connection.max_message_bytes(),
            connection,
            now_ns: 0,
            posted: VecDeque::new(),
            held: HashSet::new(),
            receives: 0,
            submitted: HashSet::new(),
            asked: VecDeque::new(),
            renewing: VecDeque::new(),
        }
    }

    fn receive(&mut self, choice: u8) -> Received {
        let receive = self.receives;
        self.receives += 1;
        self.held.insert(receive);
        Received {
            path: usize::from(choice) % Config::DEFAULT.paths,
            receive,
            arrived_ns: self.now_ns,
            marked: choice & 0x80 != 0,
        }
    }

    fn event(&mut self, kind: u8, choice: u8, bytes: &[u8]) {
        self.now_ns += u64::from(choice) << (kind / 16);
        match kind % 10 {
            0 => {
                let received = self.receive(choice);
                let payload = usize::from(choice) << 7;
                let all = bytes.len() + if kind & 0x40 == 0 { 0 } else { payload };
                let _ = self
                    .connection
                    .received_send(self.now_ns, received, bytes, all);
            }
            1 => {
                let received = self.receive(choice);
                let immediate = bytes
                    .first_chunk()
                    .map_or(0, |word| u32::from_le_bytes(*word));
                let length = usize::from(kind / 16) << 10;
                self.connection
                    .received_write(self.now_ns, received, immediate, length);
            }
            2 => drop(
                self.connection
                    .received_ack(self.now_ns, bytes, self.now_ns),
            ),
            3 => {
                let length = bytes
                    .first_chunk()
                    .map_or(0, |word| u32::from_le_bytes(*word));
                if let Ok(id) = self.connection.submit(self.now_ns, length, choice.into()) {
                    assert!(self.submitted.insert(id), "{id:?} was given twice");
                }
            }
            4 => {
                if let Some(global) = self.posted.pop_front() {
                    self.connection
                        .completed(self.now_ns, global, Some(self.now_ns));
                }
            }
            5 => {
                if let Some(global) = self.posted.pop_front() {
                    self.connection.completed(self.now_ns, global, None);
                }
            }
            6 => {
                if let Some(message) = self.asked.pop_front() {
                    match choice % 4 {
                        0 => self.connection.refuse(message),
                        _ => {
                            let place = RemoteAddress {
                                address: 1 << 20,
                                key: RemoteKey(9),
                            };
                            self.connection.provide(message, place);
                        }
                    }
                }
            }
            7 => {
                let path = usize::from(choice) % Config::DEFAULT.paths;
                self.connection.path_failed(self.now_ns, path);
            }
            8 => {
                if let Some(path) = self.renewing.pop_front() {
                    self.connection
                        .renewed(path, EndpointAddress::decode(&[0; ENDPOINT_ADDRESS_BYTES]));
                }
            }
            _ => self.connection.probe(),
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for step in 0.. {
            assert!(
                step < MOST_ACTIONS,
                "one event asks for actions without an end"
            );
            let Some(action) = self.connection.poll(self.now_ns) else {
                break;
            };
            match action {
                Action::Post(work) => self.posted.push_back(work.global),
                Action::Recycle(receive) | Action::Deliver(Delivery::Whole { receive, .. }) => {
                    assert!(
                        self.held.remove(&receive),
                        "buffer {receive} came back twice"
                    );
                }
                Action::Place {
                    receive,
                    offset,
                    bytes,
                    total,
                    ..
                } => {
                    assert!(
                        self.held.contains(&receive),
                        "buffer {receive} is read after it was given back"
                    );
                    assert!(u64::from(offset) + u64::from(bytes) <= total.into());
                    assert!(u64::from(total) <= self.most_bytes);
                }
                Action::Provide { message, bytes, .. } => {
                    assert!(u64::from(bytes) <= self.most_bytes);
                    self.asked.push_back(message);
                    assert!(self.asked.len() <= Config::DEFAULT.max_written);
                }
                Action::Finished(id, _) => {
                    assert!(self.submitted.remove(&id), "{id:?} finished twice")
                }
                Action::Renew { path } => self.renewing.push_back(path),
                Action::Connect { path, .. } => self.connection.connected(path),
                Action::Lost => assert!(self.connection.is_lost()),
                Action::Acknowledge(_)
                | Action::Deliver(Delivery::Pieces { .. })
                | Action::Discard(_)
                | Action::Fence { .. }
                | Action::AcknowledgeTo(_) => {}
            }
        }
        assert!(
            self.held.is_empty(),
            "buffers {:?} were not given back",
            self.held
        );
        let _ = self.connection.next_deadline(self.now_ns);
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut driver = Driver::new(choice);
    while let Some((&[kind, choice, length], behind)) = rest.split_first_chunk() {
        let (event, behind) = behind.split_at(behind.len().min(length.into()));
        driver.event(kind, choice, event);
        rest = behind;
    }
});
