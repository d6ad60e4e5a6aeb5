//! What a responder sends to its requester: acknowledgements and refusals.

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

    /// Credits are not used; the code for that is 31.
    pub(super) fn positive(&self) -> Acknowledgement {
        self.acknowledgement(Syndrome::Acknowledged(31))
    }

    /// Acknowledges everything so far.
    pub(super) fn acknowledge(&mut self) {
        let acknowledgement = self.positive();
        self.responses
            .acknowledge(self.expected.plus(PSN_COUNT - 1), acknowledgement);
    }

    /// Extends an acknowledgement that waits to be sent to what has arrived since.
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

    /// The next packet to send: a READ's payload must be read from its range, with the access checked again. If that
    /// fails, call [`Responder::fail_read`], otherwise [`Responder::sent`].
    pub fn poll_transmit(&self) -> Option<Response> {
        self.responses.front()
    }

    /// Acknowledges everything so far without a request; `false` if there is no space for that behind the waiting
    /// answers. After a refusal there is nothing left to acknowledge.
    pub fn acknowledge_unasked(&mut self) -> bool {
        if self.failed {
            return true;
        }
        self.acknowledge();
        self.responses.ends_with_acknowledgement()
    }

    /// Whether only an acknowledgement is to be sent, which may be delayed a little to be sent with other packets.
    pub fn has_acknowledgement_only(&self) -> bool {
        self.responses.is_acknowledgement_only()
    }

    /// Records that the packet returned by [`Responder::poll_transmit`] was sent.
    pub fn sent(&mut self) {
        self.responses.sent();
    }
}
