//! The passive end of a test: executes commands on a device.

use std::thread::JoinHandle;

use crate::{
    Access, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation, QueuePair,
    QueuePairState, ReceiveRequest, Region, Segment, SendFlags, SharedReceiveQueue,
    ENDPOINT_ADDRESS_BYTES,
};

use super::message::{completion_numbers, to_optional, to_transport};
use super::{wait, Endpoint, Message, Op, Options, Piece};

/// Executes [`Message`]s. Its objects are numbered from zero, separately for each kind.
#[derive(Debug)]
pub struct Agent<D: Device> {
    watcher: Option<JoinHandle<Result<(), String>>>,
    endpoints: Vec<Option<Endpoint<D>>>,
    /// What peers may do through each endpoint.
    access: Vec<Access>,
    queues: Vec<D::SharedReceiveQueue>,
    regions: Vec<Option<D::Region>>,
    domains: Vec<D::ProtectionDomain>,
    device: D,
}

impl<D: Device> Agent<D> {
    /// Creates an agent on `device`, with two protection domains.
    ///
    /// # Panics
    /// When the device refuses them.
    pub fn new(device: D) -> Self {
        let domain = || device.create_protection_domain();
        let domains = vec![domain().expect("a domain"), domain().expect("another")];
        Self {
            watcher: None,
            endpoints: Vec::new(),
            access: Vec::new(),
            queues: Vec::new(),
            regions: Vec::new(),
            domains,
            device,
        }
    }

    /// Executes one command.
    pub fn execute(&mut self, command: &Message) -> Message {
        match self.attempt(command) {
            Ok(answer) => answer,
            Err(why) => Message::new(Op::Failed, []).with_bytes(why.to_string()),
        }
    }

    fn endpoint(&mut self, number: usize) -> &mut Endpoint<D> {
        self.endpoints[number].as_mut().expect("not yet dropped")
    }

    fn region(&self, number: usize) -> &D::Region {
        self.regions[number].as_ref().expect("not yet dropped")
    }

    fn attempt(&mut self, command: &Message) -> Result<Message, Box<dyn std::error::Error>> {
        let done = |numbers: &[u64]| Message::new(Op::Done, numbers);
        let first = command.size(0);
        match command.op {
            Op::Done | Op::Failed | Op::Abort => return Err("not a command".into()),
            Op::Endpoint => return self.create(command),
            Op::Connect => self.connect(command)?,
            Op::Address => {
                let address = self.endpoint(first).queue_pair.address();
                return Ok(done(&[]).with_bytes(address.encode()));
            }
            Op::DropEndpoint => self.endpoints[first] = None,
            Op::ToError => self.endpoint(first).queue_pair.to_error(),
            Op::ToReset => self.endpoint(first).queue_pair.to_reset(),
            Op::State => {
                let state = self.endpoint(first).queue_pair.state();
                return Ok(done(&[state as u64]));
            }
            Op::Region => {
                let access = Access::from_bits_truncate(command.word(1));
                let domain = &self.domains[command.size(2)];
                let region = self.device.allocate_region(domain, first, access)?;
                let (number, remote) = (self.regions.len() as u64, region.remote());
                self.regions.push(Some(region));
                return Ok(done(&[number, remote.address, u64::from(remote.key.0)]));
            }
            Op::DropRegion => self.regions[first] = None,
            Op::Write => {
                let memory = self.region(first).memory();
                memory.write(command.size(1), &command.bytes);
            }
            Op::Read => {
                let mut bytes = vec![0; command.size(2)];
                self.region(first)
                    .memory()
                    .read(command.size(1), &mut bytes);
                return Ok(done(&[]).with_bytes(bytes));
            }
            Op::SharedQueue => {
                let domain = &self.domains[0];
                let (requests, segments) = (first, command.size(1));
                let queue =
                    (self.device).create_shared_receive_queue(domain, requests, segments)?;
                self.queues.push(queue);
                return Ok(done(&[self.queues.len() as u64 - 1]));
            }
            Op::Receive | Op::SharedReceive | Op::Send => self.post(command)?,
            Op::Poll => return self.poll(first),
            Op::Watch => self.watch(command),
            Op::Watched => {
                let watcher = self.watcher.take().ok_or("no watch")?;
                watcher.join().map_err(|_| "the watcher gave up")??;
            }
        }
        Ok(done(&[]))
    }

    fn create(&mut self, command: &Message) -> Result<Message, Box<dyn std::error::Error>> {
        let options = Options {
            transport: to_transport(command.size(0)),
            access: Access::from_bits_truncate(command.word(1)),
            send_requests: command.size(2),
            receive_requests: command.size(3),
            segments: command.size(4),
            inline_bytes: command.size(5),
            completions: command.size(6),
            channel: false,
            attributes: ConnectAttributes::default(),
            shared: to_optional(command.number(7)),
        };
        let shared = options.shared.map(|number| &self.queues[number as usize]);
        let endpoint = Endpoint::new(&self.device, &self.domains[0], &options, shared)?;
        let address = endpoint.queue_pair.address().encode();
        self.endpoints.push(Some(endpoint));
        self.access.push(options.access);
        let number = self.endpoints.len() as u64 - 1;
        Ok(Message::new(Op::Done, [number]).with_bytes(address))
    }

    fn connect(&mut self, command: &Message) -> Result<(), Box<dyn std::error::Error>> {
        let attributes = ConnectAttributes {
            timeout_ns: command.number(1),
            retry_count: u8::try_from(command.number(2))?,
            receiver_not_ready_timer_ns: command.number(3),
            receiver_not_ready_retries: u8::try_from(command.number(4))?,
            ..ConnectAttributes::default()
        };
        let address = if command.bytes.is_empty() {
            None
        } else {
            let bytes: [u8; ENDPOINT_ADDRESS_BYTES] = command.bytes.as_slice().try_into()?;
            Some(EndpointAddress::decode(&bytes))
        };
        let access = self.access[command.size(0)];
        let endpoint = self.endpoint(command.size(0));
        if endpoint.queue_pair.state() == QueuePairState::Reset {
            endpoint.queue_pair.to_init(access)?;
        }
        Ok(endpoint.connect(address.as_ref(), attributes)?)
    }

    fn post(&mut self, command: &Message) -> Result<(), Box<dyn std::error::Error>> {
        let (target, id) = (command.size(0), command.number(1));
        let skip = if command.op == Op::Send { 3 } else { 2 };
        let place = |number: u64| usize::try_from(number).expect("64-bit sizes");
        let regions = &self.regions;
        let segments: Vec<Piece<'_, D>> = command.numbers[skip..]
            .chunks_exact(3)
            .map(|piece| Segment {
                region: regions[place(piece[0])].as_ref().expect("not yet dropped"),
                offset: place(piece[1]),
                length: place(piece[2]),
            })
            .collect();
        let receive = ReceiveRequest {
            id,
            segments: &segments,
        };
        if command.op == Op::SharedReceive {
            return Ok(self.queues[target].post_receive(&[receive])?);
        }
        let endpoint = self.endpoints[target].as_mut().expect("not yet dropped");
        if command.op == Op::Receive {
            return Ok(endpoint.queue_pair.post_receive(&[receive])?);
        }
        let mut flags = SendFlags::SIGNALED;
        flags.set(SendFlags::SOLICITED, command.number(2) != 0);
        endpoint.post_flagged(id, Operation::Send { immediate: None }, &segments, flags);
        Ok(())
    }

    fn poll(&mut self, endpoint: usize) -> Result<Message, Box<dyn std::error::Error>> {
        let mut one = [crate::Completion::EMPTY];
        let count = self.endpoint(endpoint).completions.poll(&mut one)?;
        let numbers = match count {
            0 => Vec::new(),
            _ => completion_numbers(&one[0]),
        };
        Ok(Message::new(Op::Done, numbers))
    }

    fn watch(&mut self, command: &Message) {
        let region = self.region(command.size(0)).clone();
        let rounds = command.number(1);
        let (start, end) = (command.size(2), command.size(3));
        let (flag, acknowledge) = (command.size(4), command.size(5));
        self.watcher = Some(std::thread::spawn(move || {
            use std::sync::atomic::Ordering::{Acquire, Release};
            let memory = region.memory();
            let mut bytes = vec![0; end - start];
            for round in 1..=rounds {
                wait("the last byte of a WRITE", || {
                    let last = memory.atomic_u64(flag).load(Acquire).to_ne_bytes()[7];
                    (u64::from(last) == round).then_some(())
                });
                memory.read(start, &mut bytes);
                if let Some(at) = bytes.iter().position(|&byte| u64::from(byte) != round) {
                    let stale = bytes[at];
                    return Err(format!("round {round}: byte {at} is still {stale}"));
                }
                memory.atomic_u64(acknowledge).store(round, Release);
            }
            Ok(())
        }));
    }
}
