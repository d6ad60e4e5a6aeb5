//! Which cores this process may use, and pinning a thread to one of them.

use std::sync::OnceLock;

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// The cores this process may use, in order; as they were at the first call, so call it before pinning.
pub fn cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&core| set.is_set(core))
            .collect(),
        Err(_) => vec![0],
    })
}

/// The core of the client and the core of the server: the first two, or `None` where there is only one.
pub fn client_and_server() -> Option<(usize, usize)> {
    match cores() {
        [client, server, ..] => Some((*client, *server)),
        _ => None,
    }
}

/// Pins the calling thread to a core. Where the kernel refuses, the thread stays where it is.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // Pinning only steadies the figures; without it they are still right.
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_its_core_only() {
        let last = *cores().last().unwrap();
        std::thread::spawn(move || {
            pin(last);
            let set = sched_getaffinity(None).unwrap();
            assert_eq!(set.count(), 1);
            assert!(set.is_set(last));
        })
        .join()
        .unwrap();
    }
}
