//! The devices of this machine: the only list of devices above the verbs layer ([`known`]), their names, and what they
//! reach.

mod opening;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use dunlin_bootstrap::device_name::{bare, below, kind, over_flor, ROCE, SHM};
use dunlin_bootstrap::{look_up, Address, BootstrapError, Capability, HostId, Reach};
use dunlin_ibv::IbvDevice;
use dunlin_shm::ShmConfig;
use dunlin_verbs::{Device, DeviceAttributes, VerbsError};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use opening::shared_memory;
pub(crate) use opening::{at, flor_over};

use crate::preset::Preset;

/// Default time limit for looking up a name.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(5);

/// The addresses between which a device is to carry packets, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// The address of this host.
    pub(crate) local: Option<IpAddr>,
    /// The address of the peer.
    pub(crate) remote: Option<IpAddr>,
}

/// A device of the list, or why it cannot be used here as far as that is known before it is opened.
pub(crate) struct Known {
    pub(crate) name: String,
    kind: Result<Kind, VerbsError>,
}

#[derive(Clone)]
enum Kind {
    SharedMemory,
    Nic(IbvDevice),
    Udp(Route),
}

/// The list of this machine's devices, each with Flor over it. Of equal devices the first is preferred. UDP takes this
/// route; of several NICs the one with its local address is listed, or for a device that is asked for by name the one
/// of this name.
pub(crate) fn known(route: Route, name: Option<&str>) -> Vec<Known> {
    let with_flor = |name: &str, kind: Kind| {
        [name.to_owned(), over_flor(name)].map(|name| Known {
            name,
            kind: Ok(kind.clone()),
        })
    };
    let mut all = Vec::from(with_flor(SHM, Kind::SharedMemory));
    if cfg!(test) {
        all.truncate(1);
        return all;
    }
    let nics = match name {
        Some(name) => opening::nics_named(bare(name)),
        None => opening::nics_for(route.local),
    };
    for (name, nic) in nics {
        match nic {
            Ok(nic) => all.extend(with_flor(&name, Kind::Nic(nic))),
            Err(error) => all.push(Known {
                name,
                kind: Err(error),
            }),
        }
    }
    all.extend(with_flor(ROCE, Kind::Udp(route)));
    all
}

impl Known {
    /// Opens the device, or finds it open, and runs the operation on it.
    pub(crate) fn visit<V: DeviceVisitor>(self, visitor: V) -> Result<V::Output, VerbsError> {
        // All of RPC is compiled once for each device named below, and unit tests need only shared memory.
        if cfg!(test) {
            return Ok(visitor.visit(&opening::shared_memory()?));
        }
        Ok(match (self.kind?, is_flor(&self.name)) {
            (Kind::SharedMemory, false) => visitor.visit(&opening::shared_memory()?),
            (Kind::SharedMemory, true) => visitor.visit(&opening::flor_shm()?),
            (Kind::Nic(nic), false) => visitor.visit(&nic),
            (Kind::Nic(nic), true) => visitor.visit(&opening::flor_nic(&nic)?),
            (Kind::Udp(route), false) => visitor.visit(&opening::udp(route)?),
            (Kind::Udp(route), true) => visitor.visit(&opening::flor_udp(route)?),
        })
    }
}

/// An operation on a device whose type is known only once it is chosen.
pub trait DeviceVisitor {
    /// The operation's result.
    type Output;

    /// Runs the operation.
    fn visit<D: Device>(self, device: &D) -> Self::Output;
}

/// Runs a visitor on the device with a name that [`crate::capabilities_towards`] returned, for a peer at `address` or
/// for all. A process opens a device once, for RPC and everything else.
///
/// # Errors
/// If there is none of this name, or it cannot be opened here.
pub fn visit_device<V: DeviceVisitor>(
    name: &str,
    address: Option<&Address>,
    visitor: V,
) -> Result<V::Output, VerbsError> {
    let route = route_to(address.filter(|_| bare(name) == ROCE));
    let mut all = known(route, Some(name)).into_iter();
    match all.find(|known| known.name == name) {
        Some(known) => known.visit(visitor),
        None => Err(VerbsError::Invalid {
            argument: "device",
            why: format!("no such device `{name}`; see `dunlin devices`"),
        }),
    }
}

/// Describes, for people, what was chosen on a device beyond its name, towards a peer at this address or any.
pub fn chosen(name: &str, peer: Option<IpAddr>) -> Option<String> {
    if name == ROCE {
        let route = Route {
            local: None,
            remote: peer,
        };
        let device = opening::udp(route).ok()?;
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
    let nic = opening::nic(name)?;
    let port = nic.port();
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
            Self::Flor if !is_flor(name) => over_flor(name),
            _ => name.to_owned(),
        }
    }

    /// Whether a device is of these kinds and matches `only`, by its name or its kind.
    pub(crate) fn include(self, name: &str, only: Option<&str>) -> bool {
        let fits = |name: &str, only: &str| name == only || kind(name) == only;
        let below = below(name);
        match (self, only) {
            (_, Some(only)) if fits(name, only) => true,
            (Self::All, Some(only)) => below.is_some_and(|below| fits(below, only)),
            (_, Some(_)) => false,
            (Self::All, None) => true,
            (Self::Bare, None) => below.is_none(),
            (Self::Flor, None) => below.is_some(),
        }
    }
}

/// Whether this is the name of a Flor device.
pub(crate) fn is_flor(name: &str) -> bool {
    below(name).is_some()
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

/// The route to a peer; empty if the peer's name is unknown.
pub(crate) fn route_to(address: Option<&Address>) -> Route {
    let route = address.map(|address| towards(address, LOOK_UP));
    route.transpose().unwrap_or_default().unwrap_or_default()
}

/// Returns what a process offers to its peers with a device: its name, and the peers that it reaches; shared memory
/// also by a directory, if it has one.
///
/// # Errors
/// If this host cannot be distinguished from others.
pub fn capability(attributes: &DeviceAttributes) -> std::io::Result<Vec<Capability>> {
    // Shared memory reaches the processes of this host.
    let reaches = match bare(&attributes.name) {
        SHM => {
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

#[cfg(test)]
mod tests {
    use dunlin_shm::ShmConfig;

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
