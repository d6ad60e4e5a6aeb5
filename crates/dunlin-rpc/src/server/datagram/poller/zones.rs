//! Requests that clients write into zones of their sessions (HERD), and when a zone is polled.

use dunlin_verbs::Device;

use super::Poller;

impl<D: Device> Poller<D> {
    /// Serves requests that were written into zones.
    #[inline]
    pub(super) fn serve_zones(&mut self) -> usize {
        let mut taken = 0;
        let mut at = 0;
        while let Some(&(number, _)) = self.zones.get(at) {
            if self.outgoing.is_full() {
                // There is no room for answers: requests wait where they are.
                break;
            }
            taken += self.serve_zone(at);
            // The session may have ended, and its zone with it.
            at += usize::from(self.zones.get(at).is_some_and(|(own, _)| *own == number));
        }
        taken
    }

    /// Serves the requests in the zone at this index of the list.
    #[inline]
    fn serve_zone(&mut self, at: usize) -> usize {
        let Some((number, zone)) = self.zones.get_mut(at) else {
            return 0;
        };
        let number = *number;
        zone.begin();
        let mut taken = 0;
        while let Some((_, zone)) = self.zones.get_mut(at).filter(|(own, _)| *own == number) {
            let Some((block, header)) = zone.take(&mut self.scratch) else {
                break;
            };
            taken += 1;
            let now = self.now;
            self.with(number, |session, tools, bytes| {
                session.heard = now;
                session.take_written(block, header, bytes, tools)
            });
        }
        taken
    }

    /// Polls all blocks of a session's zone, before a datagram of the session is taken: the datagram may ask about a
    /// request that was written earlier and has not been found, because a poll covers only some blocks and skips a
    /// resting zone.
    pub(super) fn serve_zone_of(&mut self, number: u32) -> usize {
        let mut zones = self.zones.iter_mut();
        let Some(at) = zones.position(|(own, _)| *own == number) else {
            return 0;
        };
        let zone = &mut self.zones[at].1;
        if !zone.has_news() {
            return 0;
        }
        zone.look_at_all();
        self.serve_zone(at)
    }
}
