//! The allocation of the data servers' extents, and the holders of those that belong to no file.

use std::collections::BTreeMap;

use super::record::{Held, Key, Record};
use crate::types::{DataServer, Extent, SessionId};

/// The extents of all data servers. Each change appends its records to the list that it is given.
#[derive(Debug, Default)]
pub(super) struct Space {
    servers: Vec<ServerSpace>,
}

#[derive(Debug)]
struct ServerSpace {
    about: DataServer,
    used: Bitmap,
    held: BTreeMap<u32, Held>,
}

impl Space {
    pub(super) fn servers(&self) -> impl Iterator<Item = &DataServer> {
        self.servers.iter().map(|server| &server.about)
    }

    /// Number of extents: in total, free, quarantined.
    pub(super) fn count(&self) -> (u64, u64, u64) {
        let mut sums = (0, 0, 0);
        for server in &self.servers {
            let quarantined = |held: &&Held| matches!(held, Held::Quarantined(_));
            sums.0 += u64::from(server.about.extents);
            sums.1 += u64::from(server.used.free);
            sums.2 += server.held.values().filter(quarantined).count() as u64;
        }
        sums
    }

    /// Stores a data server's description of itself; returns its index in the list. If it has restarted, nobody can
    /// write what was quarantined before. `None` if there are too many servers, or it has become smaller.
    pub(super) fn know(&mut self, about: DataServer, records: &mut Vec<Record>) -> Option<u16> {
        let known = self
            .servers
            .iter()
            .position(|server| server.about.id == about.id);
        let place = known.unwrap_or(self.servers.len());
        let number = u16::try_from(place)
            .ok()
            .filter(|place| *place < u16::MAX)?;
        match self.servers.get_mut(place) {
            Some(server) if server.about == about => return Some(number),
            Some(server) if server.about.extents > about.extents => return None,
            Some(server) => {
                let restarted = server.about.incarnation != about.incarnation;
                server.used.grow(about.extents);
                server.about = about;
                if restarted {
                    self.release(records, |held, at| {
                        at == number && matches!(held, Held::Quarantined(_))
                    });
                }
            }
            None => self.servers.push(ServerSpace {
                used: Bitmap::new(about.extents),
                held: BTreeMap::new(),
                about,
            }),
        }
        records.push(Key::Server(number).put(&self.servers[place].about));
        Some(number)
    }

    /// Allocates up to `count` free extents for a session, from one server: from `server` or from the one with the most
    /// free extents.
    pub(super) fn reserve(
        &mut self,
        session: SessionId,
        count: usize,
        server: Option<u16>,
        records: &mut Vec<Record>,
    ) -> Vec<Extent> {
        let most = |(_, server): &(usize, &ServerSpace)| server.used.free;
        let roomiest = self.servers.iter().enumerate().max_by_key(most);
        let chosen = match server {
            Some(server) => usize::from(server),
            None => roomiest.map_or(0, |(place, _)| place),
        };
        let Some(of) = self.servers.get_mut(chosen) else {
            return Vec::new();
        };
        let mut extents = Vec::with_capacity(count.min(of.used.free as usize));
        while extents.len() < count {
            let Some(index) = of.used.allocate() else {
                break;
            };
            let extent = Extent {
                server: chosen as u16,
                index,
            };
            let held = Held::Reserved(session);
            of.held.insert(index, held);
            records.push(Key::Held(extent).put(&held));
            extents.push(extent);
        }
        extents
    }

    pub(super) fn is_reserved(&self, extent: Extent, session: SessionId) -> bool {
        self.held(extent) == Some(Held::Reserved(session))
    }

    pub(super) fn held(&self, extent: Extent) -> Option<Held> {
        let server = self.servers.get(usize::from(extent.server))?;
        server.held.get(&extent.index).copied()
    }

    /// Makes a reserved extent part of a file.
    pub(super) fn give(&mut self, extent: Extent, records: &mut Vec<Record>) {
        if let Some(server) = self.servers.get_mut(usize::from(extent.server)) {
            server.held.remove(&extent.index);
            records.push(Key::Held(extent).take());
        }
    }

    /// Frees a file's extent.
    pub(super) fn free(&mut self, extent: Extent) {
        if let Some(server) = self.servers.get_mut(usize::from(extent.server)) {
            server.used.free(extent.index);
        }
    }

    /// Keeps a file's extent from being used for as long as this session might write it.
    pub(super) fn quarantine(
        &mut self,
        extent: Extent,
        session: SessionId,
        records: &mut Vec<Record>,
    ) {
        if let Some(server) = self.servers.get_mut(usize::from(extent.server)) {
            let held = Held::Quarantined(session);
            server.held.insert(extent.index, held);
            records.push(Key::Held(extent).put(&held));
        }
    }

    /// Quarantines everything that a session has reserved.
    pub(super) fn quarantine_reserved(&mut self, session: SessionId, records: &mut Vec<Record>) {
        for extent in self.all(|held, _| held == Held::Reserved(session)) {
            self.quarantine(extent, session, records);
        }
    }

    /// Frees everything that was held for a session.
    pub(super) fn settle(&mut self, session: SessionId, records: &mut Vec<Record>) {
        self.release(
            records,
            |held, _| matches!(held, Held::Reserved(of) | Held::Quarantined(of) if of == session),
        );
    }

    fn release(&mut self, records: &mut Vec<Record>, which: impl Fn(Held, u16) -> bool) {
        for extent in self.all(which) {
            let server = &mut self.servers[usize::from(extent.server)];
            server.held.remove(&extent.index);
            server.used.free(extent.index);
            records.push(Key::Held(extent).take());
        }
    }

    fn all(&self, which: impl Fn(Held, u16) -> bool) -> Vec<Extent> {
        let held = self.every_held();
        held.filter(|(extent, held)| which(*held, extent.server))
            .map(|(extent, _)| extent)
            .collect()
    }

    pub(super) fn every_held(&self) -> impl Iterator<Item = (Extent, Held)> + '_ {
        self.servers.iter().zip(0..).flat_map(|(server, place)| {
            let at = move |(&index, &held): (&u32, &Held)| {
                let extent = Extent {
                    server: place,
                    index,
                };
                (extent, held)
            };
            server.held.iter().map(at)
        })
    }

    /// While loading: adds a server to the list.
    pub(super) fn load_server(&mut self, place: u16, about: DataServer) -> bool {
        let next = usize::from(place) == self.servers.len();
        if next {
            self.servers.push(ServerSpace {
                used: Bitmap::new(about.extents),
                held: BTreeMap::new(),
                about,
            });
        }
        next
    }

    /// While loading: adds an extent that a file or a session has. Returns whether it exists and was free.
    pub(super) fn load_used(&mut self, extent: Extent, held: Option<Held>) -> bool {
        let Some(server) = self.servers.get_mut(usize::from(extent.server)) else {
            return false;
        };
        if let Some(held) = held {
            server.held.insert(extent.index, held);
        }
        server.used.take(extent.index)
    }

    /// Number of extents that are not free.
    pub(super) fn used(&self) -> u64 {
        let (all, free, _) = self.count();
        all - free
    }

    pub(super) fn contains(&self, extent: Extent) -> bool {
        let server = self.servers.get(usize::from(extent.server));
        server.is_some_and(|server| extent.index < server.about.extents)
    }
}

/// A set of numbers below a length, which returns the next free one after the last: mostly adjacent ones.
#[derive(Debug)]
struct Bitmap {
    words: Vec<u64>,
    length: u32,
    free: u32,
    next: usize,
}

impl Bitmap {
    fn new(length: u32) -> Self {
        let mut bitmap = Self {
            words: Vec::new(),
            length: 0,
            free: 0,
            next: 0,
        };
        bitmap.grow(length);
        bitmap
    }

    fn grow(&mut self, length: u32) {
        self.words.resize(length.div_ceil(64) as usize, 0);
        self.free += length.saturating_sub(self.length);
        self.length = self.length.max(length);
    }

    fn allocate(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let words = self.words.len();
        for step in 0..=words {
            let at = (self.next + step) % words;
            let number = at as u32 * 64 + self.words[at].trailing_ones();
            if self.words[at] != u64::MAX && number < self.length {
                self.next = at;
                self.take(number);
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, number: u32) -> bool {
        if number >= self.length {
            return false;
        }
        let (word, bit) = (&mut self.words[number as usize / 64], 1 << (number % 64));
        let was_free = *word & bit == 0;
        *word |= bit;
        self.free -= u32::from(was_free);
        was_free
    }

    fn free(&mut self, number: u32) {
        if number < self.length {
            let (word, bit) = (&mut self.words[number as usize / 64], 1 << (number % 64));
            self.free += u32::from(*word & bit != 0);
            *word &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bitmap;

    #[test]
    fn a_bitmap_gives_each_number_once_and_grows() {
        let mut bitmap = Bitmap::new(70);
        let mut given: Vec<_> = std::iter::from_fn(|| bitmap.allocate()).collect();
        assert_eq!(given.len(), 70);
        bitmap.free(3);
        bitmap.free(3);
        bitmap.grow(71);
        given.extend([bitmap.allocate(), bitmap.allocate()].into_iter().flatten());
        assert_eq!(bitmap.allocate(), None);
        given.sort_unstable();
        let mut all: Vec<_> = (0..71).collect();
        all.insert(4, 3);
        assert_eq!(given, all);
    }
}
