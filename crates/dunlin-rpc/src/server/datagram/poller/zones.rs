//! Requests that clients write into zones of their sessions (HERD), and when a zone is looked at.

use dunlin_verbs::Device;

use super::Poller;

impl<D: Device> Poller<D> {
    /// Serves requests that were written into zones.
    #[inline]
    pub(super) fn serve_zones(&mut self) -> usize {
        let mut taken = 0;
        let mut at = 0;
        while let Some((number, zone)) = self.zones.get_mut(at) {
            if self.outgoing.is_full() {
                // There is no room for answers: they wait where they are.
                break;
            }
            let number = *number;
            zone.begin();
            while let Some((_, zone)) = self.zones.get_mut(at).filter(|(own, _)| *own == number) {
                let Some((block, header)) = zone.take(&mut self.scratch) else {
                    at += 1;
                    break;
                };
                taken += 1;
                let now = self.now;
                self.with(number, |session, tools, bytes| {
                    session.heard = now;
                    session.take_written(block, header, bytes, tools)
                });
            }
        }
        taken
    }

    /// A session has sent a datagram, which may ask about a request that was written before and that no look has found
    /// yet: a look is at some blocks, and a zone that rests is passed over. Whether there is anything: then the next
    /// look is at every block.
    pub(super) fn look_at_zone_of(&mut self, number: u32) -> bool {
        let mut zones = self.zones.iter_mut();
        let Some((_, zone)) = zones.find(|(own, _)| *own == number) else {
            return false;
        };
        let arrived = zone.has_arrival();
        if arrived {
            zone.look_at_all();
        }
        arrived
    }
}
