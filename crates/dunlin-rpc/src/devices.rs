//! The devices of this machine, and which of them a connection uses.
//!
//! The one list of devices above the wall. A new device is one more entry in [`open_all`].

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
        .filter(|(name, _)| Kinds::Bare.include(name, None))
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
    let device = ShmDevice::open(ShmConfig::from_environment())?;
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

/// What was chosen on a device beyond its name, for people; towards a peer at this address, or any.
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

/// In front of the name of a device that Flor's queue pairs are made of.
const FLOR: &str = "flor-";

/// Which of a host's devices are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Those that there are.
    Bare,
    /// Flor over each of them.
    Flor,
    /// All of these: what a server offers.
    All,
}

impl Kinds {
    /// Those for clients of a preset.
    pub(crate) fn of(preset: Preset) -> Self {
        match preset.is_over_flor() {
            true => Self::Flor,
            false => Self::Bare,
        }
    }

    /// A device that a user has named, as one of these: Flor over the device that was named, where that is asked for.
    pub(crate) fn name(self, name: &str) -> String {
        match self {
            Self::Flor if !name.starts_with(FLOR) => format!("{FLOR}{name}"),
            _ => name.to_owned(),
        }
    }

    /// Whether a device is one of these and what was asked for, by its name or its kind.
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

/// Flor over a device, as Table 1 has it for what the device says of its network.
pub(crate) fn flor_over<D: Device>(device: &D) -> Result<FlorDevice<D>, VerbsError> {
    let config = FlorConfig::for_device(device.attributes());
    FlorDevice::new(device.clone(), config)
}

/// The device on which Flor's device of this name stands.
pub(crate) fn below(name: &str) -> Option<&str> {
    name.strip_prefix(FLOR)
}

/// Whether this is the name of a device of Flor's.
pub(crate) fn is_flor(name: &str) -> bool {
    name.starts_with(FLOR)
}

/// Those over devices of one type that this process has opened: each has a thread.
type OpenFlor<D> = PerProcess<Mutex<Vec<FlorDevice<D>>>>;

/// Flor over a device of this process, opened once for each that is not the same.
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

/// A device by name, open or not usable.
type Opened = (String, Result<Arc<dyn Fabric>, VerbsError>);

/// All devices, with Flor over each of them.
fn open_all(route: Route) -> Vec<Opened> {
    let mut all = vec![("shm".to_string(), shared_memory().map(fabric))];
    open_others(route, &mut all);
    all
}

fn fabric<D: Device>(device: D) -> Arc<dyn Fabric> {
    Arc::new(DeviceFabric(device))
}

/// A device that somebody else has opened, or Flor over it where that is wanted and it is none of Flor's itself.
pub(crate) fn fabric_on<D: Device>(
    device: &D,
    over_flor: bool,
) -> Result<Arc<dyn Fabric>, VerbsError> {
    match over_flor && !is_flor(&device.attributes().name) {
        true => Ok(fabric(flor_over(device)?)),
        false => Ok(fabric(device.clone())),
    }
}

/// All of RPC is compiled once for each device that is named here, and unit tests need shared memory alone.
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

/// The usable devices, all or those with the name or kind `only`; of several NICs the one whose interface has the
/// route's address of this host, if there is one.
///
/// # Errors
/// The names there are, when `only` is none of them.
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

/// What a client of `address` offers when nothing is chosen: all devices that are usable here, with whom each can
/// reach; of several NICs the one whose interface leads to the address.
///
/// # Errors
/// When this host cannot be told from others.
pub fn offered(address: &Address) -> std::io::Result<Vec<Capability>> {
    let towards = towards(address, LOOK_UP).unwrap_or_default();
    capabilities(&fabrics(None, towards, Kinds::Bare).unwrap_or_default())
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

/// What a process offers to its peers with a device: its name, and whom it reaches; shared memory by a folder as well,
/// where it has one.
///
/// # Errors
/// When this host cannot be told from others.
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

/// What this process can offer to a peer over `fabrics`.
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
