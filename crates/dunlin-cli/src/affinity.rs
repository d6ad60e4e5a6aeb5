//! The cores available to this process, and pinning of threads to them.

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

/// Whether a thread of this process may be pinned to a core.
pub fn can_pin(core: usize) -> bool {
    let pinned = move || {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).is_ok()
    };
    // Tried in a separate thread, so that this one stays where it is.
    core < CpuSet::MAX_CPU && std::thread::spawn(pinned).join().unwrap_or(false)
}

/// Lets the calling thread run on all cores of this process again.
pub fn release() {
    let mut set = CpuSet::new();
    for &core in cores() {
        set.set(core);
    }
    let _ = sched_setaffinity(None, &set);
}

/// The cores of each NUMA node that the system tells of; none where it tells nothing.
fn cores_by_node() -> Vec<Vec<usize>> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node"));
            number.is_some_and(|number| number.parse::<usize>().is_ok())
        })
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cpulist")).ok())
        .map(|list| parse_list(&list))
        .filter(|cores| !cores.is_empty())
        .collect()
}

/// Reads the system's lists of cores, such as `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

/// NUMA nodes with cores, at least one.
pub fn nodes() -> usize {
    cores_by_node().len().max(1)
}

/// A core that this process may use on another node than `core`'s.
pub fn core_of_another_node(core: usize) -> Option<usize> {
    cores_by_node()
        .into_iter()
        .filter(|node| !node.contains(&core))
        .flatten()
        .find(|other| cores().contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(parse_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_list(""), Vec::<usize>::new());
        assert!(nodes() >= 1);
    }

    #[test]
    fn only_cores_that_there_are_can_be_pinned_to() {
        assert!(can_pin(*cores().last().unwrap()));
        assert!(!can_pin(CpuSet::MAX_CPU - 1));
        assert!(!can_pin(usize::MAX));
    }

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
