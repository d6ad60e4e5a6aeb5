//! Devices for what is no RPC: streams and rings meet over the same handshake, and choose from the same list.

use dunlin_verbs::{Device, DeviceAttributes, VerbsError};

use crate::bootstrap::{Capability, HostId, Reach};
use crate::devices;

/// Something to do with a device whose type is known only when it is chosen.
pub trait DeviceVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<D: Device>(self, device: &D) -> Self::Output;
}

/// The names that [`visit_device`] knows, whether they can be used here or not.
pub const DEVICE_NAMES: [&str; 2] = ["shm", "ibv"];

/// Shows a visitor the device with a name, as it stands in [`DEVICE_NAMES`] or in the device's own attributes. A process opens a device once,
/// for RPC and for all else.
///
/// # Errors
/// When there is none of this name, or it cannot be opened here.
pub fn visit_device<V: DeviceVisitor>(name: &str, visitor: V) -> Result<V::Output, VerbsError> {
    match name.split(':').next() {
        Some("shm") => Ok(visitor.visit(&devices::shared_memory()?)),
        Some("ibv") => {
            let mut devices = devices::verbs_hardware(None).into_iter();
            let found = devices.find(|(known, _)| name == "ibv" || name == known);
            let (_, device) = found.ok_or_else(|| no_device(name))?;
            Ok(visitor.visit(&device?))
        }
        _ => Err(no_device(name)),
    }
}

fn no_device(name: &str) -> VerbsError {
    VerbsError::Invalid {
        argument: "device",
        why: format!("there is no device `{name}`; see `dunlin devices`"),
    }
}

/// What a process offers to its peers with a device: its name, and whom it reaches.
///
/// # Errors
/// When this host cannot be told from others.
pub fn capability(attributes: &DeviceAttributes) -> std::io::Result<Capability> {
    let device = attributes.name.clone();
    // Shared memory reaches the processes of this host.
    let reach = match device.as_str() {
        "shm" => Reach::SameHost(HostId::of_this_process()?),
        _ => Reach::Network,
    };
    Ok(Capability { device, reach })
}
