//! A server to which a client has connected, and the check of its proof.

use crate::address::Address;
use crate::certificate::TlsFailure;
use crate::config::DialConfig;
use crate::error::BootstrapError;
use crate::message::{Outcome, Proved, ServerHello};
use crate::peer::Peer;
use crate::secret::{Role, Secret, Transcript};
use crate::selection::Choice;
use crate::stream::StreamError;
use crate::time::Time;
use crate::transport::Transport;
use crate::wire::{self, MAX_FRAME};

/// A server that was reached and has proved its identity: the device is chosen, and the server waits for the open
/// request, for as long as its `handshake_timeout` allows.
#[derive(Debug)]
pub struct Dialed {
    pub(crate) stream: Transport,
    /// For dialing again if the server was too busy to wait for the open request.
    pub(crate) config: DialConfig,
    pub(crate) conversation: Conversation,
    pub(crate) choice: Choice,
}

/// State that every step needs.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) address: Address,
    pub(crate) time: Time,
    pub(crate) transcript: Transcript,
}

impl Conversation {
    pub(crate) fn failed(&self, error: StreamError, during: &'static str) -> BootstrapError {
        let address = self.address.clone();
        match error {
            StreamError::Timeout => BootstrapError::Timeout {
                address,
                timeout: self.time.timeout,
                during,
            },
            StreamError::Closed => BootstrapError::Closed { address, during },
            StreamError::NotDunlin | StreamError::BeginsTls => {
                BootstrapError::NotDunlin { address }
            }
            StreamError::Tls(failure) => match failure {
                TlsFailure::NotTls => BootstrapError::TlsUnexpected { address },
                TlsFailure::Certificate(fault) => {
                    BootstrapError::ServerCertificate { address, fault }
                }
                TlsFailure::Refused(fault) => BootstrapError::ClientCertificate { address, fault },
                TlsFailure::Other(what) => BootstrapError::Tls { address, what },
            },
            StreamError::TooLong => {
                let what = format!("frame longer than the limit of {MAX_FRAME} bytes");
                BootstrapError::Protocol { address, what }
            }
            StreamError::Io { call, source } => BootstrapError::Io { call, source },
        }
    }

    /// Reads the server's hello, and accepts it only with a valid proof.
    pub(crate) fn greeted(
        &mut self,
        secret: Option<&Secret>,
        sent: &[u8],
        answer: &[u8],
    ) -> Result<Choice, BootstrapError> {
        let wrong = |error| BootstrapError::from_parse(&self.address, error);
        let words = wire::check_prefix(answer)
            .and_then(wire::split_proof)
            .map_err(wrong)?
            .1;
        let Proved { proof, message } = wire::parse_server_hello(answer).map_err(wrong)?;
        let ServerHello {
            secret_required,
            outcome,
            ..
        } = message;
        let address = self.address.clone();
        let choice = match outcome {
            Outcome::Refused(refusal) => {
                return Err(BootstrapError::from_refusal(&address, refusal));
            }
            Outcome::Accepted(choice) => choice,
        };
        self.transcript.add(sent);
        self.transcript.add(words);
        match (secret, secret_required) {
            (None, true) => Err(BootstrapError::SecretRequired { address }),
            (Some(_), false) => Err(BootstrapError::SecretUnexpected { address }),
            (None, false) => Ok(choice),
            (Some(secret), true) => match proof {
                Some(proof) if secret.verifies(Role::ServerHello, &self.transcript, &proof) => {
                    Ok(choice)
                }
                _ => Err(BootstrapError::WrongSecret { address }),
            },
        }
    }
}

impl Dialed {
    /// The server's identity, as far as its certificate and the secret have proved it.
    pub fn peer(&self) -> Peer {
        Peer {
            address: self.stream.tcp().peer_addr().ok(),
            knows_secret: self.config.secret.is_some(),
            names: self.stream.peer_names(),
            ..Peer::default()
        }
    }

    /// The client's device that was chosen.
    pub fn device(&self) -> &str {
        &self.choice.client_device
    }

    /// The server's device that was chosen, by the server's name for it.
    pub fn server_device(&self) -> &str {
        &self.choice.server_device
    }

    /// Why it was chosen.
    pub fn why(&self) -> &'static str {
        self.choice.reason.as_str()
    }

    /// The complete choice.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }
}
