//! Devices for users other than RPC: streams and rings connect over the same handshake, and choose from the same list.

use dunlin_bootstrap::{Address, Capability};
use dunlin_verbs::{Device, VerbsError};

use crate::devices::{self, capability, Route};

/// An operation on a device whose type is known only once it is chosen.
pub trait DeviceVisitor {
    /// The operation's result.
    type Output;

    /// Runs the operation.
    fn visit<D: Device>(self, device: &D) -> Self::Output;
}

/// Runs a visitor on the device with a name that [`capabilities_towards`] returned, for a peer at `address` or for all.
/// A process opens a device once, for RPC and everything else.
///
/// # Errors
/// If there is none of this name, or it cannot be opened here.
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

/// Returns what a process offers with all its devices, regardless of the order in which they place WRITEs; of several
/// NICs the one that leads to `address`, if there is one. Also returns why the other devices cannot be used.
///
/// # Errors
/// If this host cannot be distinguished from others.
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

/// The route to a peer; empty if the peer's name is unknown.
fn route_to(address: Option<&Address>) -> Route {
    let route = address.map(|address| devices::towards(address, devices::LOOK_UP));
    route.transpose().unwrap_or_default().unwrap_or_default()
}
