//! The devices of this machine, and which of them a connection uses.
//!
//! The one list of devices above the wall. A new device is one more entry in [`open_all`].

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{DeviceAttributes, VerbsError};

use crate::bootstrap::{Capability, HostId, Reach};
use crate::fabric::{Fabric, Fabrics, RingFabric};

/// A device of this machine, or why it cannot be used.
#[derive(Debug)]
pub struct DeviceReport {
    /// Its name on the command line.
    pub name: String,
    /// What it can do, or what is missing.
    pub attributes: Result<DeviceAttributes, VerbsError>,
}

/// All devices that Dunlin knows, usable here or not.
pub fn available() -> Vec<DeviceReport> {
    open_all()
        .into_iter()
        .map(|(name, fabric)| DeviceReport {
            name: name.to_string(),
            attributes: fabric.map(|fabric| fabric.attributes().clone()),
        })
        .collect()
}

/// The shared-memory device of this process; opened once, because peers are sessions with a device.
pub(crate) fn shared_memory() -> Result<ShmDevice, VerbsError> {
    static OPEN: Mutex<Option<ShmDevice>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*open {
        return Ok(device.clone());
    }
    let device = ShmDevice::open(ShmConfig::default())?;
    *open = Some(device.clone());
    Ok(device)
}

/// The RDMA NIC of this process, by libibverbs; opened once, and looked for again when there was none.
fn verbs_hardware() -> Result<IbvDevice, VerbsError> {
    static OPEN: Mutex<Option<IbvDevice>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*open {
        return Ok(device.clone());
    }
    let device = IbvDevice::open(IbvConfig::from_environment()?)?;
    *open = Some(device.clone());
    Ok(device)
}

/// A device by name, open or not usable.
type Opened = (&'static str, Result<Arc<dyn Fabric>, VerbsError>);

fn open_all() -> Vec<Opened> {
    let shared_memory =
        shared_memory().map(|device| Arc::new(RingFabric(device)) as Arc<dyn Fabric>);
    let hardware = verbs_hardware().map(|device| Arc::new(RingFabric(device)) as Arc<dyn Fabric>);
    vec![("shm", shared_memory), ("ibv", hardware)]
}

/// The usable devices, all or the one with the name `only`.
///
/// # Errors
/// The names there are, when `only` is none of them.
pub(crate) fn fabrics(only: Option<&str>) -> Result<Fabrics, String> {
    let mut usable = Vec::new();
    let mut names = Vec::new();
    for (name, fabric) in open_all() {
        match fabric {
            Ok(fabric) => {
                if only.is_none_or(|only| only == name || only == fabric.attributes().name) {
                    usable.push(fabric);
                }
                names.push(name.to_string());
            }
            Err(error) => names.push(format!("{name} (not usable: {error})")),
        }
    }
    if usable.is_empty() {
        return Err(names.join(", "));
    }
    Ok(usable)
}

/// What this process offers to a peer when nothing is chosen: all devices that are usable here, with whom each can reach.
///
/// # Errors
/// When this host cannot be told from others.
pub fn offered() -> std::io::Result<Vec<Capability>> {
    capabilities(&fabrics(None).unwrap_or_default())
}

/// What this process can offer to a peer over `fabrics`.
pub(crate) fn capabilities(fabrics: &Fabrics) -> std::io::Result<Vec<Capability>> {
    let host = HostId::of_this_process()?;
    // Shared memory reaches the processes of this host.
    let reach = |device: &str| match device {
        "shm" => Reach::SameHost(host),
        _ => Reach::Network,
    };
    let device = |fabric: &Arc<dyn Fabric>| fabric.attributes().name.clone();
    Ok(fabrics
        .iter()
        .map(device)
        .map(|device| Capability {
            reach: reach(&device),
            device,
        })
        .collect())
}
