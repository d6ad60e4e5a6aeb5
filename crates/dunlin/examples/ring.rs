//! A ring between two processes, or two hosts: numbered messages whose bytes follow from their numbers, each compared.
//!
//! ```text
//! cargo run --release -p dunlin --example ring consume dunlin://127.0.0.1:7400 device=shm
//! cargo run --release -p dunlin --example ring produce dunlin://127.0.0.1:7400 device=shm messages=100000 longest=1000
//! ```
//!
//! `device=NAME` is one of `dunlin devices`: `shm`, `roce`, `ibv:NAME`. Both sides have the same `longest`.
//! `server=produce` turns the two round: who produces listens, and who consumes connects.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use dunlin::ring::{Consumer, Design, Producer, Received, RingBuilder, RingConfig, SendError};
use dunlin::{Listener, MeetError};
use dunlin_rpc::{visit_device, DeviceVisitor};
use dunlin_verbs::Device;

type Failure = Box<dyn Error>;

/// Without a message, or room for one, for so long there is none to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Looks in vain before the other end is given the core.
const LOOKS: u32 = 1000;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(role), Some(address)) = (words.first(), words.get(1)) else {
        return Err("ring consume|produce dunlin://HOST:PORT [NAME=VALUE ...]".into());
    };
    let setting = |name: &str, default: &str| {
        let given = words.iter().find_map(|word| word.strip_prefix(name));
        given.unwrap_or(default).to_owned()
    };
    let produces = match role.as_str() {
        "produce" => true,
        "consume" => false,
        other => return Err(format!("`{other}` is neither consume nor produce").into()),
    };
    let end = End {
        produces,
        listens: produces == (setting("server=", "consume") == "produce"),
        address: address.clone(),
        messages: setting("messages=", "100000").parse()?,
        longest: setting("longest=", "1000").parse()?,
    };
    let peer = (!end.listens).then(|| address.parse()).transpose()?;
    visit_device(&setting("device=", "shm"), peer.as_ref(), end)?
}

/// One end of the ring, before its device is known.
struct End {
    produces: bool,
    listens: bool,
    address: String,
    messages: u64,
    longest: usize,
}

impl DeviceVisitor for End {
    type Output = Result<(), Failure>;

    fn visit<D: Device>(self, device: &D) -> Self::Output {
        let config = RingConfig::for_messages(Design::RB2, self.longest.max(8));
        let rings = RingBuilder::new(device, config);
        let address = self.address.as_str();
        match (self.produces, self.listens) {
            (true, false) => self.produce(rings.connect_producer(address)?),
            (true, true) => self.produce(accept(&rings.bind_producers(address)?)?),
            (false, false) => self.consume(rings.connect_consumer(address)?),
            (false, true) => self.consume(accept(&rings.bind_consumers(address)?)?),
        }
    }
}

/// Waits for the other end.
fn accept<T: Send + 'static>(listener: &Listener<T>) -> Result<T, MeetError> {
    println!("listening on {}", listener.address());
    listener.accept()
}

/// The bytes of a message: its number, and what follows from it.
fn message(number: u64, longest: usize, bytes: &mut Vec<u8>) {
    let length = 8 + (number.wrapping_mul(0x9e37_79b9) >> 7) as usize % (longest.max(8) - 7);
    bytes.clear();
    bytes.extend(number.to_le_bytes());
    bytes.extend((8..length).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8));
}

impl End {
    fn produce<D: Device>(&self, mut producer: Producer<D>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let mut wait = Wait::new();
        for number in 0..self.messages {
            message(number, self.longest, &mut bytes);
            while let Err(error) = producer.try_send(&bytes) {
                if !matches!(error, SendError::Full) {
                    return Err(error.into());
                }
                producer.poll()?;
                wait.again("room")?;
            }
            wait = Wait::new();
        }
        producer.close()?;
        while !producer.is_closed() {
            producer.poll()?;
            wait.again("the consumer")?;
        }
        println!("{} messages sent", self.messages);
        Ok(())
    }

    fn consume<D: Device>(&self, mut consumer: Consumer<D>) -> Result<(), Failure> {
        let (mut number, mut total) = (0, 0);
        let mut expected = Vec::new();
        let mut wait = Wait::new();
        let began = Instant::now();
        loop {
            message(number, self.longest, &mut expected);
            let same = consumer.receive(|message| message.to_vec() == expected)?;
            match same {
                Received::Message(true) => {
                    total += expected.len();
                    number += 1;
                    wait = Wait::new();
                }
                Received::Message(false) => {
                    return Err(format!("message {number} has other bytes").into());
                }
                Received::Empty => {
                    consumer.push()?;
                    wait.again("a message")?;
                }
                Received::End => break,
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        println!("{number} messages, {total} bytes, each compared, in {seconds:.2} s");
        if number == self.messages {
            return Ok(());
        }
        Err(format!("{number} messages of {}", self.messages).into())
    }
}

/// Looks in vain, with an end.
struct Wait {
    began: Instant,
    looks: u32,
}

impl Wait {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            looks: 0,
        }
    }

    fn again(&mut self, what: &str) -> Result<(), Failure> {
        self.looks += 1;
        if self.looks % LOOKS == 0 {
            thread::yield_now();
            if self.began.elapsed() > PATIENCE {
                return Err(format!("nothing for {PATIENCE:?}: {what} was waited for").into());
            }
        }
        Ok(())
    }
}
