//! What the examples that speak with others' programs have in common.

use std::error::Error;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dunlin_roce::{RoceConfig, RoceDevice, COUNTS, ROCE_PORT};

pub(crate) type Failure = Box<dyn Error>;

/// The queue key of those programs.
pub(crate) const QUEUE_KEY: u32 = 0x1111_1111;
/// Without a completion for so long there is none to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The device at the port where kernels and NICs send, with the queue key that their programs expect.
pub(crate) fn open() -> Result<RoceDevice, Failure> {
    let mut config = RoceConfig::from_environment()?;
    config.queue_key.get_or_insert(QUEUE_KEY);
    if config.port == 0 {
        config.port = ROCE_PORT;
    }
    Ok(RoceDevice::open(config)?)
}

/// The value of `NAME=VALUE` among the arguments.
pub(crate) fn setting(arguments: &[String], name: &str, default: usize) -> Result<usize, Failure> {
    let value = arguments.iter().find_map(|word| word.strip_prefix(name));
    Ok(value.map_or(Ok(default), str::parse)?)
}

/// Connects to a server that may be about to start.
pub(crate) fn reach(place: &str) -> Result<TcpStream, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(place) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return Ok(done?),
        }
    }
}

/// Prints what was counted of packets.
pub(crate) fn print_counts(device: &RoceDevice) {
    for count in COUNTS.iter().filter(|&&count| device.count(count) > 0) {
        println!("{}: {}", count.name(), device.count(*count));
    }
}
