//! Ports of the book become free ones, the same for the same number throughout a chapter.

use std::collections::BTreeMap;
use std::net::TcpListener;

/// What stands before a port.
const HOST: &str = "127.0.0.1:";

/// The ports of a chapter.
#[derive(Debug, Default)]
pub(crate) struct Ports(BTreeMap<String, u16>);

impl Ports {
    /// The text with free ports in the place of those that are written. Port 0 stays, and text that came is not to be
    /// given: only what the book says.
    pub(crate) fn replace(&mut self, text: &str) -> String {
        let mut parts = text.split(HOST);
        let mut replaced = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (port, rest) = part.split_at(digits);
            replaced.push_str(HOST);
            match port.parse() {
                Ok(0) | Err(_) => replaced.push_str(port),
                Ok(1_u16..) => {
                    let free = self.0.entry(port.to_owned()).or_insert_with(free_port);
                    replaced.push_str(&free.to_string());
                }
            }
            replaced.push_str(rest);
        }
        replaced
    }
}

/// A port that is free now, below those that the system gives to whoever asks for any.
fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    // Two runs at once begin at different ones.
    let begin = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let port = FIRST + (begin + next % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}
