//! The queue pairs of a connection (Flor's Connection Management): which one is primary, and how the others are
//! renewed.
//!
//! The *epoch* counts the changes of the primary; queue pair `epoch mod paths` is primary in it. Both ends may change
//! at the same time: the greater epoch wins, and the end that learns of it fences all queue pairs of earlier epochs.
//! What a fenced queue pair still had in flight then cannot arrive after what is sent again over the new one.

use dunlin_verbs::EndpointAddress;

/// One queue pair.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Whether it can be primary.
    ready: bool,
    /// The epoch in which it was last fenced.
    fenced: u64,
    /// Number of work requests without completion.
    outstanding: usize,
    /// Whether it was fenced and is to be renewed as soon as nothing is outstanding.
    flushing: bool,
    renewed: bool,
    peer: Option<EndpointAddress>,
    connecting: bool,
    connected: bool,
    peer_ready: bool,
}

/// An action required on a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Renew,
    Connect(EndpointAddress),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Paths {
    epoch: u64,
    /// Whether the peer is known to be in this epoch.
    confirmed: bool,
    paths: Vec<Path>,
}

impl Paths {
    /// The first `connected` queue pairs are connected, and the very first is primary; the others are in the state of
    /// renewed ones that have not been announced to the peer.
    pub(super) fn new(paths: usize, connected: usize) -> Self {
        let path = |index| Path {
            ready: index < connected,
            fenced: 0,
            outstanding: 0,
            flushing: false,
            renewed: false,
            peer: None,
            connecting: false,
            connected: index < connected,
            peer_ready: index < connected,
        };
        Self {
            epoch: 0,
            confirmed: true,
            paths: (0..paths.max(1)).map(path).collect(),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn primary(&self) -> usize {
        self.of(self.epoch)
    }

    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    fn of(&self, epoch: u64) -> usize {
        (epoch % self.paths.len() as u64) as usize
    }

    /// Whether WRITEs may be sent: they carry no epoch, so the peer must be known to be in ours.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    pub(super) fn posted(&mut self, path: usize) {
        self.paths[path].outstanding += 1;
    }

    /// Records that a work request has completed; returns what has to be done now.
    pub(super) fn completed(&mut self, path: usize) -> Option<Step> {
        let path = &mut self.paths[path];
        path.outstanding = path.outstanding.saturating_sub(1);
        path.step()
    }

    pub(super) fn outstanding(&self, path: usize) -> usize {
        self.paths[path].outstanding
    }

    /// The next epoch when the primary has failed; `None` without a backup.
    pub(super) fn next_epoch(&self) -> Option<u64> {
        (self.epoch + 1..self.epoch + self.paths.len() as u64)
            .find(|epoch| self.paths[self.of(*epoch)].ready)
    }

    /// The epoch that the low bits in a header refer to: one that can follow ours, or a past one.
    pub(super) fn epoch_of(&self, low: u16) -> u64 {
        let ahead = low.wrapping_sub(self.epoch as u16);
        if u64::from(ahead) < self.paths.len() as u64 {
            self.epoch + u64::from(ahead)
        } else {
            self.epoch.saturating_sub(u64::from(ahead.wrapping_neg()))
        }
    }

    /// Whether to change to the epoch in a header received from `path`.
    pub(super) fn is_ahead(&self, epoch: u64, path: usize) -> bool {
        let usable = self.paths.get(path).is_some_and(|path| path.connected);
        epoch > self.epoch && usable && self.of(epoch) == path
    }

    /// Changes to a later epoch. Returns the queue pairs to be fenced, each with what to do afterwards.
    pub(super) fn change(&mut self, epoch: u64) -> Vec<(usize, Option<Step>)> {
        let mut fenced = Vec::new();
        for old in self.epoch..epoch {
            let number = self.of(old);
            let path = &mut self.paths[number];
            *path = Path {
                ready: false,
                fenced: epoch,
                outstanding: path.outstanding,
                flushing: true,
                renewed: false,
                peer: None,
                connecting: false,
                connected: false,
                peer_ready: false,
            };
            fenced.push((number, path.step()));
        }
        self.epoch = epoch;
        self.confirmed = false;
        // The peer would not have changed to it otherwise.
        let primary = self.primary();
        self.paths[primary].ready = true;
        fenced
    }

    /// Records that a queue pair was renewed here.
    pub(super) fn renewed(&mut self, path: usize) -> Option<Step> {
        let path = self.paths.get_mut(path)?;
        path.renewed = !path.flushing && !path.connected;
        path.step()
    }

    /// Records that the peer, in this epoch of its own, has renewed a queue pair.
    pub(super) fn peer_renewed(
        &mut self,
        path: u32,
        address: EndpointAddress,
        epoch: u64,
    ) -> Option<(usize, Step)> {
        let number = usize::try_from(path).ok()?;
        let path = self.paths.get_mut(number)?;
        if !path.connected && epoch >= path.fenced {
            path.peer = Some(address);
        }
        Some((number, path.step()?))
    }

    /// Records that a queue pair was connected here.
    pub(super) fn connected(&mut self, path: usize) -> bool {
        let Some(path) = self.paths.get_mut(path).filter(|path| path.connecting) else {
            return false;
        };
        path.connecting = false;
        path.connected = true;
        path.ready = path.peer_ready;
        true
    }

    /// Records that the peer, in this epoch of its own, has connected a queue pair.
    pub(super) fn peer_ready(&mut self, path: u32, epoch: u64) {
        let number = usize::try_from(path).unwrap_or(usize::MAX);
        let path = self.paths.get_mut(number);
        if let Some(path) = path.filter(|path| epoch >= path.fenced) {
            path.peer_ready = true;
            path.ready |= path.connected;
        }
    }
}

impl Path {
    fn step(&mut self) -> Option<Step> {
        if self.flushing && self.outstanding == 0 {
            self.flushing = false;
            return Some(Step::Renew);
        }
        let address = self.peer.filter(|_| self.renewed)?;
        self.peer = None;
        self.renewed = false;
        self.connecting = true;
        Some(Step::Connect(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_verbs::ENDPOINT_ADDRESS_BYTES;

    fn address() -> EndpointAddress {
        EndpointAddress::decode(&[0; ENDPOINT_ADDRESS_BYTES])
    }

    #[test]
    fn a_failed_queue_pair_comes_back_when_both_ends_have_renewed_and_connected_it() {
        let mut paths = Paths::new(3, 3);
        paths.posted(0);
        assert_eq!(paths.next_epoch(), Some(1));
        assert_eq!(paths.change(1), [(0, None)]);
        assert!(!paths.is_confirmed() && paths.primary() == 1);
        assert_eq!(paths.peer_renewed(0, address(), 1), None);
        assert_eq!(paths.completed(0), Some(Step::Renew));
        assert_eq!(paths.renewed(0), Some(Step::Connect(address())));
        assert!(paths.connected(0));
        assert!(!paths.connected(0));
        assert_eq!(paths.change(2), [(1, Some(Step::Renew))]);
        assert_eq!(paths.next_epoch(), None);
        paths.peer_ready(0, 0);
        assert_eq!(paths.next_epoch(), None);
        paths.peer_ready(0, 1);
        assert_eq!(paths.next_epoch(), Some(3));
    }

    #[test]
    fn epochs_are_followed_forwards_and_to_the_queue_pair_that_spoke() {
        let mut paths = Paths::new(3, 3);
        assert!(!paths.is_ahead(0, 0));
        assert!(paths.is_ahead(2, 2));
        assert!(!paths.is_ahead(2, 1));
        assert!(!paths.is_ahead(paths.epoch_of(3), 0));
        assert!(!paths.is_ahead(1, 9));
        // Both queue pairs of the epochs in between are fenced.
        let fenced: Vec<_> = paths.change(2).into_iter().map(|(path, _)| path).collect();
        assert_eq!(fenced, [0, 1]);
        assert!(!paths.is_ahead(1, 1));
        // Its queue pair is not connected again.
        assert!(!paths.is_ahead(3, 0));
    }

    #[test]
    fn the_low_bits_of_an_epoch_are_enough() {
        let mut paths = Paths::new(3, 3);
        paths.epoch = 65_537;
        assert_eq!(paths.epoch_of(1), 65_537);
        assert_eq!(paths.epoch_of(3), 65_539);
        assert_eq!(paths.epoch_of(4), 4);
        assert_eq!(paths.epoch_of(0), 65_536);
        assert_eq!(paths.epoch_of(u16::MAX), 65_535);
    }

    #[test]
    fn a_peer_cannot_speak_of_queue_pairs_that_are_not_there_or_not_broken() {
        let mut paths = Paths::new(2, 2);
        assert_eq!(paths.peer_renewed(7, address(), 0), None);
        assert_eq!(paths.peer_renewed(1, address(), 0), None);
        paths.peer_ready(u32::MAX, 0);
        assert_eq!(paths.renewed(1), None);
        assert_eq!(paths.next_epoch(), Some(1));
    }
}
