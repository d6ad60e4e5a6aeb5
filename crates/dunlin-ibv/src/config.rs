//! The configuration of a device: defaults, and how to override them.

use std::net::IpAddr;
use std::path::PathBuf;

use dunlin_verbs::{Placement, VerbsError};

use crate::sys::LIBRARY;

/// The configuration with which an [`crate::IbvDevice`] is opened. `None` means that the device chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IbvConfig {
    /// Name for display and for device selection; by default `ibv:` and the NIC's own.
    pub name: Option<String>,
    /// Name or path of the library.
    pub library: String,
    /// Name of the NIC, as `ibv_devices` lists it; by default the first with an active port and a usable GID.
    pub device: Option<String>,
    /// Port number, from 1; by default the first that is active.
    pub port: Option<u8>,
    /// Index in the port's GID table; by default the best by [`crate::choose_gid`].
    pub gid_index: Option<u8>,
    /// An address of this host: selects the NIC and the GID of the interface that has it.
    pub local_address: Option<IpAddr>,
    /// Path MTU in bytes (256 to 4096, a power of two) if the port's own is not wanted; never above the port's.
    pub mtu_bytes: Option<usize>,
    /// What to assume about the order in which a WRITE becomes visible; see [`crate::PlacementReason`].
    pub placement: Option<Placement>,
    /// Whether to post and poll by the library's extended calls. By default, requests are posted by them if the
    /// provider has them, and completions are taken by them if they provide timestamps. `true`: both wherever they are
    /// available; `false`: neither, hence no timestamps. Soft-RoCE is treated as having none unless `true`: its library
    /// (rdma-core 44) gets the length of requests with several segments wrong when they are posted by extended calls.
    pub extended: Option<bool>,
    /// Maximum number of bytes registered at a time.
    pub max_registered_bytes: usize,
    /// Use reserved huge pages for regions, if there are any.
    pub huge_pages: bool,
    /// DSCP and ECN bits of RoCEv2 packets.
    pub traffic_class: u8,
    /// Service level, which switches map to a priority.
    pub service_level: u8,
    /// Where the kernel describes its devices; differs from `/sys` only in tests.
    pub sysfs: PathBuf,
}

impl Default for IbvConfig {
    fn default() -> Self {
        Self {
            name: None,
            library: LIBRARY.to_owned(),
            device: None,
            port: None,
            gid_index: None,
            local_address: None,
            mtu_bytes: None,
            placement: None,
            extended: None,
            // More than a typical host has; the system's limit is RLIMIT_MEMLOCK.
            max_registered_bytes: 1 << 40,
            huge_pages: true,
            traffic_class: 0,
            service_level: 0,
            sysfs: PathBuf::from("/sys"),
        }
    }
}

impl IbvConfig {
    /// The defaults, overridden by the environment: `DUNLIN_IBV_LIBRARY`, `_DEVICE`, `_PORT`, `_GID_INDEX`, `_ADDRESS`,
    /// `_MTU`, `_PLACEMENT` (`in-order` or `unordered`), `_EXTENDED` (`yes` or `no`), `_TRAFFIC_CLASS`,
    /// `_SERVICE_LEVEL`.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] with the variable's name when a value is not valid.
    pub fn from_environment() -> Result<Self, VerbsError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, VerbsError> {
        fn number<T: std::str::FromStr>(
            argument: &'static str,
            text: Option<String>,
        ) -> Result<Option<T>, VerbsError> {
            text.map(|text| {
                text.trim().parse().map_err(|_| VerbsError::Invalid {
                    argument,
                    why: format!("invalid value `{text}`"),
                })
            })
            .transpose()
        }
        let mut config = Self::default();
        if let Some(library) = variable("DUNLIN_IBV_LIBRARY") {
            config.library = library;
        }
        config.device = variable("DUNLIN_IBV_DEVICE");
        config.port = number("DUNLIN_IBV_PORT", variable("DUNLIN_IBV_PORT"))?;
        config.gid_index = number("DUNLIN_IBV_GID_INDEX", variable("DUNLIN_IBV_GID_INDEX"))?;
        config.local_address = number("DUNLIN_IBV_ADDRESS", variable("DUNLIN_IBV_ADDRESS"))?;
        config.mtu_bytes = number("DUNLIN_IBV_MTU", variable("DUNLIN_IBV_MTU"))?;
        if let Some(class) = number(
            "DUNLIN_IBV_TRAFFIC_CLASS",
            variable("DUNLIN_IBV_TRAFFIC_CLASS"),
        )? {
            config.traffic_class = class;
        }
        if let Some(level) = number(
            "DUNLIN_IBV_SERVICE_LEVEL",
            variable("DUNLIN_IBV_SERVICE_LEVEL"),
        )? {
            config.service_level = level;
        }
        config.placement = match variable("DUNLIN_IBV_PLACEMENT").as_deref() {
            None => None,
            Some("in-order") => Some(Placement::InOrder),
            Some("unordered") => Some(Placement::Unordered),
            Some(other) => {
                return Err(VerbsError::Invalid {
                    argument: "DUNLIN_IBV_PLACEMENT",
                    why: format!("invalid value `{other}`: expected `in-order` or `unordered`"),
                })
            }
        };
        config.extended = match variable("DUNLIN_IBV_EXTENDED").as_deref() {
            None => None,
            Some("yes") => Some(true),
            Some("no") => Some(false),
            Some(other) => {
                return Err(VerbsError::Invalid {
                    argument: "DUNLIN_IBV_EXTENDED",
                    why: format!("invalid value `{other}`: expected `yes` or `no`"),
                })
            }
        };
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_variables() {
        let config = IbvConfig::from_variables(|name| match name {
            "DUNLIN_IBV_DEVICE" => Some("mlx5_1".into()),
            "DUNLIN_IBV_GID_INDEX" => Some("3".into()),
            "DUNLIN_IBV_PLACEMENT" => Some("in-order".into()),
            _ => None,
        })
        .expect("a config");
        assert_eq!(config.device.as_deref(), Some("mlx5_1"));
        assert_eq!(config.gid_index, Some(3));
        assert_eq!(config.placement, Some(Placement::InOrder));
        let error =
            IbvConfig::from_variables(|name| (name == "DUNLIN_IBV_PORT").then(|| "x".into()))
                .expect_err("no number");
        assert!(error.to_string().contains("DUNLIN_IBV_PORT"), "{error}");
    }
}
