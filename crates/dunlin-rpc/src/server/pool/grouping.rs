//! The settings of ScaleRPC's groups.

use std::time::Duration;

use crate::admission::grouping::groups::Rules;
use crate::admission::grouping::pace::Pace;

/// How clients of the preset `scalerpc` take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Number of clients in a group, from 1 to 1024; 40 by default, as in the paper (§3.6.1). Each poller has its
    /// share.
    pub clients: usize,
    /// How long a group is served while others wait, from 1 µs to a second; 100 µs by default (§3.6.1).
    pub slice: Duration,
    /// Whether groups and slices follow the priorities of clients (§3.2); they do by default. If not, all groups have
    /// the default size, within the legal range, and equal slices.
    pub by_priority: bool,
    /// Whether requests of the next group are fetched while the last answers of a turn are in flight, so that the
    /// change of turns overlaps with them (§3.3). Off by default: requests are fetched when the turn has ended, because
    /// a NIC whose cache holds little more than one group's connections would evict those that the answers need
    /// (`docs/scalerpc.md`).
    pub warm_up_beside: bool,
}

impl Default for Grouping {
    fn default() -> Self {
        Self {
            clients: 40,
            slice: Duration::from_micros(100),
            by_priority: true,
            warm_up_beside: false,
        }
    }
}

impl Grouping {
    /// Returns what is wrong with the settings.
    pub(in crate::server) fn validate(&self) -> Result<(), String> {
        if !(1..=1024).contains(&self.clients) {
            return Err(format!(
                "grouping.clients is {}: it must be from 1 to 1024",
                self.clients
            ));
        }
        let slices = Duration::from_micros(1)..=Duration::from_secs(1);
        if !slices.contains(&self.slice) {
            return Err(format!(
                "grouping.slice is {:?}: it must be from 1 µs to 1 s",
                self.slice
            ));
        }
        Ok(())
    }

    /// Returns what is wrong with a pace, given these settings.
    pub(in crate::server) fn validate_pace(&self, pace: &Pace) -> Result<(), String> {
        if !(1..=1024).contains(&pace.groups()) {
            let groups = pace.groups();
            return Err(format!(
                "the pace has {groups} groups: it must have from 1 to 1024"
            ));
        }
        let slices = Self {
            slice: pace.slice(),
            ..*self
        };
        slices.validate().map_err(|why| format!("pace: {why}"))
    }

    /// The rules for one of this many pollers.
    pub(super) fn rules(&self, pollers: usize, pace: Option<&Pace>) -> Rules {
        let slice = pace.map_or(self.slice, Pace::slice);
        Rules {
            clients: self.clients.div_ceil(pollers),
            slice_ns: slice.as_nanos() as u64,
            by_priority: self.by_priority && pace.is_none(),
            warm_up_beside: self.warm_up_beside,
        }
    }
}
