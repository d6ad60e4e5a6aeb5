//! The client's last step: it sends the open request, and receives the reply.

use crate::dial;
use crate::dialed::{Conversation, Dialed};
use crate::error::BootstrapError;
use crate::message::{ClientOpen, OpenReply, OpenRequest, Outcome, Proved};
use crate::pauses::Pauses;
use crate::secret::Role;
use crate::stream::{First, FrameStream};
use crate::wire::{self, MAX_FRAME};

const OPENING: &str = "waiting for the reply to the open request";

impl Dialed {
    /// Sends the open request, waits for the reply until the deadline of the dial, and closes the TCP connection. The
    /// request's device is set to the chosen one. A server that was too busy to wait for the request is tried again,
    /// from the hello on.
    ///
    /// # Errors
    /// When the server refuses, disconnects, does not answer in time, or a limit is violated.
    pub fn open(mut self, mut request: OpenRequest) -> Result<OpenReply, BootstrapError> {
        request.device.clone_from(&self.choice.server_device);
        let open = ClientOpen::Open(request);
        let words = wire::open_words(&open).map_err(BootstrapError::Limit)?;
        let mut pauses = Pauses::new(self.conversation.time.deadline);
        loop {
            match self.ask(&words) {
                Err(error) if error.is_passing() => {
                    if !pauses.pause() {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
            let Conversation { address, time, .. } = &self.conversation;
            let again = dial::reach(address, &self.config, *time)?;
            if again.choice != self.choice {
                return Err(BootstrapError::Protocol {
                    address: address.clone(),
                    what: "it selected a different device than before".to_owned(),
                });
            }
            self = again;
        }
    }

    fn ask(&mut self, words: &[u8]) -> Result<OpenReply, BootstrapError> {
        let secret = self.config.secret.as_ref();
        let Conversation {
            address,
            time,
            transcript,
            ..
        } = &mut self.conversation;
        transcript.add(words);
        let proof = secret.map(|secret| secret.prove(Role::ClientOpen, transcript));

        let mut frames = FrameStream::new(&mut self.stream, time.deadline, MAX_FRAME);
        let sent = frames.send(&wire::with_proof(proof.as_ref(), words));
        let received = frames.receive(First::Anything);
        let answer = match (received, sent) {
            // A server that has stopped waiting does not read our request.
            (Ok(answer), _) => answer,
            (Err(_), Err(error)) | (Err(error), Ok(())) => {
                return Err(self.conversation.failed(error, OPENING));
            }
        };
        let wrong = |error| BootstrapError::from_parse(address, error);
        let words = wire::split_proof(&answer).map_err(wrong)?.1;
        transcript.add(words);
        let Proved { proof, message } = wire::parse_open_reply(&answer).map_err(wrong)?;
        match (message, secret) {
            (Outcome::Refused(refusal), _) => Err(BootstrapError::from_refusal(address, refusal)),
            (Outcome::Accepted(reply), None) => Ok(reply),
            (Outcome::Accepted(reply), Some(secret)) => match proof {
                Some(proof) if secret.verifies(Role::ServerReply, transcript, &proof) => Ok(reply),
                _ => Err(BootstrapError::Protocol {
                    address: address.clone(),
                    what: "its reply was modified in transit".to_owned(),
                }),
            },
        }
    }
}
