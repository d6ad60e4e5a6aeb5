//! The devices of this machine, and the choice of the device that a connection uses.
//!
//! The only list of devices above the verbs layer. A new device is one more entry in [`open_all`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_bootstrap::{look_up, Address, BootstrapError, Capability, HostId, Reach};
use dunlin_flor::device::{FlorConfig, FlorDevice};
use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::process::PerProcess;
use dunlin_verbs::{Device, DeviceAttributes, VerbsError};

use crate::fabric::{DeviceFabric, Fabric, Fabrics};
use crate::preset::Preset;

/// Default time limit for looking up a name.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(5);

/// A device of this machine, or why it cannot be used.
#[derive(Debug)]
pub struct DeviceReport {
    /// The device's name, as on the command line.
    pub name: String,
    /// What the device supports, or why it cannot be used.
    pub attributes: Result<DeviceAttributes, VerbsError>,
}

/// The addresses between which a device is to carry packets, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// The address of this host.
    pub(crate) local: Option<IpAddr>,
    /// The address of the peer.
    pub(crate) remote: Option<IpAddr>,
}

/// Returns all devices that Dunlin knows, whether or not they can be used here.
pub fn available() -> Vec<DeviceReport> {
    open_all(Route::default())
        .into_iter()
        .filter(|(name, _)| Kinds::Bare.include(name, None))
        .map(|(name, fabric)| DeviceReport {
            name,
            attributes: fabric.map(|fabric| fabric.attributes().clone()),
        })
        .collect()
}

/// The shared-memory device of this process, opened once because peers have sessions with a device.
pub(crate) fn shared_memory() -> Result<ShmDevice, VerbsError> {
    static OPEN: PerProcess<Mutex<Option<ShmDevice>>> = PerProcess::new();
    let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*open {
        return Ok(device.clone());
    }
    let device = ShmDevice::open(ShmConfig::from_environment())?;
    *open = Some(device.clone());
    Ok(device)
}

/// The UDP device of this process, as seen on a route; opened once because it has a port.
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

/// The RDMA NICs that this process has opened, each once for each of its addresses; searched again on every request.
static NICS: PerProcess<Mutex<Vec<IbvDevice>>> = PerProcess::new();

fn nics() -> std::sync::MutexGuard<'static, Vec<IbvDevice>> {
    NICS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens an RDMA NIC, or returns it if it is open already.
fn open_nic(config: IbvConfig) -> Result<IbvDevice, VerbsError> {
    let mut open = nics();
    // A request without a choice of address gets what is open already.
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

/// The RDMA NICs for an address of this host, or all of them: by name, opened or with the reason why not.
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
        // A host's RDMA network may differ from the one that its names resolve to; then any NIC may do.
        if let Ok(device) = open_nic(config) {
            return vec![(name(&device), Ok(device))];
        }
    }
    let listed = match dunlin_ibv::list_with(&config.library) {
        Ok(listed) if !listed.is_empty() => listed,
        // The error says what is missing.
        _ => return vec![("ibv".to_string(), open_nic(config))],
    };
    let open = |nic: String| {
        let mut config = config.clone();
        config.device = Some(nic.clone());
        (format!("ibv:{nic}"), open_nic(config))
    };
    listed.into_iter().map(|nic| open(nic.name)).collect()
}

/// The open NIC with this name; of several the last, which is the one that was chosen for an address.
pub(crate) fn nic(name: &str) -> Option<IbvDevice> {
    let open = nics();
    let named = open.iter().rfind(|device| device.attributes().name == name);
    named.cloned()
}

/// The device whose network interface has this address of the host.
pub(crate) fn at(address: IpAddr) -> Option<String> {
    let open = nics();
    let mut here = open.iter().filter(|device| device.is_at(address));
    here.next().map(|device| device.attributes().name.clone())
}

/// Describes, for people, what was chosen on a device beyond its name, towards a peer at this address or any.
pub fn chosen(name: &str, peer: Option<IpAddr>) -> Option<String> {
    if name == "roce" {
        let device = udp(Route {
            local: None,
            remote: peer,
        });
        let device = device.ok()?;
        let mtu = device.attributes().mtu_bytes;
        let packets = match device.payload_bytes() {
            longest if longest > mtu => {
                format!("packets of {longest} bytes at most, MTU {mtu} with others")
            }
            _ => format!("MTU {mtu} bytes at most"),
        };
        return Some(format!(
            "UDP port {}, {packets}, {} KiB of receive buffer",
            device.port(),
            device.receive_buffer_bytes() >> 10
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

/// The route to a server; `None` if there is none. For this host itself no local address is given.
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

/// Prefix of the names of Flor's devices, before the name of the device below.
const FLOR: &str = "flor-";

/// Selects among the kinds of a host's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// The devices themselves.
    Bare,
    /// Flor over each of the devices.
    Flor,
    /// Both: what a server offers.
    All,
}

impl Kinds {
    /// The kinds for clients of a preset.
    pub(crate) fn of(preset: Preset) -> Self {
        match preset.is_over_flor() {
            true => Self::Flor,
            false => Self::Bare,
        }
    }

    /// The name of the device of these kinds for a device that the user has named: Flor over it, if Flor is meant.
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Flor if !name.starts_with(FLOR) => format!("{FLOR}{name}"),
            _ => name.to_owned(),
        }
    }

    /// Whether a device is of these kinds and matches `only`, by its name or its kind.
    fn include(self, name: &str, only: Option<&str>) -> bool {
        let kind = |name: &str, only: &str| name == only || name.split(':').next() == Some(only);
        let below = below(name);
        match (self, only) {
            (_, Some(only)) if kind(name, only) => true,
            (Self::All, Some(only)) => below.is_some_and(|below| kind(below, only)),
            (_, Some(_)) => false,
            (Self::All, None) => true,
            (Self::Bare, None) => below.is_none(),
            (Self::Flor, None) => below.is_some(),
        }
    }
}

/// Opens Flor over a device, with Table 1's settings for the network that the device reports.
pub(crate) fn flor_over<D: Device>(device: &D) -> Result<FlorDevice<D>, VerbsError> {
    let config = FlorConfig::for_device(device.attributes());
    FlorDevice::new(device.clone(), config)
}

/// The name of the device below Flor's device with this name.
pub(crate) fn below(name: &str) -> Option<&str> {
    name.strip_prefix(FLOR)
}

/// Whether this is the name of a Flor device.
pub(crate) fn is_flor(name: &str) -> bool {
    name.starts_with(FLOR)
}

/// Flor's devices over devices of one type that this process has opened: each has a thread.
type OpenFlor<D> = PerProcess<Mutex<Vec<FlorDevice<D>>>>;

/// Flor over a device of this process, opened once for each different device.
fn flor<D: Device>(
    open: &'static OpenFlor<D>,
    device: &D,
    same: impl Fn(&D, &D) -> bool,
) -> Result<FlorDevice<D>, VerbsError> {
    let mut open = open.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = open.iter().find(|known| same(known.inner(), device)) {
        return Ok(known.clone());
    }
    let new = flor_over(device)?;
    open.push(new.clone());
    Ok(new)
}

pub(crate) fn flor_shm() -> Result<FlorDevice<ShmDevice>, VerbsError> {
    static OPEN: OpenFlor<ShmDevice> = PerProcess::new();
    flor(&OPEN, &shared_memory()?, |_, _| true)
}

pub(crate) fn flor_udp(route: Route) -> Result<FlorDevice<RoceDevice>, VerbsError> {
    static OPEN: OpenFlor<RoceDevice> = PerProcess::new();
    flor(&OPEN, &udp(route)?, |a, b| {
        a.local_address() == b.local_address()
    })
}

pub(crate) fn flor_nic(nic: &IbvDevice) -> Result<FlorDevice<IbvDevice>, VerbsError> {
    static OPEN: OpenFlor<IbvDevice> = PerProcess::new();
    flor(&OPEN, nic, |a, b| {
        (a.nic(), a.port()) == (b.nic(), b.port())
    })
}

/// A device by name, opened or with the reason why not.
type Opened = (String, Result<Arc<dyn Fabric>, VerbsError>);

/// Opens all devices, and Flor over each of them.
fn open_all(route: Route) -> Vec<Opened> {
    let mut all = vec![("shm".to_string(), shared_memory().map(fabric))];
    open_others(route, &mut all);
    all
}

fn fabric<D: Device>(device: D) -> Arc<dyn Fabric> {
    Arc::new(DeviceFabric(device))
}

/// The fabric of a device that the caller has opened, or of Flor over it if that is wanted and it is not a Flor device
/// itself.
pub(crate) fn fabric_on<D: Device>(
    device: &D,
    over_flor: bool,
) -> Result<Arc<dyn Fabric>, VerbsError> {
    match over_flor && !is_flor(&device.attributes().name) {
        true => Ok(fabric(flor_over(device)?)),
        false => Ok(fabric(device.clone())),
    }
}

/// All of RPC is compiled once for each device named here, and unit tests need only shared memory.
#[cfg(test)]
fn open_others(_: Route, _: &mut Vec<Opened>) {}

#[cfg(not(test))]
fn open_others(route: Route, all: &mut Vec<Opened>) {
    all.push((format!("{FLOR}shm"), flor_shm().map(fabric)));
    for (name, device) in verbs_hardware(route.local) {
        if let Ok(nic) = &device {
            all.push((format!("{FLOR}{name}"), flor_nic(nic).map(fabric)));
        }
        all.push((name, device.map(fabric)));
    }
    all.push(("roce".to_string(), udp(route).map(fabric)));
    all.push((format!("{FLOR}roce"), flor_udp(route).map(fabric)));
}

/// Returns the usable devices, all or those with the name or kind `only`; of several NICs the one whose interface has
/// the route's local address, if there is one.
///
/// # Errors
/// If `only` matches none: the names that there are.
pub(crate) fn fabrics(only: Option<&str>, route: Route, kinds: Kinds) -> Result<Fabrics, String> {
    let mut usable = Vec::new();
    let mut names = Vec::new();
    for (name, fabric) in open_all(route) {
        match fabric {
            Ok(fabric) => {
                if kinds.include(&name, only) {
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

/// Returns what a client of `address` offers by default: all devices that are usable here, with the peers that each can
/// reach; of several NICs the one whose interface leads to the address.
///
/// # Errors
/// If this host cannot be distinguished from others.
pub fn offered(address: &Address) -> std::io::Result<Vec<Capability>> {
    let towards = towards(address, LOOK_UP).unwrap_or_default();
    capabilities(&fabrics(None, towards, Kinds::Bare).unwrap_or_default())
}

/// Returns the route to a server; for an unknown name it is empty.
///
/// # Errors
/// If the name was not looked up within `timeout`.
pub(crate) fn towards(address: &Address, timeout: Duration) -> Result<Route, BootstrapError> {
    match look_up(address, timeout) {
        Ok(all) => Ok(all.into_iter().find_map(route).unwrap_or_default()),
        Err(error @ BootstrapError::Timeout { .. }) => Err(error),
        Err(_) => Ok(Route::default()),
    }
}

/// Returns what a process offers to its peers with a device: its name, and the peers that it reaches; shared memory
/// also by a directory, if it has one.
///
/// # Errors
/// If this host cannot be distinguished from others.
pub fn capability(attributes: &DeviceAttributes) -> std::io::Result<Vec<Capability>> {
    // Shared memory reaches the processes of this host.
    let reaches = match attributes.name.as_str() {
        "shm" | "flor-shm" => {
            let mut reaches = vec![Reach::SameHost(HostId::of_this_process()?)];
            if let Some(folder) = ShmConfig::from_environment().folder {
                reaches.push(Reach::SameHost(HostId::of_folder(&folder)?));
            }
            reaches
        }
        _ if attributes.speaks_roce => vec![Reach::RoceV2],
        _ => vec![Reach::Network],
    };
    let capability = |reach| Capability {
        device: attributes.name.clone(),
        reach,
    };
    Ok(reaches.into_iter().map(capability).collect())
}

/// Returns what this process can offer to a peer over `fabrics`.
pub(crate) fn capabilities(fabrics: &Fabrics) -> std::io::Result<Vec<Capability>> {
    let mut all = Vec::new();
    for fabric in fabrics {
        all.extend(capability(fabric.attributes())?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::MAX_CONNECTIONS;

    /// Otherwise connections would fail at a limit with another name, in the middle of a handshake.
    #[test]
    fn the_device_has_room_for_all_connections_of_a_server() {
        let limits = ShmConfig::default();
        // Two rings or pools, and room for long messages.
        assert!(limits.max_regions >= 3 * MAX_CONNECTIONS);
        assert!(limits.max_queue_pairs >= 2 * MAX_CONNECTIONS);
        assert!(limits.max_registered_bytes / MAX_CONNECTIONS >= 512 << 10);
    }
}
