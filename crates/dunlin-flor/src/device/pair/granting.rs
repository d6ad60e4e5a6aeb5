//! Memory for long messages that the peer has announced.

use dunlin_verbs::Device;

use super::super::frame::Tag;
use super::{Announced, Engine};

impl<D: Device> Engine<D> {
    /// Finds memory for what the peer wants to write.
    pub(super) fn grant(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        for _ in 0..self.announced.len() {
            let Some(announced) = self.announced.pop_front() else {
                return;
            };
            let Announced {
                message,
                bytes,
                tag,
            } = announced;
            let next = self.responder.next();
            let wanted = match Tag::decode(tag, next) {
                Some(Tag::Request(sequence)) => {
                    let wanted = self.responder.wants(sequence, bytes);
                    wanted.map(|known| known.then_some(sequence == next))
                }
                Some(Tag::Answer(_)) => {
                    let first = self.requester.first();
                    match Tag::decode(tag, first) {
                        Some(Tag::Answer(sequence)) if self.requester.wants(sequence, bytes) => {
                            Some(Some(sequence == first))
                        }
                        _ => None,
                    }
                }
                None => None,
            };
            match wanted {
                // It was never requested.
                None => link.refuse(message),
                // Its request has not arrived yet.
                Some(None) => self.announced.push_back(announced),
                // The request that all others wait for gets memory in any case.
                Some(Some(first)) => match link.landing(bytes, first) {
                    Some(landing) => link.grant(message, tag, landing),
                    None => self.announced.push_back(announced),
                },
            }
        }
    }

    pub(super) fn has_room(&self) -> bool {
        // A request may take two messages.
        self.held.len() + 4 <= self.place.config.link.connection.max_messages
    }
}
