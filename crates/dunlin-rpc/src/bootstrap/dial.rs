//! The client's side of the handshake.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::address::Address;
use super::error::BootstrapError;
use super::message::{
    ClientHello, ClientOpen, OpenReply, OpenRequest, Outcome, Proved, ServerHello, NONCE_BYTES,
};
use super::secret::{Role, Secret, Transcript};
use super::selection::{Capability, Choice};
use super::stream::{FrameStream, StreamError};
use super::wire::{self, MAX_FRAME};

const GREETING: &str = "waiting for its hello";
const OPENING: &str = "waiting for its reply to the open request";

/// Between two questions to a busy server: the first pause, doubled until the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(160);

/// What a client has and wants.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// What the server has to know, if anything.
    pub secret: Option<Secret>,
    /// The client's devices.
    pub capabilities: Vec<Capability>,
    /// The name or kind of the only device that will do.
    pub device: Option<String>,
    /// Time for connecting and the hellos, and again for the open request. 5 s. Resolving a host name takes what
    /// the system's resolver allows itself.
    pub timeout: Duration,
}

impl Default for DialConfig {
    fn default() -> Self {
        Self {
            secret: None,
            capabilities: Vec::new(),
            device: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// A server that was reached and has proved itself: the device is chosen, and the server waits for the open request,
/// for as long as its `handshake_timeout` allows.
#[derive(Debug)]
pub struct Dialed {
    stream: TcpStream,
    conversation: Conversation,
    choice: Choice,
}

/// What every step needs.
#[derive(Debug)]
struct Conversation {
    address: Address,
    secret: Option<Secret>,
    timeout: Duration,
    transcript: Transcript,
}

/// All that a host name stands for.
pub(super) fn resolve(address: &Address) -> Result<Vec<SocketAddr>, BootstrapError> {
    let unknown = |source| BootstrapError::UnknownHost {
        address: address.clone(),
        source,
    };
    let all: Vec<_> = address
        .to_pair()
        .to_socket_addrs()
        .map_err(unknown)?
        .collect();
    if all.is_empty() {
        return Err(unknown(io::Error::from(ErrorKind::NotFound)));
    }
    Ok(all)
}

/// Reaches a server, checks that it knows the secret and learns which device was chosen. A server that is busy is
/// asked again for as long as the timeout allows.
///
/// # Errors
/// Says which step failed, and what would help.
pub fn dial(address: &Address, config: &DialConfig) -> Result<Dialed, BootstrapError> {
    let deadline = Instant::now() + config.timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        match dial_once(address, config, deadline) {
            Err(BootstrapError::Busy { .. }) if Instant::now() + pause < deadline => {
                thread::sleep(pause);
                pause = (pause * 2).min(LAST_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn dial_once(
    address: &Address,
    config: &DialConfig,
    deadline: Instant,
) -> Result<Dialed, BootstrapError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| BootstrapError::Io {
        call: "getting random numbers",
        source: error.into(),
    })?;
    let hello = ClientHello {
        nonce,
        has_secret: config.secret.is_some(),
        capabilities: config.capabilities.clone(),
        preference: config.device.clone(),
    };
    let frame = wire::encode_client_hello(&hello).map_err(BootstrapError::Limit)?;

    let stream = connect(address, config.timeout, deadline)?;
    // Only a delay is lost when it fails.
    let _ = stream.set_nodelay(true);
    let mut conversation = Conversation {
        address: address.clone(),
        secret: config.secret.clone(),
        timeout: config.timeout,
        transcript: Transcript::new(),
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let frames = FrameStream::new(&stream, left, MAX_FRAME);
    let sent = frames.send(&frame);
    let answer = match (frames.receive_hello(), sent) {
        // A server that refuses at once does not wait for our hello.
        (Ok(answer), _) => answer,
        (Err(_), Err(error)) | (Err(error), Ok(())) => {
            return Err(conversation.failed(error, GREETING));
        }
    };
    let choice = conversation.greeted(&frame, &answer).inspect_err(|error| {
        if matches!(error, BootstrapError::WrongSecret { .. }) {
            // So that the server, too, can say what was wrong.
            if let Ok(words) = wire::open_words(&ClientOpen::WrongSecret) {
                let _ = frames.send(&wire::with_proof(None, &words));
            }
        }
    })?;
    if !config
        .capabilities
        .iter()
        .any(|mine| mine.device == choice.client_device)
    {
        let what = format!("it chose `{}`, which was not offered", choice.client_device);
        return Err(BootstrapError::Protocol {
            address: address.clone(),
            what,
        });
    }
    Ok(Dialed {
        stream,
        conversation,
        choice,
    })
}

fn connect(
    address: &Address,
    timeout: Duration,
    deadline: Instant,
) -> Result<TcpStream, BootstrapError> {
    let timed_out = || BootstrapError::Timeout {
        address: address.clone(),
        timeout,
        during: "connecting",
    };
    let mut last = timed_out();
    for one in resolve(address)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        match TcpStream::connect_timeout(&one, left) {
            Ok(stream) => return Ok(stream),
            Err(source) => {
                last = match source.kind() {
                    ErrorKind::ConnectionRefused => BootstrapError::ConnectionRefused {
                        address: address.clone(),
                    },
                    ErrorKind::TimedOut => timed_out(),
                    _ => BootstrapError::Io {
                        call: "connecting",
                        source,
                    },
                }
            }
        }
    }
    Err(last)
}

impl Conversation {
    fn failed(&self, error: StreamError, during: &'static str) -> BootstrapError {
        let address = self.address.clone();
        match error {
            StreamError::Timeout => BootstrapError::Timeout {
                address,
                timeout: self.timeout,
                during,
            },
            StreamError::Closed => BootstrapError::Closed { address, during },
            StreamError::NotDunlin => BootstrapError::NotDunlin { address },
            StreamError::TooLong => {
                let what = format!("a frame is longer than {MAX_FRAME} bytes");
                BootstrapError::Protocol { address, what }
            }
            StreamError::Io { call, source } => BootstrapError::Io { call, source },
        }
    }

    /// Reads the server's hello, and believes it only with its proof.
    fn greeted(&mut self, sent: &[u8], answer: &[u8]) -> Result<Choice, BootstrapError> {
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
        match (&self.secret, secret_required) {
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
    /// The client's device that was chosen.
    pub fn device(&self) -> &str {
        &self.choice.client_device
    }

    /// The server's device that was chosen, by the server's name for it.
    pub fn server_device(&self) -> &str {
        &self.choice.server_device
    }

    /// Why this device was chosen.
    pub fn why(&self) -> &'static str {
        self.choice.reason.as_str()
    }

    /// The whole choice.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Tells the server what to open, waits for its answer, and closes the TCP connection. The request's device is
    /// filled in with the one that was chosen.
    ///
    /// # Errors
    /// When the server refuses, goes away, does not answer in time, or a limit is broken.
    pub fn open(mut self, mut request: OpenRequest) -> Result<OpenReply, BootstrapError> {
        request.device.clone_from(&self.choice.server_device);
        let open = ClientOpen::Open(request);
        let words = wire::open_words(&open).map_err(BootstrapError::Limit)?;
        let Conversation {
            address,
            secret,
            timeout,
            transcript,
        } = &mut self.conversation;
        transcript.add(&words);
        let proof = secret
            .as_ref()
            .map(|secret| secret.prove(Role::ClientOpen, transcript));

        let frames = FrameStream::new(&self.stream, *timeout, MAX_FRAME);
        let sent = frames.send(&wire::with_proof(proof.as_ref(), &words));
        let answer = match (frames.receive(), sent) {
            // A server that has lost its patience does not wait for our request.
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
                    what: "its reply was changed on the way".to_owned(),
                }),
            },
        }
    }
}
