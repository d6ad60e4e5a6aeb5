//! The devices of this machine, and which of them a connection uses.
//!
//! The one list of devices above the wall. A new device is one more entry in [`open_all`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_bootstrap::{look_up, Address, BootstrapError, Capability, HostId, Reach};
use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::process::PerProcess;
use dunlin_verbs::{Device, DeviceAttributes, VerbsError};

use crate::fabric::{DeviceFabric, Fabric, Fabrics};

/// How long a name is looked up where no other time is set.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(5);

/// A device of this machine, or why it cannot be used.
#[derive(Debug)]
pub struct DeviceReport {
    /// Its name on the command line.
    pub name: String,
    /// What it can do, or what is missing.
    pub attributes: Result<DeviceAttributes, VerbsError>,
}

/// Between which addresses a device is to carry packets, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// Of this host.
    pub(crate) local: Option<IpAddr>,
    /// Of the peer's.
    pub(crate) remote: Option<IpAddr>,
}

/// All devices that Dunlin knows, usable here or not.
pub fn available() -> Vec<DeviceReport> {
    open_all(Route::default())
        .into_iter()
        .map(|(name, fabric)| DeviceReport {
            name,
            attributes: fabric.map(|fabric| fabric.attributes().clone()),
        })
        .collect()
}

/// The shared-memory device of this process; opened once, because peers are sessions with a device.
pub(crate) fn shared_memory() -> Result<ShmDevice, VerbsError> {
    static OPEN: PerProcess<Mutex<Option<ShmDevice>>> = PerProcess::new();
    let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*open {
        return Ok(device.clone());
    }
    let device = ShmDevice::open(ShmConfig::default())?;
    *open = Some(device.clone());
    Ok(device)
}

/// The device on UDP of this process, as it is seen on a route; opened once, because it has a port.
pub(crate) fn udp(route: Route) -> Result<RoceDevice, VerbsError> {
    static OPEN: PerProcess<Mutex<Option<RoceDevice>>> = PerProcess::new();
    let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    let device = match &*open {
        Some(device) => device.clone(),
        None => RoceDevice::open(RoceConfig::from_environment()?)?,
    };
    *open = Some(device.clone());
    Ok(match route.remote {
        Some(remote) => device.towards(remote),
        None => device,
    })
}

/// The RDMA NICs that this process has opened, each once for each of its addresses; looked for again when asked for.
static NICS: PerProcess<Mutex<Vec<IbvDevice>>> = PerProcess::new();

fn nics() -> std::sync::MutexGuard<'static, Vec<IbvDevice>> {
    NICS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens an RDMA NIC, or finds it among those that are open.
fn open_nic(config: IbvConfig) -> Result<IbvDevice, VerbsError> {
    let mut open = nics();
    // What was asked for without a choice of address is what is open already.
    let by_name = |device: &&IbvDevice| {
        config.local_address.is_none() && config.device.as_deref() == Some(device.nic())
    };
    if let Some(device) = open.iter().find(by_name) {
        return Ok(device.clone());
    }
    let device = IbvDevice::open(config)?;
    let same = |other: &&IbvDevice| (other.nic(), other.port()) == (device.nic(), device.port());
    if let Some(device) = open.iter().find(same) {
        return Ok(device.clone());
    }
    open.push(device.clone());
    Ok(device)
}

/// The RDMA NICs for an address of this host, or all: by name, open or not usable.
pub(crate) fn verbs_hardware(
    local: Option<IpAddr>,
) -> Vec<(String, Result<IbvDevice, VerbsError>)> {
    let config = match IbvConfig::from_environment() {
        Ok(config) => config,
        Err(error) => return vec![("ibv".to_string(), Err(error))],
    };
    let name = |device: &IbvDevice| device.attributes().name.clone();
    if config.device.is_some() || config.local_address.is_some() {
        let device = open_nic(config);
        return vec![(device.as_ref().map_or("ibv".to_string(), name), device)];
    }
    if let Some(address) = local {
        let mut config = config.clone();
        config.local_address = Some(address);
        // A host's network for RDMA may be another than the one its names stand for; then any NIC may do.
        if let Ok(device) = open_nic(config) {
            return vec![(name(&device), Ok(device))];
        }
    }
    let listed = match dunlin_ibv::list_with(&config.library) {
        Ok(listed) if !listed.is_empty() => listed,
        // It says what is missing.
        _ => return vec![("ibv".to_string(), open_nic(config))],
    };
    let open = |nic: String| {
        let mut config = config.clone();
        config.device = Some(nic.clone());
        (format!("ibv:{nic}"), open_nic(config))
    };
    listed.into_iter().map(|nic| open(nic.name)).collect()
}

/// The open NIC with a name; of several the last, which is the one that was chosen for an address.
pub(crate) fn nic(name: &str) -> Option<IbvDevice> {
    let open = nics();
    let named = open.iter().rfind(|device| device.attributes().name == name);
    named.cloned()
}

/// The device whose network interface has an address of this host.
pub(crate) fn at(address: IpAddr) -> Option<String> {
    let open = nics();
    let mut here = open.iter().filter(|device| device.is_at(address));
    here.next().map(|device| device.attributes().name.clone())
}

/// What was chosen on a device beyond its name, for people.
pub fn chosen(name: &str) -> Option<String> {
    if name == "roce" {
        let device = udp(Route::default()).ok()?;
        let buffer = device.receive_buffer_bytes() >> 10;
        return Some(format!(
            "UDP port {}, MTU {} bytes at most, {buffer} KiB of receive buffer",
            device.port(),
            device.attributes().mtu_bytes
        ));
    }
    let open = nics();
    // The last is the one that was chosen for an address.
    let device = open
        .iter()
        .rfind(|device| device.attributes().name == name)?;
    let port = device.port();
    Some(format!("{}: {}", port.gid, port.why))
}

/// The way to a server; `None` without a route. For this host itself no address of it is named.
fn route(remote: SocketAddr) -> Option<Route> {
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a datagram socket sends nothing: it only asks the routing table.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    let local = socket.local_addr().ok()?.ip().to_canonical();
    Some(Route {
        local: Some(local).filter(|local| !local.is_loopback() && !local.is_unspecified()),
        remote: Some(remote.ip().to_canonical()),
    })
}

/// A device by name, open or not usable.
type Opened = (String, Result<Arc<dyn Fabric>, VerbsError>);

fn open_all(route: Route) -> Vec<Opened> {
    fn fabric<D: Device>(device: D) -> Arc<dyn Fabric> {
        Arc::new(DeviceFabric(device))
    }
    let mut all: Vec<Opened> = vec![("shm".to_string(), shared_memory().map(fabric))];
    let hardware = verbs_hardware(route.local).into_iter();
    all.extend(hardware.map(|(name, device)| (name, device.map(fabric))));
    all.push(("roce".to_string(), udp(route).map(fabric)));
    all
}

/// The usable devices, all or those with the name or kind `only`; of several NICs the one whose interface has the
/// route's address of this host, if there is one.
///
/// # Errors
/// The names there are, when `only` is none of them.
pub(crate) fn fabrics(only: Option<&str>, route: Route) -> Result<Fabrics, String> {
    let mut usable = Vec::new();
    let mut names = Vec::new();
    for (name, fabric) in open_all(route) {
        match fabric {
            Ok(fabric) => {
                if only.is_none_or(|only| name == only || name.split(':').next() == Some(only)) {
                    usable.push(fabric);
                }
                names.push(name);
            }
            Err(error) => names.push(format!("{name} (not usable: {error})")),
        }
    }
    if usable.is_empty() {
        return Err(names.join(", "));
    }
    Ok(usable)
}

/// What a client of `address` offers when nothing is chosen: all devices that are usable here, with whom each can
/// reach; of several NICs the one whose interface leads to the address.
///
/// # Errors
/// When this host cannot be told from others.
pub fn offered(address: &Address) -> std::io::Result<Vec<Capability>> {
    let towards = towards(address, LOOK_UP).unwrap_or_default();
    capabilities(&fabrics(None, towards).unwrap_or_default())
}

/// The way on which a server would be reached; to a name that is not known there is none.
///
/// # Errors
/// When the name was not looked up within `timeout`.
pub(crate) fn towards(address: &Address, timeout: Duration) -> Result<Route, BootstrapError> {
    match look_up(address, timeout) {
        Ok(all) => Ok(all.into_iter().find_map(route).unwrap_or_default()),
        Err(error @ BootstrapError::Timeout { .. }) => Err(error),
        Err(_) => Ok(Route::default()),
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
        _ if attributes.speaks_roce => Reach::RoceV2,
        _ => Reach::Network,
    };
    Ok(Capability { device, reach })
}

/// What this process can offer to a peer over `fabrics`.
pub(crate) fn capabilities(fabrics: &Fabrics) -> std::io::Result<Vec<Capability>> {
    let all = fabrics.iter();
    all.map(|fabric| capability(fabric.attributes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::MAX_CONNECTIONS;

    /// Else a limit with another name ends them, in the middle of a handshake.
    #[test]
    fn the_device_has_room_for_all_connections_of_a_server() {
        let limits = ShmConfig::default();
        // Two rings or pools, and room for long messages.
        assert!(limits.max_regions >= 3 * MAX_CONNECTIONS);
        assert!(limits.max_queue_pairs >= 2 * MAX_CONNECTIONS);
        assert!(limits.max_registered_bytes / MAX_CONNECTIONS >= 512 << 10);
    }
}
