//! Addresses of peers: conversion of an endpoint address to the library's address attributes, and handles for
//! datagrams.

use std::sync::Arc;

use dunlin_verbs::{EndpointAddress, VerbsError};

use crate::context::{Core, Shared};
use crate::device::Domain;
use crate::error::last;
use crate::link::usable;
use crate::sys::types::{self, AhAttributes, Gid, GlobalRoute};

/// Maximum number of routers that a packet may pass; the default of IP stacks.
const HOP_LIMIT: u8 = 64;

/// The route to the device of `remote`, with a traffic class; if that is 0, the configured one.
pub(crate) fn route(
    core: &Core,
    remote: &EndpointAddress,
    traffic_class: u8,
) -> Result<AhAttributes, VerbsError> {
    let port = usable(core)?;
    if remote.gid == [0; 16] && remote.lid == 0 {
        return Err(VerbsError::Address(
            "the address has neither a GID nor a LID".to_owned(),
        ));
    }
    if port.ethernet && (remote.lid != 0 || remote.gid == [0; 16]) {
        return Err(VerbsError::Address(format!(
            "LID {} without a GID is an InfiniBand address, but {} is Ethernet (RoCE)",
            remote.lid, core.nic
        )));
    }
    if !port.ethernet && remote.lid == 0 {
        return Err(VerbsError::Address(format!(
            "a RoCE address, but {} is InfiniBand",
            core.nic
        )));
    }
    if port.ethernet && is_ipv4(&remote.gid) != is_ipv4(&port.gid.gid) {
        let family = |gid| if is_ipv4(gid) { "IPv4" } else { "IPv6" };
        return Err(VerbsError::Address(format!(
            "the peer is at {} ({}), but {} port {} uses {} ({}): packets cannot travel between them. Dial or bind an \
             address of the same family on both sides, or select one with DUNLIN_IBV_ADDRESS",
            std::net::Ipv6Addr::from(remote.gid).to_canonical(),
            family(&remote.gid),
            core.nic,
            port.number,
            port.gid,
            family(&port.gid.gid),
        )));
    }
    Ok(AhAttributes {
        route: GlobalRoute {
            destination: Gid(remote.gid),
            flow_label: 0,
            source_index: port.gid.index,
            hop_limit: HOP_LIMIT,
            traffic_class: match traffic_class {
                0 => core.config.traffic_class,
                class => class,
            },
        },
        lid: remote.lid,
        service_level: core.config.service_level,
        source_path_bits: 0,
        static_rate: 0,
        // InfiniBand needs the global route only between subnets, where the prefixes differ.
        is_global: u8::from(port.ethernet || remote.gid[..8] != port.gid.gid[..8]),
        port: port.number,
    })
}

/// Whether a GID is an IPv4 address.
fn is_ipv4(gid: &[u8; 16]) -> bool {
    std::net::Ipv6Addr::from(*gid).to_ipv4_mapped().is_some()
}

/// Describes the route, for errors.
pub(crate) fn shown(core: &Core, remote: &EndpointAddress) -> String {
    let port = core.link.port();
    format!(
        "from {} port {} {} to {} queue pair {}",
        core.nic,
        port.number,
        port.gid,
        std::net::Ipv6Addr::from(remote.gid).to_canonical(),
        remote.queue_pair
    )
}

/// The destination of datagrams: a peer's device. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct IbvAddressHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: Shared<types::Ah>,
    domain: Arc<Domain>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.domain.device.core().made_in.is_current() {
            return;
        }
        // SAFETY: made by `new`, destroyed once. Providers may use it until the requests that name it have completed
        // (soft-RoCE does so when it sends), so their queue pair holds a clone until their entries are used again, or
        // it is gone.
        unsafe { (self.domain.device.core().api.destroy_ah)(self.raw.0) };
    }
}

impl IbvAddressHandle {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        remote: &EndpointAddress,
        traffic_class: u8,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        let mut attributes = route(core, remote, traffic_class)?;
        // SAFETY: the domain is alive and the attributes are valid for the call.
        let raw = unsafe { (core.api.create_ah)(domain.raw.0, &mut attributes) };
        if raw.is_null() {
            return Err(last(
                "ibv_create_ah",
                format!(
                    "{}; EHOSTUNREACH or ENETUNREACH: the interface of the GID has no route to the peer",
                    shown(core, remote)
                ),
            ));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                raw: Shared(raw),
                domain: Arc::clone(domain),
            }),
        })
    }

    /// Whether work requests of a queue pair of `domain` may name it.
    #[inline]
    pub(crate) fn belongs_to(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.inner.domain, domain)
    }

    /// Whether both are the same handle.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut types::Ah {
        self.inner.raw.0
    }
}
