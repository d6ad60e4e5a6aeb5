//! The configuration of logical queue pairs.

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use crate::chunking::ParameterError;
use crate::congestion::FixedWindow;
use crate::connection::{Deployment, Modules, Network};
use crate::effort::CHUNK_NS;
use crate::logical::LinkConfig;
use crate::number::WriteLayout;

/// Maximum number of message bytes in a SEND, and in a receive buffer: 1.5 MB of buffers for three queue pairs of 64
/// RECEIVEs.
const FRAGMENT_BYTES: u32 = 8 << 10;
/// Number of bits of a chunk's offset in its message: with units of 4 KB, messages of 64 MiB.
const OFFSET_BITS: u32 = 14;
/// See [`FlorConfig::look_at_all_ns`].
const LOOK_AT_ALL_NS: u64 = 10_000;

/// The configuration by which a [`FlorDevice`](super::FlorDevice) creates its queue pairs. Both ends need the same one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlorConfig {
    /// The logical connection of each queue pair. A traffic class given when a queue pair is connected overrides the
    /// one in here.
    pub link: LinkConfig,
    /// Use a fixed window of this many bytes instead of the deployment's congestion control.
    pub window_bytes: Option<u64>,
    /// A thread that polls an empty completion queue makes progress on its own queue pairs, and on all of the device's
    /// if that has not been done for this time: 10 us, by the sweep in `docs/flor.md`.
    pub look_at_all_ns: u64,
}

impl FlorConfig {
    /// One of Table 1's deployments.
    pub fn new(deployment: Deployment) -> Self {
        let mut link = LinkConfig::new(deployment);
        link.chunk_ns = CHUNK_NS;
        link.connection.max_fragment_bytes = FRAGMENT_BYTES;
        link.connection.layout = WriteLayout::new(OFFSET_BITS).unwrap_or(WriteLayout::PAPER);
        Self {
            link,
            window_bytes: None,
            look_at_all_ns: LOOK_AT_ALL_NS,
        }
    }

    /// The deployment of Table 1 that fits a device: on a lossless network RC and the device's own congestion control,
    /// elsewhere UC with congestion control in software, or RC where the device lacks UC or UD.
    pub fn for_device(attributes: &DeviceAttributes) -> Self {
        let written = Verbs::SEND | Verbs::WRITE_WITH_IMMEDIATE;
        let has_unreliable = attributes.transports.uc.contains(written)
            && attributes.transports.ud.contains(Verbs::SEND);
        let mut config = Self::new(match (attributes.lossless, has_unreliable) {
            (true, _) => Deployment::IntraPodLossless,
            (false, true) => Deployment::CrossPod,
            (false, false) => Deployment::HybridReliable,
        });
        if attributes.packets_by_software {
            config.link.network = Network::SOFTWARE;
        }
        config
    }

    /// The transport service of the underlying queue pairs.
    pub fn transport(&self) -> Transport {
        self.link.deployment.transport()
    }

    /// Maximum length of a message in bytes.
    pub fn max_message_bytes(&self) -> usize {
        let unit = self.link.network.unit_bytes;
        let reach = self.link.connection.max_message_bytes(unit);
        usize::try_from(reach).unwrap_or(usize::MAX)
    }

    pub(crate) fn modules(&self) -> Result<Modules, ParameterError> {
        let mut modules = self.link.deployment.modules(&self.link.network)?;
        if let Some(bytes) = self.window_bytes {
            modules.congestion = Box::new(FixedWindow::new(bytes));
        }
        Ok(modules)
    }
}
