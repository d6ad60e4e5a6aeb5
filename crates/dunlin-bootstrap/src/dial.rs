//! The client's side up to the server's hello: connect and exchange hellos.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dunlin_verbs::random;

use crate::address::Address;
use crate::config::DialConfig;
use crate::dialed::{Conversation, Dialed};
use crate::error::BootstrapError;
use crate::message::{ClientHello, ClientOpen, NONCE_BYTES};
use crate::pauses::Pauses;
use crate::resolve::resolve;
use crate::secret::Transcript;
use crate::stream::{First, FrameStream};
use crate::time::Time;
use crate::tls::Session;
use crate::transport::Transport;
use crate::wire::{self, MAX_FRAME};

const GREETING: &str = "waiting for the server's hello";

/// Time that connecting to the first IP address of a host may take before the next is tried, and then the first again.
/// A system whose queue is full drops connection requests, and the sender retries only a second later.
const FIRST_TRY: Duration = Duration::from_millis(300);

/// Looks up all IP addresses of an address's host, at least one, within `timeout`.
///
/// # Errors
/// [`BootstrapError::UnknownHost`] when the name cannot be resolved, [`BootstrapError::Timeout`] when the resolver has
/// not answered in time, [`BootstrapError::Io`] when too many names are being looked up.
pub fn look_up(address: &Address, timeout: Duration) -> Result<Vec<SocketAddr>, BootstrapError> {
    resolve(address, Time::of(timeout))
}

/// Connects to a server, checks that it knows the secret and learns which device was chosen. A busy server is tried
/// again for as long as the timeout allows.
///
/// # Errors
/// Says which step failed, and what would help.
pub fn dial(address: &Address, config: &DialConfig) -> Result<Dialed, BootstrapError> {
    reach(address, config, Time::of(config.timeout))
}

/// Like [`dial`], for a caller that waits no longer than until `deadline`, which applies to [`Dialed::open`] too. The
/// timeout of the configuration also applies; the earlier of the two counts.
///
/// # Errors
/// As for [`dial`].
pub fn dial_until(
    address: &Address,
    config: &DialConfig,
    deadline: Instant,
) -> Result<Dialed, BootstrapError> {
    // Computed once, so that an error names the timeout as it was set.
    let left = deadline.saturating_duration_since(Instant::now());
    reach(address, config, Time::of(left.min(config.timeout)))
}

/// Like [`dial`], within this time.
pub(crate) fn reach(
    address: &Address,
    config: &DialConfig,
    time: Time,
) -> Result<Dialed, BootstrapError> {
    let mut pauses = Pauses::new(time.deadline);
    loop {
        match dial_once(address, config, time) {
            Err(error) if error.is_passing() && pauses.pause() => {}
            outcome => return outcome,
        }
    }
}

fn dial_once(address: &Address, config: &DialConfig, time: Time) -> Result<Dialed, BootstrapError> {
    let mut nonce = [0; NONCE_BYTES];
    random::fill(&mut nonce).map_err(|source| BootstrapError::Io {
        call: "getting random numbers",
        source,
    })?;
    let hello = ClientHello {
        nonce,
        has_secret: config.secret.is_some(),
        capabilities: config.capabilities.clone(),
        preference: config.device.clone(),
    };
    let frame = wire::encode_client_hello(&hello).map_err(BootstrapError::Limit)?;

    let stream = connect(address, time)?;
    // A failure only costs latency.
    let _ = stream.set_nodelay(true);
    let mut stream = match &config.tls {
        None => Transport::Plain(stream),
        Some(tls) => Transport::Tls(Box::new(Session::client(stream, tls, address)?)),
    };
    let mut conversation = Conversation {
        address: address.clone(),
        time,
        transcript: Transcript::new(),
    };
    let mut frames = FrameStream::new(&mut stream, time.deadline, MAX_FRAME);
    let sent = frames.send(&frame);
    let answer = match (frames.receive(First::Hello), sent) {
        // A server that refuses at once does not wait for our hello.
        (Ok(answer), _) => answer,
        (Err(_), Err(error)) | (Err(error), Ok(())) => {
            return Err(conversation.failed(error, GREETING));
        }
    };
    let choice = conversation
        .greeted(config.secret.as_ref(), &frame, &answer)
        .inspect_err(|error| {
            if matches!(error, BootstrapError::WrongSecret { .. }) {
                // So that the server can report the problem, too.
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
        let what = format!(
            "it selected `{}`, which was not offered",
            choice.client_device
        );
        return Err(BootstrapError::Protocol {
            address: address.clone(),
            what,
        });
    }
    Ok(Dialed {
        stream,
        config: config.clone(),
        conversation,
        choice,
    })
}

fn connect(address: &Address, time: Time) -> Result<TcpStream, BootstrapError> {
    let Time { timeout, deadline } = time;
    let timed_out = || BootstrapError::Timeout {
        address: address.clone(),
        timeout,
        during: "connecting",
    };
    let all = resolve(address, time)?;
    let mut patience = FIRST_TRY;
    loop {
        let mut last = timed_out();
        let mut is_slow = false;
        for one in &all {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out());
            }
            match TcpStream::connect_timeout(one, left.min(patience)) {
                Ok(stream) => return Ok(stream),
                Err(source) => {
                    is_slow |= source.kind() == ErrorKind::TimedOut;
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
        // An address that has not answered may do so within a longer time, whatever another has answered.
        if !is_slow {
            return Err(last);
        }
        patience *= 2;
    }
}
