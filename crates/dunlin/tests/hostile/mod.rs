//! What a hostile process can do with what an honest client is given: the descriptors that it was sent and the memory
//! that it has mapped.
#![allow(dead_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A mapping of a memory file in this process.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) writable: bool,
}

/// All memory files that this process has mapped.
pub(crate) fn mapped() -> Vec<Mapped> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:"));
    let mapped = shared.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        Some(Mapped {
            start,
            length: end - start,
            writable: words.next()?.contains('w'),
        })
    });
    mapped.collect()
}

/// Whether `secret` stands anywhere in the memory files that this process has mapped.
pub(crate) fn can_read(secret: &[u8]) -> bool {
    let memory = File::open("/proc/self/mem").unwrap();
    mapped().iter().any(|mapped| {
        let mut bytes = vec![0; mapped.length as usize];
        // What was unmapped meanwhile cannot be read.
        let read = memory.read_exact_at(&mut bytes, mapped.start).is_ok();
        let first = secret[0];
        read && bytes
            .windows(secret.len())
            .any(|window| window[0] == first && window == secret)
    })
}
