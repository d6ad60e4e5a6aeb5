//! How a client is made, and how its lanes are.

use std::sync::Arc;
use std::time::Duration;

use super::lane::Lane;
use super::{Client, ConnectionInfo};
use crate::bootstrap::{dial, Address, DialConfig, OpenRequest, Secret};
use crate::config::{ChannelConfig, WaitMode};
use crate::devices;
use crate::error::ConnectError;
use crate::fabric::Fabrics;
use crate::preset::Preset;

/// Settings of a client, each with its default.
#[derive(Debug)]
#[must_use = "a client begins with connect()"]
pub struct ClientBuilder {
    channel: ChannelConfig,
    device: Option<String>,
    preset: Preset,
    secret: Option<Secret>,
    deadline: Duration,
    connect_timeout: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            channel: ChannelConfig::default(),
            device: None,
            preset: Preset::default(),
            secret: None,
            deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

impl ClientBuilder {
    /// Uses this device or fails.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// The composition to use.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// How long a call may take. 10 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long making a connection may take. 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// What both sides prove to know.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Limits of each lane.
    pub fn channel(mut self, config: ChannelConfig) -> Self {
        self.channel = config;
        self
    }

    /// How threads wait for answers; the default polls for 50 µs and then sleeps.
    pub fn wait(mut self, wait: WaitMode) -> Self {
        self.channel.wait = wait;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When a setting is out of range, there is no server, no common device, or the handshake fails.
    pub fn connect(self, address: &str) -> Result<Client, ConnectError> {
        self.channel.validate().map_err(ConnectError::Setting)?;
        let fabrics = devices::fabrics(self.device.as_deref()).map_err(|available| {
            ConnectError::NoDevice {
                asked: self.device.clone().unwrap_or_default(),
                available,
            }
        })?;
        let capabilities = devices::capabilities(&fabrics)
            .map_err(|error| ConnectError::Setting(format!("this host's identity: {error}")))?;
        Client::start(Recipe {
            address: address.parse()?,
            dial: DialConfig {
                secret: self.secret,
                capabilities,
                device: self.device,
                timeout: self.connect_timeout,
            },
            fabrics,
            channel: self.channel,
            preset: self.preset,
            deadline: self.deadline,
        })
    }
}

/// All that it takes to make one more lane.
#[derive(Debug)]
pub(super) struct Recipe {
    address: Address,
    dial: DialConfig,
    fabrics: Fabrics,
    pub(super) channel: ChannelConfig,
    preset: Preset,
    pub(super) deadline: Duration,
}

impl Recipe {
    /// Makes a lane.
    pub(super) fn open(&self) -> Result<(Box<dyn Lane>, ConnectionInfo), ConnectError> {
        let dialed = dial(&self.address, &self.dial)?;
        let device = dialed.device().to_string();
        let why = dialed.why().to_string();
        let failed = |source| ConnectError::Device {
            device: device.clone(),
            source,
        };
        let fabric = self
            .fabrics
            .iter()
            .find(|fabric| fabric.attributes().name == device)
            .map(Arc::clone)
            .ok_or_else(|| ConnectError::NoDevice {
                asked: device.clone(),
                available: String::new(),
            })?;
        let opening = fabric.open_lane(&self.channel).map_err(failed)?;
        let reply = dialed.open(OpenRequest {
            device: device.clone(),
            preset: self.preset.name().to_string(),
            endpoint: opening.address(),
            parameters: opening.parameters(),
        })?;
        let lane = opening
            .connect(&reply.endpoint, &reply.parameters)
            .map_err(failed)?;
        let pages = fabric.attributes().page_kind.to_string();
        Ok((
            lane,
            ConnectionInfo {
                device,
                why,
                pages,
                preset: self.preset,
            },
        ))
    }
}
