//! How logical queue pairs are made.

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use crate::chunking::ParameterError;
use crate::congestion::FixedWindow;
use crate::connection::{Deployment, Modules, Network};
use crate::effort::CHUNK_NS;
use crate::logical::LinkConfig;
use crate::number::WriteLayout;

/// Bytes of a message that one SEND carries, and of a receive buffer: 1.5 MB of them for three queue pairs of 64
/// RECEIVEs.
const FRAGMENT_BYTES: u32 = 8 << 10;
/// Bits of a chunk's place in its message: with units of 4 KB messages of 64 MiB.
const OFFSET_BITS: u32 = 14;
/// See [`FlorConfig::look_at_all_ns`].
const LOOK_AT_ALL_NS: u64 = 10_000;

/// How a [`FlorDevice`](super::FlorDevice) makes its queue pairs. Both ends need the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlorConfig {
    /// The logical connection of each queue pair. A traffic class that a queue pair is connected with takes the place
    /// of its own.
    pub link: LinkConfig,
    /// A fixed window of so many bytes in place of the deployment's congestion control.
    pub window_bytes: Option<u64>,
    /// Who polls an empty completion queue looks at its own queue pairs, and at all of the device's when nobody has for
    /// so long: 10 us, by the sweep in `docs/flor.md`.
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

    /// The deployment of Table 1 that fits a device: where nothing is lost RC and its own control, elsewhere UC under
    /// control by software, or RC where the device has neither UC nor UD.
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

    /// The service of the queue pairs below.
    pub fn transport(&self) -> Transport {
        self.link.deployment.transport()
    }

    /// Bytes of the longest message.
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
