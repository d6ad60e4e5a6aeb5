//! The devices that this process has opened: each once, for all that use it.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_bootstrap::device_name::{kind, IBV};
use dunlin_flor::device::{FlorConfig, FlorDevice};
use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::process::PerProcess;
use dunlin_verbs::{Device, VerbsError};

use super::Route;

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

fn nics() -> MutexGuard<'static, Vec<IbvDevice>> {
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
pub(crate) fn nics_for(local: Option<IpAddr>) -> Vec<(String, Result<IbvDevice, VerbsError>)> {
    let config = match IbvConfig::from_environment() {
        Ok(config) => config,
        Err(error) => return vec![(IBV.to_owned(), Err(error))],
    };
    let name = |device: &IbvDevice| device.attributes().name.clone();
    if config.device.is_some() || config.local_address.is_some() {
        let device = open_nic(config);
        return vec![(device.as_ref().map_or(IBV.to_owned(), name), device)];
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
        _ => return vec![(IBV.to_owned(), open_nic(config))],
    };
    let open = |nic: String| {
        let mut config = config.clone();
        config.device = Some(nic.clone());
        (format!("{IBV}:{nic}"), open_nic(config))
    };
    listed.into_iter().map(|nic| open(nic.name)).collect()
}

/// The RDMA NIC of this name, opened or with the reason why not; nothing if a NIC cannot have it.
pub(super) fn nics_named(name: &str) -> Vec<(String, Result<IbvDevice, VerbsError>)> {
    match nic(name) {
        Some(nic) => vec![(name.to_owned(), Ok(nic))],
        None if kind(name) == IBV => nics_for(None),
        None => Vec::new(),
    }
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

/// Opens Flor over a device, with Table 1's settings for the network that the device reports.
pub(crate) fn flor_over<D: Device>(device: &D) -> Result<FlorDevice<D>, VerbsError> {
    let config = FlorConfig::for_device(device.attributes());
    FlorDevice::new(device.clone(), config)
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
