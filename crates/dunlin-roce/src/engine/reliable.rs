//! Packets of RC: requests for the responder, answers for the requester.

use dunlin_verbs::CompletionStatus;

use super::target::Inbound;
use super::{Engine, Protocol, Shared};
use crate::packet::Header;
use crate::reliable::{ReadPlacement, Verdict};
use crate::socket::Count;

/// Packets that are taken without a word; then an acknowledgement does not wait any longer for company.
const SILENT_PACKETS: u32 = 16;

impl Engine {
    pub(super) fn handle_reliable(
        &mut self,
        shared: &Shared,
        now_ns: u64,
        header: &Header,
        payload: &[u8],
    ) {
        let Protocol::Reliable {
            requester,
            responder,
        } = &mut self.protocol
        else {
            return;
        };
        if header.operation.is_response() {
            let placed = match requester.handle(now_ns, header, payload.len()) {
                None => Ok(()),
                Some(ReadPlacement::Bytes { id, offset }) => match self.send(id) {
                    Some(send) => send.bytes.scatter(offset as usize, payload),
                    None => Ok(()),
                },
                Some(ReadPlacement::Value { id, original }) => match self.send(id) {
                    Some(send) => send.bytes.scatter(0, &original.to_ne_bytes()),
                    None => Ok(()),
                },
            };
            if placed.is_err() {
                self.fail_requester(CompletionStatus::LocalProtection);
            }
            return;
        }
        let mut inbound = Inbound {
            shared,
            access: self.access,
            current: &mut self.current,
        };
        let count = match responder.handle(header, payload, &mut inbound) {
            Verdict::Taken => {
                self.unacknowledged += 1;
                if self.unacknowledged >= SILENT_PACKETS {
                    self.acknowledge_ns = Some(now_ns);
                }
                return;
            }
            Verdict::Duplicate => Count::Duplicate,
            Verdict::Gap => Count::Gap,
            Verdict::NotReady => Count::NoReceive,
            Verdict::Refused(_) => Count::Refused,
            Verdict::Dropped => Count::Dropped,
        };
        shared.core.socket.statistics.count(count);
    }

    /// Ends the oldest request with an error that was found here.
    pub(super) fn fail_requester(&mut self, status: CompletionStatus) {
        if let Protocol::Reliable { requester, .. } = &mut self.protocol {
            requester.fail(status);
        }
    }
}
