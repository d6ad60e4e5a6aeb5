//! The configuration of a device, each setting with a default.

use std::net::IpAddr;

use dunlin_verbs::VerbsError;

use crate::packet::{whole_payload_steps, MAX_PAYLOAD_BYTES};
use crate::socket::Link;

/// UDP port of RoCEv2, where kernels and NICs listen.
pub const ROCE_PORT: u16 = 4791;
/// The maximum path MTU of the standard.
const MAX_MTU_BYTES: usize = 4096;

/// The configuration with which a [`crate::RoceDevice`] is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoceConfig {
    /// The device's name for display.
    pub name: String,
    /// The address of this host from which packets are sent and at which they are received. `None`: all addresses; for
    /// each peer, the one that the routing table selects.
    pub local_address: Option<IpAddr>,
    /// UDP port; zero lets the system choose one, which is then part of the addresses of queue pairs. [`ROCE_PORT`] is
    /// needed to be reached by a kernel or a NIC, which use no other.
    pub port: u16,
    /// Maximum path MTU in bytes: 256, 512, 1024, 2048 or 4096. It is lower where an interface or a route requires it.
    pub mtu_bytes: usize,
    /// Maximum payload in bytes of an RC or UC packet between two Dunlin devices, up to
    /// [`MAX_PAYLOAD_BYTES`](crate::packet::MAX_PAYLOAD_BYTES). It is lower if the path between them carries less
    /// (1,280 on Ethernet with 1,500 bytes, 8,768 with 9,000). If this is 4096 or less, or `mtu_bytes` is below 4096,
    /// the payload is the path MTU.
    pub payload_bytes: usize,
    /// Size of the socket's receive buffer in bytes. The system limits it to `net.core.rmem_max` unless the process may
    /// exceed that.
    pub receive_buffer_bytes: usize,
    /// Size of the socket's send buffer in bytes, limited by `net.core.wmem_max` in the same way.
    pub send_buffer_bytes: usize,
    /// Whether packets between two Dunlin devices omit the invariant CRC: UDP's own checksum then protects them.
    pub omit_icrc: bool,
    /// Whether packets are sent as ECN-capable, so that congested switches mark them instead of dropping them, and
    /// marks of received packets are honoured.
    pub congestion_marks: bool,
    /// The queue key of all datagram queue pairs, for peers that cannot be told one, such as rdma-core's
    /// `ibv_ud_pingpong`. `None`: each has a random key of its own.
    pub queue_key: Option<u32>,
    /// Use reserved huge pages for regions of 2 MiB and more, if there are any.
    pub huge_pages: bool,
    /// Maximum number of regions registered at a time, at most 65536.
    pub max_regions: usize,
    /// Maximum number of bytes registered at a time.
    pub max_registered_bytes: usize,
    /// Maximum number of queue pairs at a time, at most 32768.
    pub max_queue_pairs: usize,
}

impl RoceConfig {
    /// The defaults, overridden by the environment: `DUNLIN_ROCE_ADDRESS`, `_PORT`, `_MTU`, `_OMIT_ICRC`, `_PAYLOAD`,
    /// `_CONGESTION_MARKS` and `_HUGE_PAGES` (`yes` or `no`), `_QUEUE_KEY`.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] with the variable's name when a value is not valid.
    pub fn from_environment() -> Result<Self, VerbsError> {
        fn parse<T: std::str::FromStr>(name: &'static str) -> Result<Option<T>, VerbsError> {
            let Ok(text) = std::env::var(name) else {
                return Ok(None);
            };
            let value = text.trim().parse().map_err(|_| VerbsError::Invalid {
                argument: name,
                why: format!("invalid value `{text}`"),
            })?;
            Ok(Some(value))
        }
        let mut config = Self::default();
        config.local_address = parse("DUNLIN_ROCE_ADDRESS")?;
        config.port = parse("DUNLIN_ROCE_PORT")?.unwrap_or(config.port);
        config.mtu_bytes = parse("DUNLIN_ROCE_MTU")?.unwrap_or(config.mtu_bytes);
        config.payload_bytes = parse("DUNLIN_ROCE_PAYLOAD")?.unwrap_or(config.payload_bytes);
        config.queue_key = parse("DUNLIN_ROCE_QUEUE_KEY")?;
        let choose = |name: &'static str| match parse::<String>(name)?.as_deref() {
            None | Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(other) => Err(VerbsError::Invalid {
                argument: name,
                why: format!("invalid value `{other}`: expected `yes` or `no`"),
            }),
        };
        config.omit_icrc = choose("DUNLIN_ROCE_OMIT_ICRC")?;
        config.congestion_marks = choose("DUNLIN_ROCE_CONGESTION_MARKS")?;
        config.huge_pages = choose("DUNLIN_ROCE_HUGE_PAGES")?;
        Ok(config)
    }

    /// The limits of packets on a path that carries `way`, or on one that is not known yet. A payload of zero means no
    /// more than the path MTU.
    pub(crate) fn link(&self, way: Option<Link>) -> Link {
        let mtu_bytes = self
            .mtu_bytes
            .min(way.map_or(usize::MAX, |way| way.mtu_bytes));
        let longest = way.map_or(MAX_PAYLOAD_BYTES as usize, |way| way.payload_bytes);
        let long = self.mtu_bytes == MAX_MTU_BYTES && self.payload_bytes > MAX_MTU_BYTES;
        Link {
            mtu_bytes,
            payload_bytes: if long {
                whole_payload_steps(longest.min(self.payload_bytes))
            } else {
                0
            },
        }
    }
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self {
            name: "roce".to_owned(),
            local_address: None,
            port: 0,
            mtu_bytes: MAX_MTU_BYTES,
            payload_bytes: MAX_PAYLOAD_BYTES as usize,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            omit_icrc: true,
            congestion_marks: true,
            queue_key: None,
            huge_pages: true,
            max_regions: 65536,
            max_registered_bytes: 64 << 30,
            max_queue_pairs: 32768,
        }
    }
}
