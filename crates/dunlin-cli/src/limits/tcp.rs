//! TCP over loopback.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::duel::{duel, rate_per_s, round_trips, Wait};
use crate::histogram::Percentiles;

const MESSAGE: usize = 64;

fn streams() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((client, server))
}

/// Runs `step` until it is done, spinning while the socket is not ready; `None` when the duel is over.
fn spin<T>(wait: &mut Wait<'_>, mut step: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match step() {
            Ok(done) => return Some(done),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !wait.again() {
                    return None;
                }
            }
            // A broken loopback connection means that the other side has finished.
            Err(_) => return None,
        }
    }
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8], wait: &mut Wait<'_>) -> Option<()> {
    while !bytes.is_empty() {
        let written = spin(wait, || stream.write(bytes))?;
        bytes = &bytes[written..];
    }
    Some(())
}

fn read_some(mut stream: &TcpStream, buffer: &mut [u8], wait: &mut Wait<'_>) -> Option<usize> {
    spin(wait, || stream.read(buffer)).filter(|&read| read != 0)
}

fn echo(stream: &TcpStream, wait: &mut Wait<'_>) {
    let mut buffer = vec![0; 64 << 10];
    while let Some(read) = read_some(stream, &mut buffer, wait) {
        if write_all(stream, &buffer[..read], wait).is_none() {
            return;
        }
    }
}

/// The round trip of 64 B, both sides spinning.
pub fn round_trip(duration: Duration) -> io::Result<Percentiles> {
    let (client, server) = streams()?;
    Ok(duel(
        |wait| {
            let mut buffer = [0; MESSAGE];
            round_trips(duration, || exchange(&client, &mut buffer, wait))
        },
        |wait| echo(&server, wait),
    ))
}

fn exchange(client: &TcpStream, buffer: &mut [u8], wait: &mut Wait<'_>) {
    write_all(client, buffer, wait);
    let mut read = 0;
    while read < buffer.len() {
        match read_some(client, &mut buffer[read..], wait) {
            Some(more) => read += more,
            None => return,
        }
    }
}

/// Requests of 64 B a second, `outstanding` of them written and read together.
pub fn pipelined(outstanding: usize, duration: Duration) -> io::Result<f64> {
    let (client, server) = streams()?;
    Ok(duel(
        |wait| {
            let mut buffer = vec![0; MESSAGE * outstanding];
            rate_per_s(duration, || {
                exchange(&client, &mut buffer, wait);
                outstanding as u64
            })
        },
        |wait| echo(&server, wait),
    ))
}

/// Bytes a second in one direction, written 1 MiB at a time.
pub fn one_way_bytes_per_s(duration: Duration) -> io::Result<f64> {
    let (client, server) = streams()?;
    let buffer = vec![1; 1 << 20];
    let writes_per_s = duel(
        |wait| {
            rate_per_s(duration, || {
                write_all(&client, &buffer, wait);
                1
            })
        },
        |wait| {
            let mut sink = vec![0; 1 << 20];
            while read_some(&server, &mut sink, wait).is_some() {}
        },
    );
    Ok(writes_per_s * buffer.len() as f64)
}
