//! The same exchange over the kernel's TCP: messages of a fixed length, of which so many are under way, and a byte back
//! for each.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;

/// What the paper compares with, as far as this kernel has it.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];
const LIST: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The congestion controls that can be measured here.
pub(crate) fn controls() -> Vec<String> {
    let available = std::fs::read_to_string(LIST).unwrap_or_default();
    let has = |name: &str| available.split_whitespace().any(|one| one == name);
    let here = CONTROLS.into_iter().filter(|name| has(name));
    here.map(str::to_owned).collect()
}

fn none_if_blocked(result: std::io::Result<usize>) -> Result<usize, Failure> {
    match result {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Bytes a second that have arrived in whole messages.
pub(crate) fn measure(
    control: &str,
    bytes: usize,
    depth: usize,
    time: Duration,
) -> Result<f64, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        rustix::net::sockopt::set_tcp_congestion(stream, control)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let message = vec![7; bytes];
    let mut inbox = vec![0; bytes.max(64 << 10)];
    // Bytes of the message that is being sent, messages without an answer, and bytes that have come.
    let (mut sent, mut open, mut received) = (0, 0, 0_u64);
    let mut owed = 0;
    let begun = Instant::now();
    let mut counted_from = None;
    loop {
        let elapsed = begun.elapsed();
        if counted_from.is_none() && elapsed > time / 10 {
            counted_from = Some((elapsed, received));
        }
        if elapsed > time {
            break;
        }
        while open < depth {
            let now = none_if_blocked(sender.write(&message[sent..]))?;
            if now == 0 {
                break;
            }
            sent += now;
            if sent == bytes {
                sent = 0;
                open += 1;
            }
        }
        let now = none_if_blocked(receiver.read(&mut inbox))?;
        let whole = (received + now as u64) / bytes as u64 - received / bytes as u64;
        received += now as u64;
        owed += whole as usize;
        if owed > 0 {
            owed -= none_if_blocked(receiver.write(&vec![1; owed]))?;
        }
        let mut answers = [0; 64];
        open -= none_if_blocked(sender.read(&mut answers))?.min(open);
    }
    let (from, before) = counted_from.unwrap_or_default();
    let seconds = (begun.elapsed() - from).as_secs_f64();
    Ok((received - before) as f64 / seconds)
}
