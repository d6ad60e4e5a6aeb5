//! The choice of the entry of a port's GID table that names this host: a pure function of the table.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The protocol of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, or RoCE version 1: its own Ethernet protocol, not routed.
    V1,
    /// RoCE version 2: UDP on IP, routed.
    V2,
    /// Not reported by the kernel.
    Unknown,
}

/// One entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index.
    pub index: u8,
    /// The GID: an IPv6 address, possibly a mapped IPv4 address.
    pub gid: [u8; 16],
    /// The protocol.
    pub kind: GidKind,
    /// The network interface it belongs to.
    pub interface: Option<String>,
}

impl GidEntry {
    /// The GID as an IP address.
    pub fn address(&self) -> IpAddr {
        let address = Ipv6Addr::from(self.gid);
        match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(address),
        }
    }

    fn is_empty(&self) -> bool {
        // An entry without an address has at most the link-local prefix.
        self.gid[8..] == [0; 8]
    }

    fn is_link_local(&self) -> bool {
        self.gid[0] == 0xfe && self.gid[1] & 0xc0 == 0x80
    }

    /// The rank of the entry; lower is better.
    fn rank(&self) -> (u8, u8, u8) {
        let kind = match self.kind {
            GidKind::V2 => 0,
            GidKind::Unknown => 1,
            GidKind::V1 => 2,
        };
        let address = match self.address() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) if !self.is_link_local() => 1,
            IpAddr::V6(_) => 2,
        };
        (kind, address, self.index)
    }
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GidKind::V1 => "IB/RoCE v1",
            GidKind::V2 => "RoCE v2",
            GidKind::Unknown => "kind unknown",
        };
        write!(f, "GID {} {} ({kind}", self.index, self.address())?;
        if let Some(interface) = &self.interface {
            write!(f, ", {interface}")?;
        }
        f.write_str(")")
    }
}

/// The best entry: RoCEv2 before version 1, then IPv4 before global IPv6 before link-local, then the lowest index. With
/// `local`, only entries with that address count, or of the interface that has it.
pub fn choose_gid(table: &[GidEntry], local: Option<IpAddr>) -> Option<&GidEntry> {
    let used = table.iter().filter(|entry| !entry.is_empty());
    let Some(local) = local else {
        return used.min_by_key(|entry| entry.rank());
    };
    let exact = (used.clone())
        .filter(|entry| entry.address() == local)
        .min_by_key(|entry| entry.rank());
    // Version 1 with the right address is worse than version 2 with another address of the same interface.
    match exact {
        Some(entry) if entry.kind == GidKind::V1 => {
            let interface = entry.interface.clone();
            used.filter(|other| other.interface == interface)
                .min_by_key(|entry| entry.rank())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, address: &str, kind: GidKind, interface: &str) -> GidEntry {
        let gid = match address.parse().expect("an address") {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        GidEntry {
            index,
            gid,
            kind,
            interface: Some(interface.into()),
        }
    }

    fn table() -> Vec<GidEntry> {
        vec![
            entry(0, "fe80::1", GidKind::V1, "eth0"),
            entry(1, "fe80::1", GidKind::V2, "eth0"),
            entry(2, "10.0.0.5", GidKind::V1, "eth0"),
            entry(3, "2001:db8::5", GidKind::V2, "eth0"),
            entry(4, "10.0.0.5", GidKind::V2, "eth0"),
            entry(5, "10.1.0.5", GidKind::V2, "eth0.7"),
        ]
    }

    #[test]
    fn routed_ipv4_is_best() {
        assert_eq!(choose_gid(&table(), None).map(|e| e.index), Some(4));
        assert_eq!(choose_gid(&table()[..4], None).map(|e| e.index), Some(3));
        assert_eq!(choose_gid(&table()[..3], None).map(|e| e.index), Some(1));
        assert_eq!(choose_gid(&table()[..1], None).map(|e| e.index), Some(0));
        assert_eq!(choose_gid(&[], None), None);
    }

    #[test]
    fn an_address_decides() {
        let of = |address: &str| {
            choose_gid(&table(), Some(address.parse().expect("an address"))).map(|e| e.index)
        };
        assert_eq!(of("10.1.0.5"), Some(5));
        assert_eq!(of("2001:db8::5"), Some(3));
        assert_eq!(of("10.9.9.9"), None);
        let version_1 = &table()[..4];
        let found = choose_gid(version_1, Some("10.0.0.5".parse().expect("an address")));
        assert_eq!(found.map(|e| e.index), Some(3));
    }

    #[test]
    fn empty_entries_are_none() {
        let empty = entry(0, "fe80::", GidKind::V2, "eth0");
        assert_eq!(choose_gid(&[empty], None), None);
    }
}
