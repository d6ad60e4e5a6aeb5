//! The order in which the bytes of a WRITE become visible: what is assumed, and why.
//!
//! A ring with canaries or valid bytes works only if a WRITE is placed in ascending order of addresses. The
//! specification promises nothing before the completion, and PCIe lets a NIC write with relaxed ordering. So a NIC is
//! treated as unordered unless its provider or its owner says otherwise.

use std::path::Path;

use dunlin_verbs::Placement;

use crate::sys::constants::VENDOR_SOFT_ROCE;

/// Why a placement is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementReason {
    /// The configuration says so.
    Configured,
    /// Soft-RoCE: the kernel copies packets in order, each in ascending order of addresses.
    SoftRoce,
    /// `ibv_query_qp_data_in_order` of the provider reports it.
    Provider,
    /// Nothing promises an order.
    NotPromised,
}

impl std::fmt::Display for PlacementReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Configured => "configured",
            Self::SoftRoce => "soft-RoCE copies in order",
            Self::Provider => "guaranteed by the provider",
            Self::NotPromised => "not guaranteed by the provider",
        })
    }
}

/// Whether a device is the kernel's soft-RoCE: a vendor id that no hardware has, and a network device as its parent.
pub(crate) fn is_soft_roce(sysfs: &Path, device: &str, vendor: u32) -> bool {
    let directory = sysfs.join("class/infiniband").join(device);
    vendor == VENDOR_SOFT_ROCE && directory.join("parent").exists()
}

/// What is assumed, and why. `promised` is what the provider reports.
pub(crate) fn placement(
    configured: Option<Placement>,
    soft_roce: bool,
    promised: bool,
) -> (Placement, PlacementReason) {
    match configured {
        Some(placement) => (placement, PlacementReason::Configured),
        None if soft_roce => (Placement::InOrder, PlacementReason::SoftRoce),
        None if promised => (Placement::InOrder, PlacementReason::Provider),
        None => (Placement::Unordered, PlacementReason::NotPromised),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_unordered_until_someone_promises() {
        use Placement::{InOrder, Unordered};
        assert_eq!(placement(None, false, false).0, Unordered);
        assert_eq!(placement(None, false, true).0, InOrder);
        assert_eq!(placement(None, true, false).0, InOrder);
        assert_eq!(placement(Some(Unordered), true, true).0, Unordered);
        assert_eq!(placement(Some(InOrder), false, false).0, InOrder);
    }
}
