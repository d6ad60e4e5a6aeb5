//! The library, the devices and the kernel modules of RDMA hardware.

use std::path::Path;

use super::{names_in, read, Finding};

pub(super) fn examine() -> Vec<Finding> {
    vec![
        library("libibverbs.so.1"),
        library("librdmacm.so.1"),
        devices(),
        modules(),
    ]
}

/// Searches where the dynamic linker would, without loading anything.
fn find(library: &str) -> Option<String> {
    let variable = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
        "/usr/local/lib",
    ];
    let own = variable
        .split(':')
        .filter(|directory| !directory.is_empty());
    let mut paths = own
        .chain(usual)
        .map(|directory| format!("{directory}/{library}"));
    paths.find(|path| Path::new(path).exists())
}

fn library(name: &'static str) -> Finding {
    match find(name) {
        Some(path) => Finding::ok(name, path),
        None => Finding::missing(
            name,
            "not found",
            "rdma-core, loaded at run time and only needed for RDMA hardware: apt install libibverbs1 librdmacm1 \
             ibverbs-providers",
        ),
    }
}

fn devices() -> Finding {
    let devices = names_in("/sys/class/infiniband");
    let nodes = names_in("/dev/infiniband");
    let usable = nodes.iter().any(|node| node.starts_with("uverbs"));
    if devices.is_empty() {
        Finding::missing(
            "RDMA devices",
            "none in /sys/class/infiniband",
            "no RDMA NIC here; to try the hardware path without one: modprobe rdma_rxe && rdma \
             link add rxe0 type rxe netdev eth0",
        )
    } else if usable {
        Finding::ok("RDMA devices", devices.join(", "))
    } else {
        Finding::warn(
            "RDMA devices",
            format!("{}, but no /dev/infiniband/uverbs*", devices.join(", ")),
            "modprobe ib_uverbs; in a container, pass --device /dev/infiniband",
        )
    }
}

fn modules() -> Finding {
    let wanted = ["ib_core", "ib_uverbs", "rdma_ucm", "rdma_rxe"];
    let loaded = read("/proc/modules").unwrap_or_default();
    // A module built into the kernel is in sysfs only.
    let there = |module: &&&str| {
        loaded
            .lines()
            .any(|line| line.split_whitespace().next() == Some(module))
            || Path::new("/sys/module").join(module).exists()
    };
    let found: Vec<&str> = wanted.iter().filter(there).copied().collect();
    let needed = found.contains(&"ib_core") && found.contains(&"ib_uverbs");
    if needed {
        Finding::ok("kernel modules", found.join(", "))
    } else {
        Finding::missing(
            "kernel modules",
            if found.is_empty() {
                "none loaded".to_owned()
            } else {
                found.join(", ")
            },
            "needed only for RDMA hardware: modprobe ib_uverbs rdma_ucm",
        )
    }
}
