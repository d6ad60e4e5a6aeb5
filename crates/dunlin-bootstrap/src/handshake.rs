//! The steps of a handshake, on the server's side. None of them blocks.

use dunlin_verbs::random;

use crate::config::AcceptorConfig;
use crate::counters::Ending;
use crate::message::{
    ClientHello, ClientOpen, OpenReply, OpenRequest, Outcome, ServerHello, NONCE_BYTES,
};
use crate::refusal::Refusal;
use crate::secret::{Role, Transcript};
use crate::selection::{choose, Capability, Choice};
use crate::stop::StopHandle;
use crate::stream::{send_at_once, StreamError};
use crate::transport::Transport;
use crate::wire::{self, ParseError};

impl From<StreamError> for Ending {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Timeout => Self::TooSlow,
            StreamError::NotDunlin | StreamError::TooLong | StreamError::BeginsTls => {
                Self::Malformed
            }
            StreamError::Tls(failure) => Self::Tls(failure),
            StreamError::Closed | StreamError::Io { .. } => Self::Closed,
        }
    }
}

impl From<ParseError> for Ending {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version { theirs } => Self::Version { theirs },
            _ => Self::Malformed,
        }
    }
}

/// Sends a refusal to a client that has not received a hello.
pub(crate) fn refuse_at_once(stream: &mut Transport, refusal: Refusal) {
    let outcome = Outcome::Refused(refusal);
    let hello = ServerHello {
        nonce: [0; NONCE_BYTES],
        secret_required: false,
        outcome,
    };
    if let Ok(words) = wire::server_hello_words(&hello) {
        // If it cannot be sent, the client will see that the connection is closed.
        let _ = send_at_once(stream, &wire::server_hello_frame(None, &words));
    }
}

/// Returns the chosen device, or the reason for refusing the client.
fn decide(
    config: &AcceptorConfig,
    stop: &StopHandle,
    hello: &ClientHello,
    stream: &Transport,
) -> Outcome<Choice> {
    Outcome::Refused(match (config.secret.is_some(), hello.has_secret) {
        _ if stop.is_stopped() => Refusal::ShuttingDown,
        // Before anything confidential is sent.
        _ if config.tls.is_some() && !stream.is_tls() => Refusal::TlsRequired,
        (true, false) => Refusal::SecretRequired,
        (false, true) => Refusal::SecretUnexpected,
        _ => {
            let preference = hello.preference.as_deref();
            match choose(&hello.capabilities, &offered(config, stream), preference) {
                Ok(choice) => return Outcome::Accepted(choice),
                Err(error) => Refusal::NoCommonDevice(error),
            }
        }
    })
}

/// The devices offered to a client: first the one of the interface at which it connected.
fn offered(config: &AcceptorConfig, stream: &Transport) -> Vec<Capability> {
    let mut all = config.capabilities.clone();
    let here = stream
        .tcp()
        .local_addr()
        .map(|local| local.ip().to_canonical());
    if let (Some(device_at), Ok(here)) = (config.device_at, here) {
        if let Some(near) = device_at(here) {
            all.sort_by_key(|one| one.device != near);
        }
    }
    all
}

/// Exchanges hellos; returns the chosen device.
pub(crate) fn greet(
    stream: &mut Transport,
    frame: &[u8],
    config: &AcceptorConfig,
    stop: &StopHandle,
    transcript: &mut Transcript,
) -> Result<Choice, Ending> {
    let theirs = match wire::parse_client_hello(frame) {
        Ok(theirs) => theirs,
        Err(error @ ParseError::Version { .. }) => {
            // The client sees our version in it, or otherwise that the connection is closed.
            let _ = send_at_once(stream, &wire::version_frame());
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    transcript.add(frame);

    let mut nonce = [0; NONCE_BYTES];
    let outcome = match random::fill(&mut nonce) {
        Ok(()) => decide(config, stop, &theirs, stream),
        Err(error) => {
            tracing::error!(%error, "cannot get random numbers");
            Outcome::Refused(Refusal::Failed)
        }
    };
    let hello = ServerHello {
        nonce,
        secret_required: config.secret.is_some(),
        outcome,
    };
    let words = wire::server_hello_words(&hello)?;
    transcript.add(&words);
    let accepted = matches!(hello.outcome, Outcome::Accepted(_));
    let secret = config.secret.as_ref().filter(|_| accepted);
    let proof = secret.map(|secret| secret.prove(Role::ServerHello, transcript));
    let sent = send_at_once(stream, &wire::server_hello_frame(proof.as_ref(), &words));
    match hello.outcome {
        Outcome::Accepted(choice) => sent.map(|()| choice).map_err(Ending::from),
        Outcome::Refused(refusal) => Err(Ending::Refused(refusal)),
    }
}

/// Handles the open request of an authenticated client. A refusal remains to be sent.
pub(crate) fn hear(
    frame: &[u8],
    config: &AcceptorConfig,
    stop: &StopHandle,
    transcript: &mut Transcript,
) -> Result<OpenRequest, Ending> {
    // The proof comes first: what an unauthenticated client sent is not even parsed.
    let (proof, words) = wire::split_proof(frame).map_err(|_| malformed())?;
    transcript.add(words);
    if let Some(secret) = &config.secret {
        let holds =
            proof.is_some_and(|proof| secret.verifies(Role::ClientOpen, transcript, &proof));
        if !holds {
            return Err(Ending::Refused(Refusal::WrongSecret));
        }
    }
    match wire::parse_open(frame).map_err(|_| malformed())?.message {
        ClientOpen::Open(_) if stop.is_stopped() => Err(Ending::Refused(Refusal::ShuttingDown)),
        ClientOpen::Open(request) => Ok(request),
        ClientOpen::WrongSecret => Err(Ending::Refused(Refusal::WrongSecret)),
    }
}

fn malformed() -> Ending {
    Ending::Refused(Refusal::Malformed)
}

/// Sends the last message.
pub(crate) fn answer(
    stream: &mut Transport,
    config: &AcceptorConfig,
    transcript: &mut Transcript,
    outcome: Result<OpenReply, Refusal>,
) -> Ending {
    let mut reply = match outcome {
        Ok(reply) => Outcome::Accepted(reply),
        Err(refusal) => Outcome::Refused(refusal.trimmed()),
    };
    let words = wire::open_reply_words(&reply).or_else(|error| {
        tracing::error!(%error, "the reply to a client exceeds a limit");
        reply = Outcome::Refused(Refusal::Failed);
        wire::open_reply_words(&reply)
    });
    let words = match words {
        Ok(words) => words,
        Err(error) => return error.into(),
    };
    transcript.add(&words);
    let secret = config.secret.as_ref();
    let proof = secret.map(|secret| secret.prove(Role::ServerReply, transcript));
    let sent = send_at_once(stream, &wire::with_proof(proof.as_ref(), &words));
    match (reply, sent) {
        (Outcome::Refused(refusal), _) => Ending::Refused(refusal),
        (Outcome::Accepted(_), Ok(())) => Ending::Opened,
        (Outcome::Accepted(_), Err(error)) => error.into(),
    }
}
