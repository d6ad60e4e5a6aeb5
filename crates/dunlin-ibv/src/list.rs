//! The library, and its list of devices.

use std::ffi::{c_int, CStr};
use std::sync::OnceLock;

use dunlin_verbs::VerbsError;

use crate::error::{absent, last};
use crate::sys::types::{Context, Device};
use crate::sys::{Api, LIBRARY};

/// One device of the library's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, such as `mlx5_0`.
    pub name: String,
}

/// Loads the library; it is loaded only once, unless it has another name than usual.
pub(crate) fn library(name: &str) -> Result<Api, VerbsError> {
    static USUAL: OnceLock<Result<Api, String>> = OnceLock::new();
    let load = || Api::load(name).map_err(|error| error.to_string());
    let found = if name == LIBRARY {
        USUAL.get_or_init(load).clone()
    } else {
        load()
    };
    found.map_err(|error| {
        absent(
            "opening libibverbs",
            format!(
                "{error}; rdma-core is not installed (apt install libibverbs1 ibverbs-providers); only RDMA hardware \
                 needs it, all other devices work without it"
            ),
        )
    })
}

/// The devices that libibverbs lists, usable or not.
///
/// # Errors
/// The library is missing, or it cannot list devices.
pub fn list() -> Result<Vec<Listed>, VerbsError> {
    list_with(LIBRARY)
}

/// The devices listed by the library with this name or path.
///
/// # Errors
/// As for [`list`].
pub fn list_with(name: &str) -> Result<Vec<Listed>, VerbsError> {
    let api = library(name)?;
    let list = DeviceList::new(&api)?;
    let names = list.names().into_iter();
    Ok(names.map(|(_, name)| Listed { name }).collect())
}

/// The library's list, freed when dropped.
pub(crate) struct DeviceList<'a> {
    api: &'a Api,
    devices: *mut *mut Device,
    count: usize,
}

impl<'a> DeviceList<'a> {
    pub(crate) fn new(api: &'a Api) -> Result<Self, VerbsError> {
        let mut count: c_int = 0;
        // SAFETY: the only argument is a valid place for the count.
        let devices = unsafe { (api.get_device_list)(&mut count) };
        if devices.is_null() {
            return Err(last(
                "ibv_get_device_list",
                "the module ib_uverbs may not be loaded: modprobe ib_uverbs; for a container, the host must pass \
                 /dev/infiniband and /sys/class/infiniband_verbs",
            ));
        }
        Ok(Self {
            api,
            devices,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// Each device and its name.
    pub(crate) fn names(&self) -> Vec<(*mut Device, String)> {
        (0..self.count)
            .map(|at| {
                // SAFETY: the library reports that the list has `count` entries, each a device that lives as long as
                // the list.
                let device = unsafe { *self.devices.add(at) };
                // SAFETY: `device` is of the list; its name is a C string inside it.
                let name = unsafe { CStr::from_ptr((self.api.get_device_name)(device)) };
                (device, name.to_string_lossy().into_owned())
            })
            .collect()
    }

    /// Opens one of them.
    pub(crate) fn open(&self, device: *mut Device, name: &str) -> Result<*mut Context, VerbsError> {
        // SAFETY: `device` is of this list, which is not freed yet.
        let context = unsafe { (self.api.open_device)(device) };
        if context.is_null() {
            return Err(last(
                "ibv_open_device",
                format!(
                    "{name}: check that /dev/infiniband/uverbs* exists and that this user may open it; in a container, \
                     pass --device /dev/infiniband"
                ),
            ));
        }
        Ok(context)
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: the list came from the library and is freed once; open contexts may outlive it by the library's
        // rules.
        unsafe { (self.api.free_device_list)(self.devices) }
    }
}
