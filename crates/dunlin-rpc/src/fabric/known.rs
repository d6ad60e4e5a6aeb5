//! The devices of this machine as fabrics: which there are, and what clients and servers offer of them.

use std::sync::Arc;

use dunlin_bootstrap::{Address, Capability};
use dunlin_verbs::{Device, DeviceAttributes, VerbsError};

use super::{DeviceFabric, Fabric, Fabrics};
use crate::devices::{self, capability, DeviceVisitor, Kinds, Known, Route};

/// A device of this machine, or why it cannot be used.
#[derive(Debug)]
pub struct DeviceReport {
    /// The device's name, as on the command line.
    pub name: String,
    /// What the device supports, or why it cannot be used.
    pub attributes: Result<DeviceAttributes, VerbsError>,
}

/// Makes the fabric of a device.
struct Make;

impl DeviceVisitor for Make {
    type Output = Arc<dyn Fabric>;

    fn visit<D: Device>(self, device: &D) -> Arc<dyn Fabric> {
        Arc::new(DeviceFabric(device.clone()))
    }
}

/// Opens the devices whose names are wanted; with each is its name, and why it cannot be used if so.
fn open(
    route: Route,
    wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (String, Result<Arc<dyn Fabric>, VerbsError>)> {
    let wanted = move |known: &Known| wanted(&known.name);
    let all = devices::known(route, None).into_iter().filter(wanted);
    all.map(|known| (known.name.clone(), known.visit(Make)))
}

/// The fabric of a device that the caller has opened, or of Flor over it if that is wanted and it is not a Flor device
/// itself.
pub(crate) fn fabric_on<D: Device>(
    device: &D,
    over_flor: bool,
) -> Result<Arc<dyn Fabric>, VerbsError> {
    match over_flor && !devices::is_flor(&device.attributes().name) {
        true => Ok(Make.visit(&devices::flor_over(device)?)),
        false => Ok(Make.visit(device)),
    }
}

/// Returns all devices that Dunlin knows, whether or not they can be used here.
pub fn available() -> Vec<DeviceReport> {
    let all = open(Route::default(), |name| !devices::is_flor(name));
    let report = |(name, fabric): (_, Result<Arc<dyn Fabric>, _>)| DeviceReport {
        name,
        attributes: fabric.map(|fabric| fabric.attributes().clone()),
    };
    all.map(report).collect()
}

/// Returns the usable devices, all or those with the name or kind `only`; of several NICs the one whose interface has
/// the route's local address, if there is one.
///
/// # Errors
/// If `only` matches none: the names that there are.
pub(crate) fn fabrics(only: Option<&str>, route: Route, kinds: Kinds) -> Result<Fabrics, String> {
    let chosen = open(route, |name| kinds.include(name, only));
    let usable: Fabrics = chosen.filter_map(|(_, fabric)| fabric.ok()).collect();
    if !usable.is_empty() {
        return Ok(usable);
    }
    let names = open(route, |_| true).map(|(name, fabric)| match fabric {
        Ok(_) => name,
        Err(error) => format!("{name} (not usable: {error})"),
    });
    Err(names.collect::<Vec<_>>().join(", "))
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
    for (name, fabric) in open(devices::route_to(address), |name| !devices::is_flor(name)) {
        match fabric {
            Ok(fabric) => usable.extend(capability(fabric.attributes())?),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    Ok((usable, missing))
}

/// Returns what this process can offer to a peer over `fabrics`.
pub(crate) fn capabilities(fabrics: &Fabrics) -> std::io::Result<Vec<Capability>> {
    let mut all = Vec::new();
    for fabric in fabrics {
        all.extend(capability(fabric.attributes())?);
    }
    Ok(all)
}
