//! Presets: named compositions of transport, channel, sharing and admission (design §1).

use std::fmt;
use std::str::FromStr;

/// A composition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// RC, one ring channel for each client thread, nothing shared, everyone admitted: the ground that the systems stand on.
    #[default]
    Plain,
}

impl Preset {
    /// Every preset there is.
    pub const ALL: &'static [Preset] = &[Preset::Plain];

    /// Its name on the command line and in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Plain => "plain",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preset '{0}'; there is: plain")]
pub struct UnknownPreset(String);

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Preset::ALL
            .iter()
            .copied()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| UnknownPreset(name.to_string()))
    }
}
