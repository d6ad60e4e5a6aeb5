//! What the examples share: the other process, which is this program again, and streams and rings to it.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod pcap;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use dunlin_ring::{
    stream_config, Consumer, Offer, Producer, RingConfig, Stream, StreamOffer, UnconnectedConsumer,
    UnconnectedProducer, UnconnectedStream,
};
use dunlin_shm::{ShmConfig, ShmDevice};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The argument that makes this program the other process.
const OTHER: &str = "--other";

/// What crosses between the two processes before there is a ring: lines of hexadecimal.
pub struct Pipe {
    output: Box<dyn Write + Send>,
    input: Box<dyn BufRead + Send>,
    child: Option<Child>,
}

impl Pipe {
    /// The first process: starts the other one.
    pub fn to_other() -> Result<Self, Failure> {
        Self::to_other_with(&[])
    }

    /// The first process: starts the other one with further arguments.
    pub fn to_other_with(arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(OTHER)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input: ChildStdin = child.stdin.take().ok_or("no standard input")?;
        let output = child.stdout.take().ok_or("no standard output")?;
        Ok(Self {
            output: Box::new(input),
            input: Box::new(BufReader::new(output)),
            child: Some(child),
        })
    }

    /// The other process.
    pub fn to_first() -> Self {
        Self {
            output: Box::new(std::io::stdout()),
            input: Box::new(BufReader::new(std::io::stdin())),
            child: None,
        }
    }

    fn exchange<const N: usize>(&mut self, ours: &[u8; N]) -> Result<[u8; N], Failure> {
        let hex: String = ours.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.output, "{hex}")?;
        self.output.flush()?;
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        let mut theirs = [0; N];
        for (index, byte) in theirs.iter_mut().enumerate() {
            let digits = line.get(2 * index..2 * index + 2);
            *byte = u8::from_str_radix(digits.ok_or("the other process is gone")?, 16)?;
        }
        Ok(theirs)
    }

    /// A stream to the other side.
    pub fn stream(&mut self) -> Result<Stream<ShmDevice>, Failure> {
        let device = ShmDevice::open(ShmConfig::default())?;
        let stream = UnconnectedStream::new(&device, &stream_config())?;
        let theirs = self.exchange(&stream.offer().encode())?;
        Ok(stream.connect(&StreamOffer::decode(&theirs))?)
    }

    /// The writing end of a ring to the other side.
    pub fn producer(&mut self, config: &RingConfig) -> Result<Producer<ShmDevice>, Failure> {
        let device = ShmDevice::open(ShmConfig::default())?;
        let producer = UnconnectedProducer::new(&device, config)?;
        let theirs = self.exchange(&producer.offer().encode())?;
        Ok(producer.connect(&Offer::decode(&theirs))?)
    }

    /// The reading end of a ring from the other side.
    pub fn consumer(&mut self, config: &RingConfig) -> Result<Consumer<ShmDevice>, Failure> {
        let device = ShmDevice::open(ShmConfig::default())?;
        let consumer = UnconnectedConsumer::new(&device, config)?;
        let theirs = self.exchange(&consumer.offer().encode())?;
        Ok(consumer.connect(&Offer::decode(&theirs))?)
    }

    /// Waits for the other process to end well.
    pub fn wait(mut self) -> Result<(), Failure> {
        drop(self.output);
        match self
            .child
            .take()
            .map(|mut child| child.wait())
            .transpose()?
        {
            Some(status) if !status.success() => Err(format!("the other ended: {status}").into()),
            _ => Ok(()),
        }
    }
}

/// Whether this is the other process.
pub fn is_other() -> bool {
    std::env::args().nth(1).is_some_and(|first| first == OTHER)
}

/// The number after the program's name, or a default.
pub fn count(default: u64) -> u64 {
    let first = std::env::args().nth(1);
    first.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The value at a share of sorted values.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}
