//! Cores, NUMA nodes and clocks.

use super::{names_in, read, Finding};
use crate::affinity;

pub(super) fn examine() -> Vec<Finding> {
    vec![cores(), nodes(), clock()]
}

fn cores() -> Finding {
    let cores = affinity::cores();
    let found = format!("{} usable: {}", cores.len(), ranges(cores));
    if cores.len() >= 2 {
        Finding::ok("cores", found)
    } else {
        Finding::warn(
            "cores",
            found,
            "with one core, polling yields after every check: give the process a second one (taskset, cpuset, more \
             virtual processors)",
        )
    }
}

/// `0-3,6` of the cores 0, 1, 2, 3 and 6.
fn ranges(cores: &[usize]) -> String {
    cores
        .chunk_by(|before, after| before + 1 == *after)
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

fn nodes() -> Finding {
    let is_node = |name: &String| {
        name.strip_prefix("node")
            .is_some_and(|n| n.parse::<usize>().is_ok())
    };
    let nodes: Vec<String> = names_in("/sys/devices/system/node")
        .into_iter()
        .filter(is_node)
        .collect();
    match nodes.len() {
        0 => Finding::warn(
            "NUMA nodes",
            "unknown: /sys/devices/system/node does not exist",
            "mount sysfs so that memory can be placed near the cores that use it",
        ),
        1 => Finding::ok("NUMA nodes", "1"),
        count => Finding::warn(
            "NUMA nodes",
            count.to_string(),
            "keep client, server and NIC of one connection on one node (numactl --cpunodebind)",
        ),
    }
}

fn clock() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = read(path).unwrap_or_else(|| "unknown".into());
    let flags = read("/proc/cpuinfo").unwrap_or_default();
    let steady = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| {
            ["constant_tsc", "nonstop_tsc"]
                .iter()
                .all(|flag| line.split_whitespace().any(|f| f == *flag))
        });
    let found = format!(
        "kernel's source {source}, time-stamp counter {}",
        if steady {
            "steady"
        } else {
            "not known to be stable"
        }
    );
    if steady || source == "arch_sys_counter" {
        Finding::ok("clock", found)
    } else {
        Finding::warn(
            "clock",
            found,
            "latencies are read from clock_gettime and include its cost, about 40 ns or more",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn cores_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 6]), "0-3,6");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[]), "");
    }
}
