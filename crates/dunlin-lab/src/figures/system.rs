//! The system measured in a figure of RPC: a preset, as users get it or as it was published.
//!
//! Presets over datagrams put messages sent at the same time to one peer into one datagram. The published systems did
//! not: FaSST's talk counts four verbs for each RPC where everything is batched (17.2 M verbs a second are 4.3 M RPC,
//! FS-018). So claims are judged with one message per datagram, and `auto` is compared with the presets as users get
//! them.

use dunlin::{DatagramBatches, Preset};

use crate::load::DATAGRAMS;

/// A preset and its variant; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    pub(super) preset: Preset,
    /// Whether each message has a datagram of its own.
    alone: bool,
}

impl System {
    /// The preset as users get it.
    pub(super) const fn of_users(preset: Preset) -> Self {
        Self {
            preset,
            alone: false,
        }
    }

    /// The preset as it was published.
    pub(super) fn published(preset: Preset) -> Self {
        Self {
            preset,
            alone: DATAGRAMS.contains(&preset),
        }
    }

    /// The published ones among `presets`, followed by all as users get them, each once.
    pub(super) fn all_of(presets: &[Preset]) -> Vec<Self> {
        let papers = presets.iter().filter(|&&preset| preset != Preset::Auto);
        let mut all: Vec<Self> = papers.map(|&preset| Self::published(preset)).collect();
        for &preset in presets {
            let system = Self::of_users(preset);
            if !all.contains(&system) {
                all.push(system);
            }
        }
        all
    }

    /// The batching over datagrams.
    pub(super) fn batches(self) -> DatagramBatches {
        let mut batches = DatagramBatches::default();
        if self.alone {
            batches.messages = 1;
        }
        batches
    }
}

/// The rates of presets as users get them.
pub(super) fn of_users(presets: &[Preset], rate: impl Fn(System) -> f64) -> Vec<(Preset, f64)> {
    let rate = |&preset: &Preset| (preset, rate(System::of_users(preset)));
    presets.iter().map(rate).collect()
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.preset)?;
        match self.alone {
            true => write!(f, ", one message a datagram"),
            false => Ok(()),
        }
    }
}
