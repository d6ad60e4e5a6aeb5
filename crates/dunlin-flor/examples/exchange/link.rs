//! Both ends of a logical connection, on this thread: one sends as many messages as may be open, the other takes them.

use std::time::{Duration, Instant};

use dunlin_flor::congestion::FixedWindow;
use dunlin_flor::connection::{Counters, Deployment, Network};
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_roce::{RoceConfig, RoceDevice, RoceRegion};

use crate::Failure;

/// Under way at once, as in the paper's benchmark (§7.2).
pub(crate) const DEPTH: usize = 8;
/// The device's own window over RC, 128 packets. Fixed as in the paper, where loss is no congestion either (§7.3).
const WINDOW_BYTES: u64 = 512 << 10;

/// See the module.
pub(crate) struct Exchange {
    sender: LogicalConnection<RoceDevice>,
    receiver: LogicalConnection<RoceDevice>,
    region: RoceRegion,
    bytes: u32,
    open: usize,
    /// Bytes that have come.
    pub(crate) received: u64,
    /// When it began: time zero of both ends.
    begun: Instant,
}

fn end(deployment: Deployment) -> Result<LogicalConnection<RoceDevice>, Failure> {
    let mut roce = RoceConfig::from_environment()?;
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    roce.local_address.get_or_insert(loopback);
    let mut config = LinkConfig::new(deployment);
    config.network = Network::SOFTWARE;
    // Enough that nothing waits for memory which rests after a repetition.
    config.max_landing_bytes = 1 << 30;
    let mut modules = deployment.modules(&config.network)?;
    if deployment == Deployment::CrossPod {
        modules.congestion = Box::new(FixedWindow::new(WINDOW_BYTES));
    }
    let device = RoceDevice::open(roce)?;
    Ok(LogicalConnection::with_modules(device, config, modules)?)
}

impl Exchange {
    /// Messages of so many bytes.
    pub(crate) fn new(deployment: Deployment, bytes: u32) -> Result<Self, Failure> {
        let mut sender = end(deployment)?;
        let mut receiver = end(deployment)?;
        let addresses = (sender.address(), receiver.address());
        sender.connect(&addresses.1, 0, 0)?;
        receiver.connect(&addresses.0, 0, 0)?;
        Ok(Self {
            region: sender.allocate(bytes as usize)?,
            sender,
            receiver,
            bytes,
            open: 0,
            received: 0,
            begun: Instant::now(),
        })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Sends what may be sent, and takes what has come.
    pub(crate) fn step(&mut self) -> Result<(), Failure> {
        let now_ns = self.elapsed().as_nanos() as u64;
        while self.open < DEPTH {
            let source = Source {
                region: self.region.clone(),
                offset: 0,
                bytes: self.bytes,
            };
            self.sender.submit(now_ns, source)?;
            self.open += 1;
        }
        while let Some(event) = self.sender.poll(now_ns)? {
            match event {
                LinkEvent::Finished(_, outcome) => {
                    outcome?;
                    self.open -= 1;
                }
                LinkEvent::Lost => return Err("the connection is lost".into()),
                _ => {}
            }
        }
        while let Some(event) = self.receiver.poll(now_ns)? {
            match event {
                LinkEvent::Message(message) => self.received += message.len() as u64,
                LinkEvent::Landed { landing, .. } => {
                    self.received += landing.len() as u64;
                    self.receiver.release(landing);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Steps for so long.
    pub(crate) fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.elapsed() + time;
        while self.elapsed() < until {
            self.step()?;
        }
        Ok(())
    }

    /// The sender's counters.
    pub(crate) fn counters(&self) -> Counters {
        self.sender.connection().counters()
    }

    /// Moves the sender's queue pair that is in use to Error.
    pub(crate) fn fail_primary(&mut self) {
        let primary = self.sender.connection().primary();
        self.sender.fail_path(primary);
    }
}
