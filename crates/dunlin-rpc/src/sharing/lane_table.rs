//! The lanes of a connection handle: a table of those that are open, lost or being made.

use std::sync::Arc;

use super::lane::SharedLane;
use super::statistics::SeenTwice;
use crate::error::ConnectError;

/// A lane and its index among the handle's.
pub(crate) struct Placed {
    pub(crate) lane: Arc<dyn SharedLane>,
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// A lane in the table.
pub(super) struct Entry {
    pub(super) lane: Arc<dyn SharedLane>,
    pub(super) serial: u64,
    /// The number by which the server knows it; no other open lane has the same.
    pub(super) number: usize,
}

/// The table, and counts of threads that wait for new entries.
#[derive(Default)]
pub(super) struct LaneTable {
    pub(super) entries: Vec<Entry>,
    /// What the scheduler last saw of each port, by id.
    pub(super) seen: Vec<SeenTwice>,
    pub(super) next_serial: u64,
    pub(super) random: u64,
    /// Numbers of lanes that new threads are making, without holding this lock.
    pub(super) making: Vec<usize>,
    /// Number of new threads without a port, and of those among them that wait for a lane that another makes.
    pub(super) coming: usize,
    pub(super) waiting: usize,
    /// Number of failures to make a lane while others waited for it, and the last error.
    pub(super) failures: u64,
    pub(super) failure: Option<Arc<ConnectError>>,
}

impl LaneTable {
    /// Number of lanes that take calls.
    pub(super) fn usable(&self) -> usize {
        let all = self.entries.iter();
        all.filter(|entry| entry.lane.status().is_open()).count()
    }

    /// A number that no lane has that is open or being made.
    pub(super) fn free_number(&self) -> usize {
        let is_free = |number: &usize| {
            let mut all = self.entries.iter();
            let taken = all.any(|e| e.number == *number && e.lane.status().is_open());
            !taken && !self.making.contains(number)
        };
        (0..).find(is_free).unwrap_or_default()
    }

    /// Enters a new lane, in the place of a lost one if there is one, or of one whose server takes no more calls and
    /// has answered those that are awaited; returns that one's serial number.
    pub(super) fn enter(
        &mut self,
        number: usize,
        lane: Arc<dyn SharedLane>,
        is_awaited: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        self.next_serial += 1;
        let entry = Entry {
            lane,
            serial: self.next_serial,
            number,
        };
        let is_over = |entry: &Entry| {
            let status = entry.lane.status();
            status.is_lost() || (status.is_leaving() && !is_awaited(entry.serial))
        };
        let is_its = |entry: &Entry| entry.number == number && is_over(entry);
        let all = &mut self.entries;
        let own = all.iter().position(is_its);
        match own.or_else(|| all.iter().position(is_over)) {
            Some(place) => Some(std::mem::replace(&mut all[place], entry).serial),
            None => {
                all.push(entry);
                None
            }
        }
    }
}

/// Indices of the lanes that take calls: the active ones, or all open ones if none is active.
pub(super) fn usable(entries: &[Entry]) -> Vec<usize> {
    let open = |entry: &Entry| entry.lane.status().is_open();
    let active = |entry: &Entry| open(entry) && entry.lane.status().is_active();
    let those = |which: &dyn Fn(&Entry) -> bool| -> Vec<usize> {
        (0..entries.len()).filter(|&i| which(&entries[i])).collect()
    };
    let found = those(&active);
    if found.is_empty() {
        those(&open)
    } else {
        found
    }
}
