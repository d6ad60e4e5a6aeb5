//! What a responder owes its requester: acknowledgements and refusals.

use super::super::responses::Response;
use super::Responder;
use crate::packet::{Acknowledgement, Refusal, Syndrome, PSN_COUNT};

impl Responder {
    pub(super) fn acknowledgement(&self, syndrome: Syndrome) -> Acknowledgement {
        Acknowledgement {
            syndrome,
            messages: self.messages,
        }
    }

    /// No credits are kept: the code for that is 31.
    pub(super) fn positive(&self) -> Acknowledgement {
        self.acknowledgement(Syndrome::Acknowledged(31))
    }

    /// Acknowledges everything so far.
    pub(super) fn acknowledge(&mut self) {
        let acknowledgement = self.positive();
        self.responses
            .acknowledge(self.expected.plus(PSN_COUNT - 1), acknowledgement);
    }

    /// An acknowledgement that waits to be sent is for what has come since, too.
    pub(super) fn acknowledge_too(&mut self) {
        if self.responses.ends_with_acknowledgement() {
            self.acknowledge();
        }
    }

    /// Refuses the expected packet.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let acknowledgement = self.acknowledgement(Syndrome::Refused(refusal));
        self.responses.acknowledge(self.expected, acknowledgement);
    }

    /// The next packet to send: a READ's payload is to be read from its range, with the right checked again. When that
    /// fails, [`Responder::fail_read`]; otherwise [`Responder::sent`].
    pub fn poll_transmit(&self) -> Option<Response> {
        self.responses.front()
    }

    /// Has everything so far acknowledged, although nobody asked for it; `false` when there is no room to say so behind
    /// the answers that wait. After a refusal nothing is left to be acknowledged.
    pub fn acknowledge_unasked(&mut self) -> bool {
        if self.failed {
            return true;
        }
        self.acknowledge();
        self.responses.ends_with_acknowledgement()
    }

    /// Whether all there is to send is that packets have come, which may wait a little for company.
    pub fn has_acknowledgement_only(&self) -> bool {
        self.responses.is_acknowledgement_only()
    }

    /// The packet that [`Responder::poll_transmit`] gave is on its way.
    pub fn sent(&mut self) {
        self.responses.sent();
    }
}
