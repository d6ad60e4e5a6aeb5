//! The devices that `perf verbs` is compiled for. A new device is one more arm in [`on_device`].

use std::net::Ipv4Addr;

use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

use crate::commands::Failure;

/// Something to do with a device of any type.
pub trait OnDevice {
    /// The result.
    type Output;

    /// Runs it.
    ///
    /// # Errors
    /// As the command's.
    fn run<D: Device>(self, device: D) -> Result<Self::Output, Failure>;
}

/// Which pages a device may take for regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The best there are.
    Any,
    /// Ordinary pages, even where there are huge ones.
    Base,
}

impl Pages {
    /// Those of a ring.
    pub fn of(plan: &crate::ring::Plan) -> Self {
        if plan.has(crate::ring::Without::HugePages) {
            Self::Any
        } else {
            Self::Base
        }
    }
}

/// Opens the device with a name and does something with it.
///
/// # Errors
/// The names there are, when it is none of them; why it cannot be opened.
pub fn on_device<V: OnDevice>(name: &str, visitor: V) -> Result<V::Output, Failure> {
    on_device_with(name, Pages::Any, visitor)
}

/// Opens the device with a name so that it takes pages of a kind, and does something with it.
///
/// # Errors
/// As for [`on_device`].
pub fn on_device_with<V: OnDevice>(
    name: &str,
    pages: Pages,
    visitor: V,
) -> Result<V::Output, Failure> {
    let opening =
        |error: dunlin_verbs::VerbsError| Failure::new(format!("device `{name}`: {error}"));
    match name {
        "shm" => {
            let mut config = ShmConfig::default();
            config.huge_pages = pages == Pages::Any;
            visitor.run(ShmDevice::open(config).map_err(opening)?)
        }
        "roce" => {
            let mut config = RoceConfig::from_environment().map_err(opening)?;
            // Both ends of these are told of each other without a handshake.
            config.local_address = config.local_address.or(Some(Ipv4Addr::LOCALHOST.into()));
            visitor.run(RoceDevice::open(config).map_err(opening)?)
        }
        _ if name == "ibv" || name.starts_with("ibv:") => {
            let mut config = IbvConfig::from_environment().map_err(opening)?;
            if let Some((_, nic)) = name.split_once(':') {
                config.device = Some(nic.to_owned());
            }
            visitor.run(IbvDevice::open(config).map_err(opening)?)
        }
        _ => Err(
            Failure::new(format!("no device `{name}` on this host")).help(format!(
                "available devices: {}; see `dunlin devices`",
                names()
            )),
        ),
    }
}

fn names() -> String {
    let names: Vec<String> = dunlin::available()
        .into_iter()
        .map(|device| match device.attributes {
            Ok(_) => device.name,
            Err(error) => format!("{} (not usable: {error})", device.name),
        })
        .collect();
    names.join(", ")
}
