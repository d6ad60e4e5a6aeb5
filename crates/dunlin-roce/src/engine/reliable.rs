//! Packets of RC: requests for the responder, answers for the requester.

use dunlin_verbs::CompletionStatus;

use super::target::Inbound;
use super::{Engine, Protocol, Shared};
use crate::packet::Header;
use crate::reliable::{ReadPlacement, Verdict};
use crate::socket::Count;
use crate::work::Gone;

/// Number of packets received without an acknowledgement after which it is no longer delayed to be sent with other
/// packets.
const SILENT_PACKETS: u32 = 16;
/// How long packets that do not request an acknowledgement wait for one, in nanoseconds: much less than any peer waits
/// before it retransmits.
pub(super) const UNASKED_NS: u64 = 200_000;

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
            let (id, placed) = match requester.handle(now_ns, header, payload.len()) {
                None => return,
                Some(ReadPlacement::Bytes { id, offset }) => {
                    (id, self.place(id, offset as usize, payload))
                }
                Some(ReadPlacement::Value { id, original }) => {
                    (id, self.place(id, 0, &original.to_ne_bytes()))
                }
            };
            if let (Err(Gone), Protocol::Reliable { requester, .. }) = (placed, &mut self.protocol)
            {
                requester.fail_placement(id, CompletionStatus::LocalProtection);
            }
            return;
        }
        let mut inbound = Inbound {
            shared,
            access: self.access,
            current: &mut self.current,
        };
        let count = match responder.handle(header, payload, &mut inbound) {
            // Its answer acknowledges everything up to it.
            Verdict::Taken if !header.operation.has_payload() => {
                self.unacknowledged = 0;
                self.unasked_ns = None;
                return;
            }
            Verdict::Taken => {
                self.unacknowledged += 1;
                if self.unacknowledged >= SILENT_PACKETS {
                    responder.acknowledge_unasked();
                    self.acknowledge_ns = Some(now_ns);
                }
                self.unasked_ns.get_or_insert(now_ns + UNASKED_NS);
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

    /// Writes an answer to the buffers of its request.
    fn place(&self, id: u64, offset: usize, bytes: &[u8]) -> Result<(), Gone> {
        self.send(id)
            .map_or(Ok(()), |send| send.bytes.scatter(offset, bytes))
    }
}
