//! Packets of UC.

use super::target::Inbound;
use super::{Engine, Protocol, Shared};
use crate::packet::Header;
use crate::socket::Count;
use crate::unreliable::Verdict;

impl Engine {
    pub(super) fn handle_unreliable(&mut self, shared: &Shared, header: &Header, payload: &[u8]) {
        let Protocol::Unreliable { receiver, .. } = &mut self.protocol else {
            return;
        };
        let mut inbound = Inbound {
            shared,
            access: self.access,
            current: &mut self.current,
        };
        let count = match receiver.handle(header, payload, &mut inbound) {
            Verdict::Taken => return,
            Verdict::Gap => Count::Gap,
            Verdict::NoReceive => Count::NoReceive,
            Verdict::Refused => Count::Refused,
        };
        shared.core.socket.statistics.count(count);
    }
}
