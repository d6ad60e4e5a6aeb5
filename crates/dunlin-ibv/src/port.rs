//! The port: its state, its path MTU and its GID table, and the choice of port and GID.

use std::fs::read_to_string;
use std::path::Path;

use dunlin_verbs::VerbsError;

use crate::config::IbvConfig;
use crate::error::{invalid, returned};
use crate::gid::{choose_gid, GidEntry, GidKind};
use crate::sys::constants::{LINK_LAYER_ETHERNET, PORT_ACTIVE};
use crate::sys::types::{Context, Gid, PortAttributes};
use crate::sys::Api;

/// The chosen port and GID, for `dunlin devices` and errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// Number, from 1.
    pub number: u8,
    /// Path MTU in bytes.
    pub mtu_bytes: usize,
    /// Maximum message length in bytes.
    pub max_message_bytes: usize,
    /// Local identifier on InfiniBand, zero on Ethernet.
    pub lid: u16,
    /// Whether it is Ethernet, hence RoCE.
    pub ethernet: bool,
    /// The GID by which peers address this host.
    pub gid: GidEntry,
    /// Why this GID was chosen.
    pub why: String,
}

/// Maximum number of entries of a GID table that are examined: the library's index is a byte.
const MAX_GIDS: i32 = 255;

fn state_name(state: u32) -> &'static str {
    match state {
        1 => "down",
        2 => "initializing",
        3 => "armed",
        4 => "active",
        5 => "active, deferred",
        _ => "unknown",
    }
}

fn query(api: &Api, context: *mut Context, number: u8) -> Result<PortAttributes, VerbsError> {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut port: PortAttributes = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `port` is at least as long as what the library writes.
    let errno = unsafe { (api.query_port)(context, number, &mut port) };
    if errno != 0 {
        return Err(returned("ibv_query_port", errno, format!("port {number}")));
    }
    Ok(port)
}

/// The GID table of a port, with kinds and interfaces as reported in sysfs.
fn gids(api: &Api, context: *mut Context, directory: &Path, port: u8, count: i32) -> Vec<GidEntry> {
    let attributes = directory.join(format!("ports/{port}/gid_attrs"));
    let read = |kind: &str, index| {
        let text = read_to_string(attributes.join(kind).join(index));
        text.ok().map(|text| text.trim().to_owned())
    };
    let mut table = Vec::new();
    for index in 0..count.min(MAX_GIDS) {
        let mut gid = Gid([0; 16]);
        // SAFETY: the context is open and `gid` has space for one.
        if unsafe { (api.query_gid)(context, port, index, &mut gid) } != 0 || gid.0 == [0; 16] {
            continue;
        }
        let index = index as u8;
        let kind = match read("types", index.to_string()).as_deref() {
            Some("RoCE v2") => GidKind::V2,
            Some(_) => GidKind::V1,
            None => GidKind::Unknown,
        };
        table.push(GidEntry {
            index,
            gid: gid.0,
            kind,
            interface: read("ndevs", index.to_string()),
        });
    }
    table
}

fn mtu_bytes(code: u32) -> usize {
    128usize << code.clamp(1, 5)
}

/// The library's code of a path MTU: the largest that is not above `bytes`.
pub(crate) fn mtu_code(bytes: usize) -> u32 {
    (1..=5)
        .rev()
        .find(|&code| mtu_bytes(code) <= bytes)
        .unwrap_or(1)
}

/// Checks one port and chooses its GID; the one in `before` is kept as long as the table contains it.
pub(crate) fn examine(
    api: &Api,
    context: *mut Context,
    device: &str,
    number: u8,
    config: &IbvConfig,
    before: Option<&PortReport>,
) -> Result<PortReport, VerbsError> {
    let port = query(api, context, number)?;
    if port.state != PORT_ACTIVE {
        return Err(invalid(
            "port",
            format!(
                "port {number} of {device} is {}: check the cable, or bring its interface up (ip link set IFACE up; \
                 `rdma link` shows the interface)",
                state_name(port.state)
            ),
        ));
    }
    let ethernet = port.link_layer == LINK_LAYER_ETHERNET;
    let directory = config.sysfs.join("class/infiniband").join(device);
    let table = gids(api, context, &directory, number, port.gids);
    // Its index may have changed: the kernel rewrites the table when addresses come back.
    let kept = before.and_then(|before| {
        let same = |entry: &&GidEntry| (entry.gid, entry.kind) == (before.gid.gid, before.gid.kind);
        Some((table.iter().find(same)?.clone(), before.why.clone()))
    });
    let (gid, why) = match kept {
        Some(kept) if config.gid_index.is_none() => kept,
        _ => choose(&table, ethernet, device, number, config)?,
    };
    let active = mtu_bytes(port.active_mtu);
    let mtu_bytes = match config.mtu_bytes {
        None => active,
        Some(asked) if asked.is_power_of_two() && (256..=active).contains(&asked) => asked,
        Some(asked) => {
            return Err(invalid(
                "mtu_bytes",
                format!(
                    "{asked}: it must be a power of two from 256 to {active}, the current MTU of port {number} of \
                     {device}"),
            ))
        }
    };
    Ok(PortReport {
        number,
        mtu_bytes,
        max_message_bytes: port.max_message as usize,
        lid: port.lid,
        ethernet,
        gid,
        why,
    })
}

fn choose(
    table: &[GidEntry],
    ethernet: bool,
    device: &str,
    port: u8,
    config: &IbvConfig,
) -> Result<(GidEntry, String), VerbsError> {
    let shown = || {
        if table.is_empty() {
            return "the GID table is empty".to_owned();
        }
        let entries: Vec<String> = table.iter().map(ToString::to_string).collect();
        format!("available: {}", entries.join(", "))
    };
    if let Some(index) = config.gid_index {
        let entry = table.iter().find(|entry| entry.index == index);
        return match entry {
            Some(entry) => Ok((entry.clone(), "requested by index".to_owned())),
            None => Err(invalid(
                "gid_index",
                format!("port {port} of {device} has no GID {index}; {}", shown()),
            )),
        };
    }
    let Some(entry) = choose_gid(table, config.local_address) else {
        let wanted = match config.local_address {
            Some(address) => format!("no GID for the address {address}"),
            None => "no GID with an address".to_owned(),
        };
        return Err(invalid(
            "gid",
            format!(
                "port {port} of {device} has {wanted}: assign an IP address to its interface (ip addr add); {}",
                shown()
            ),
        ));
    };
    if ethernet && entry.kind == GidKind::V1 {
        return Err(invalid(
            "gid",
            format!(
                "port {port} of {device} has no RoCEv2 GID, only version 1, which cannot be routed: assign an IP \
                 address to its interface, or request version 1 with gid_index {}; {}",
                entry.index,
                shown()
            ),
        ));
    }
    let why = match config.local_address {
        Some(address) => format!("of the interface that has {address}"),
        None => "best of the table: RoCEv2 before v1, IPv4 before global IPv6 before link-local"
            .to_owned(),
    };
    Ok((entry.clone(), why))
}

/// The port to use: the requested one, or the first that is usable.
///
/// # Errors
/// Why the requested one, or the first, is not usable.
pub(crate) fn choose_port(
    api: &Api,
    context: *mut Context,
    device: &str,
    ports: u8,
    config: &IbvConfig,
) -> Result<PortReport, VerbsError> {
    if let Some(number) = config.port {
        if number == 0 || number > ports {
            return Err(invalid(
                "port",
                format!("{number}: {device} has ports 1 to {ports}"),
            ));
        }
        return examine(api, context, device, number, config, None);
    }
    let mut first = None;
    for number in 1..=ports {
        match examine(api, context, device, number, config, None) {
            Ok(report) => return Ok(report),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| invalid("port", format!("{device} has none"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes() {
        assert_eq!([256, 1023, 1024, 4096, 9000].map(mtu_code), [1, 2, 3, 5, 5]);
        assert_eq!([1, 3, 5].map(mtu_bytes), [256, 1024, 4096]);
    }
}
