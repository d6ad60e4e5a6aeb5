//! Memory that can be shared, registered and mapped with large pages.

use rustix::fs::{memfd_create, MemfdFlags};
use rustix::process::{getrlimit, Resource};

use super::{names_in, read, Finding};
use crate::output;

pub(super) fn examine() -> Vec<Finding> {
    let mut findings = vec![memfd(), dev_shm()];
    findings.extend(huge_pages());
    findings.extend([transparent(), memlock()]);
    findings
}

fn memfd() -> Finding {
    match memfd_create(
        "dunlin-doctor",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    ) {
        Ok(_) => Finding::ok("memfd", "sealable regions can be created and passed"),
        Err(error) => Finding::missing(
            "memfd",
            format!("memfd_create: {error}"),
            "the shm device requires Linux 3.17 or newer, and a seccomp profile that allows memfd_create",
        ),
    }
}

fn dev_shm() -> Finding {
    match rustix::fs::statvfs("/dev/shm") {
        Ok(stat) => {
            let free = output::bytes((stat.f_bavail * stat.f_frsize) as f64);
            Finding::ok("/dev/shm", format!("{free} free"))
        }
        Err(error) => Finding::warn(
            "/dev/shm",
            error.to_string(),
            "not required where memfd works; other shared-memory libraries need it (mount -t tmpfs)",
        ),
    }
}

fn huge_pages() -> Vec<Finding> {
    let sizes = names_in("/sys/kernel/mm/hugepages");
    let of = |size: &str, file: &str| -> u64 {
        read(&format!("/sys/kernel/mm/hugepages/{size}/{file}"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    let found: Vec<String> = sizes
        .iter()
        .map(|size| {
            let (all, free) = (of(size, "nr_hugepages"), of(size, "free_hugepages"));
            format!(
                "{}: {all} reserved, {free} free",
                size.trim_start_matches("hugepages-")
            )
        })
        .collect();
    let advice =
        "they need fewer address translations in the processor and in a NIC; to reserve 512 MiB: sysctl \
         vm.nr_hugepages=256 (to make it permanent, add a line to /etc/sysctl.d)";
    let finding = if sizes.is_empty() {
        Finding::missing(
            "huge pages",
            "not supported by this kernel",
            "CONFIG_HUGETLBFS is off: memory is in 4 KiB pages, which works",
        )
    } else if sizes.iter().any(|size| of(size, "free_hugepages") > 0) {
        Finding::ok("huge pages", found.join("; "))
    } else {
        Finding::warn("huge pages", found.join("; "), advice)
    };
    vec![finding]
}

fn transparent() -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let Some(choices) = read(path) else {
        return Finding::warn(
            "transparent huge pages",
            "not available for shared memory in this kernel",
            "reserve huge pages instead",
        );
    };
    let chosen = choices
        .split_whitespace()
        .find_map(|choice| choice.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or("unknown");
    let found = format!("for shared memory: {chosen}");
    if matches!(chosen, "always" | "advise" | "within_size" | "force") {
        Finding::ok("transparent huge pages", found)
    } else {
        let advice = format!("to let regions ask for them: echo advise > {path}");
        Finding::warn("transparent huge pages", found, advice)
    }
}

fn memlock() -> Finding {
    let shown = |limit: Option<u64>| {
        limit.map_or_else(
            || "unlimited".to_owned(),
            |bytes| output::bytes(bytes as f64),
        )
    };
    let limit = getrlimit(Resource::Memlock);
    let found = format!(
        "{} (at most {})",
        shown(limit.current),
        shown(limit.maximum)
    );
    match limit.current {
        Some(bytes) if bytes < 64 << 20 => Finding::warn(
            "locked memory",
            found,
            "an RDMA NIC locks registered memory: ulimit -l unlimited, memlock in /etc/security/limits.conf, or \
             LimitMEMLOCK=infinity in the unit",
        ),
        _ => Finding::ok("locked memory", found),
    }
}
