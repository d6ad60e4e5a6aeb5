//! Devices for what is no RPC: streams and rings meet over the same handshake, and choose from the same list.

use dunlin_bootstrap::{Address, Capability};
use dunlin_verbs::{Device, VerbsError};

use crate::devices::{self, capability, Route};

/// Something to do with a device whose type is known only when it is chosen.
pub trait DeviceVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<D: Device>(self, device: &D) -> Self::Output;
}

/// Shows a visitor the device with a name, as [`capabilities_towards`] gave it, for a peer at `address` or for all. A
/// process opens a device once, for RPC and for all else.
///
/// # Errors
/// When there is none of this name, or it cannot be opened here.
pub fn visit_device<V: DeviceVisitor>(
    name: &str,
    address: Option<&Address>,
    visitor: V,
) -> Result<V::Output, VerbsError> {
    if name == "shm" {
        return Ok(visitor.visit(&devices::shared_memory()?));
    }
    if name == "roce" {
        return Ok(visitor.visit(&devices::udp(route_to(address))?));
    }
    if name == "flor-shm" {
        return Ok(visitor.visit(&devices::flor_shm()?));
    }
    if name == "flor-roce" {
        return Ok(visitor.visit(&devices::flor_udp(route_to(address))?));
    }
    if let Some(nic) = name.strip_prefix("flor-").and_then(devices::nic) {
        return Ok(visitor.visit(&devices::flor_nic(&nic)?));
    }
    if let Some(nic) = devices::nic(name) {
        return Ok(visitor.visit(&nic));
    }
    let mut nics = devices::verbs_hardware(None).into_iter();
    match nics.find(|(one, _)| one == name) {
        Some((_, nic)) => Ok(visitor.visit(&nic?)),
        None => Err(VerbsError::Invalid {
            argument: "device",
            why: format!("there is no device `{name}`; see `dunlin devices`"),
        }),
    }
}

/// What a process offers with all its devices, in whatever order they place WRITEs; of several NICs the one that leads
/// to `address`, if there is one. Also why the others cannot be used.
///
/// # Errors
/// When this host cannot be told from others.
pub fn capabilities_towards(
    address: Option<&Address>,
) -> std::io::Result<(Vec<Capability>, Vec<String>)> {
    let (mut usable, mut missing) = (Vec::new(), Vec::new());
    let route = route_to(address);
    match devices::shared_memory() {
        Ok(device) => usable.extend(capability(device.attributes())?),
        Err(error) => missing.push(format!("shm: {error}")),
    }
    for (name, nic) in devices::verbs_hardware(route.local) {
        match nic {
            Ok(nic) => usable.extend(capability(nic.attributes())?),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    match devices::udp(route) {
        Ok(device) => usable.extend(capability(device.attributes())?),
        Err(error) => missing.push(format!("roce: {error}")),
    }
    Ok((usable, missing))
}

/// The way to a peer; nothing is known of it where its name is not.
fn route_to(address: Option<&Address>) -> Route {
    let route = address.map(|address| devices::towards(address, devices::LOOK_UP));
    route.transpose().unwrap_or_default().unwrap_or_default()
}
