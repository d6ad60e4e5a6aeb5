//! The names of devices, which the two sides of a handshake compare: a kind, after a colon which device of that kind
//! (`ibv:mlx5_0`), and before both a prefix for Flor over the device (`flor-roce`).

/// The kind of RDMA NICs, which are opened by libibverbs.
pub const IBV: &str = "ibv";
/// RoCEv2 on UDP sockets.
pub const ROCE: &str = "roce";
/// Shared memory.
pub const SHM: &str = "shm";

/// The prefix of Flor's devices.
const FLOR: &str = "flor-";

/// The kind of a device: its name up to the colon.
pub fn kind(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// The name of Flor over the device with this name.
pub fn over_flor(name: &str) -> String {
    format!("{FLOR}{name}")
}

/// The name of the device below Flor's device with this name.
pub fn below(name: &str) -> Option<&str> {
    name.strip_prefix(FLOR)
}

/// The name without Flor: that of the device itself, or of the one below it.
pub fn bare(name: &str) -> &str {
    below(name).unwrap_or(name)
}

/// Whether any host can have a device of this name.
pub fn is_known(name: &str) -> bool {
    match bare(name).split_once(':') {
        None => [IBV, ROCE, SHM].contains(&bare(name)),
        Some((kind, which)) => kind == IBV && !which.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_kind_and_for_nics_which() {
        for name in ["shm", "roce", "ibv", "ibv:mlx5_0"] {
            assert!(is_known(name) && is_known(&over_flor(name)), "{name}");
            assert_eq!((below(name), bare(&over_flor(name))), (None, name));
        }
        for name in [
            "",
            "ibv:",
            "shm:0",
            "roce:eth0",
            "flor-",
            "flor-flor-shm",
            "sim",
        ] {
            assert!(!is_known(name), "{name}");
        }
        assert_eq!(kind("flor-ibv:mlx5_0"), "flor-ibv");
    }
}
