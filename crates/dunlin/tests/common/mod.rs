//! What several test files use.
#![allow(dead_code)]

use dunlin::{Client, RunningServer, Server};

/// The handler that sends back what it gets.
pub(crate) const ECHO: u16 = 1;

/// An echo server in this process.
pub(crate) fn serve_echo() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

/// [`serve_echo`], and a client.
pub(crate) fn echo() -> (RunningServer, Client) {
    let server = serve_echo();
    let client = Client::connect(&server.address().to_string()).unwrap();
    (server, client)
}

/// Bytes that differ for each seed and place.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Waits until `holds`, for at most 20 s.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed().as_secs() < 20, "not within 20 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A variable of the environment that sizes a test, or what is usual.
pub(crate) fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// A line of `/proc/self/status` that has one number.
pub(crate) fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Memory of this process that is in use.
pub(crate) fn resident_kib() -> usize {
    status("VmRSS:")
}
