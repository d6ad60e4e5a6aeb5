//! A client that its server may call: it is registered there, and a thread opens the connections that the server
//! requests.

mod serving;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_bootstrap::Peer;
use dunlin_verbs::thread;

pub(crate) use serving::Serving;

use super::wait::end_of;
use super::{Client, Pipeline};
use crate::call::callbacks::CALLBACKS;
use crate::error::{CallError, ServeError};
use crate::fabric::Fabric;

/// Tags of the two outstanding calls, and of the last one.
const STAY: u64 = 0;
const NEXT: u64 = 1;
const LEAVE: u64 = 2;
/// Maximum number of calls outstanding at once.
const CALLS_OUT: usize = 3;
/// Time for informing the server that the client leaves.
const FAREWELL: Duration = Duration::from_secs(1);
/// The deadline stated for calls that the server answers only when there is something to report: it does not end them,
/// but in transit they are treated like others.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the thread waits at a time before it checks whether it should end.
const LOOK: Duration = Duration::from_millis(100);
/// How long it waits before it registers again: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// The data for a server that serves this client's server; see [`Client::other_end`].
pub(crate) struct OtherEnd {
    /// The device of the client's connections.
    pub(crate) fabric: Arc<dyn Fabric>,
    /// The identity of the client's server, as far as known.
    pub(crate) peer: Peer,
    /// By what it can be authenticated: a secret, a certificate.
    pub(crate) by_secret: bool,
    pub(crate) by_certificate: bool,
}

impl Client {
    /// The data for a server that serves this client's server.
    ///
    /// # Errors
    /// When the process was forked since.
    pub(crate) fn other_end(&self) -> Result<OtherEnd, CallError> {
        self.core.check()?;
        let recipe = self.core.recipe();
        let (fabric, peer) = recipe.ground().ok_or(CallError::Closed)?;
        let builder = recipe.builder();
        Ok(OtherEnd {
            fabric,
            peer,
            by_secret: builder.secret.is_some(),
            by_certificate: builder.tls.is_some(),
        })
    }

    /// Registers the client with its server, and keeps it registered on a separate thread.
    ///
    /// # Errors
    /// When the server refuses it, or has it already.
    pub(crate) fn keep_callable(&self, serving: &Arc<Serving>) -> Result<(), ServeError> {
        let former = thread::lock(&self.core.callable).upgrade();
        if former.is_some_and(|former| !has_left(&former)) {
            let words = "serve_to: the client already has a server for this: drop that one first";
            return Err(ServeError::Setting(words.to_owned()));
        }
        let most = self.core.recipe().channel.max_outstanding;
        if most < CALLS_OUT {
            return Err(ServeError::Setting(format!(
                "serve_to: max_outstanding of the client is {most}, but at least {CALLS_OUT} is needed: two calls stay \
                 outstanding while the server calls the client, and one ends them"
            )));
        }
        let registered = Registered::new(self, serving).map_err(ServeError::Callbacks)?;
        let (client, kept) = (self.clone(), Arc::clone(serving));
        let keep = move || keep(&client, &kept, registered);
        self.core.recipe().spawn("dunlin-callable", keep)?;
        *thread::lock(&self.core.callable) = Arc::downgrade(serving);
        Ok(())
    }
}

/// Whether the server knows that a registration that is to end has ended; waits for that.
fn has_left(former: &Serving) -> bool {
    let until = thread::now() + 2 * FAREWELL;
    while former.is_ending() && !former.is_over() && thread::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    former.is_over()
}

/// The thread's function.
fn keep(client: &Client, serving: &Arc<Serving>, first: Registered) {
    /// Also runs after a panic.
    struct Over<'a>(&'a Serving);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _over = Over(serving);
    let mut registered = Some(first);
    let mut pause = PAUSES[0];
    while !serving.is_ending() && !client.is_closed() {
        let went_on = match &mut registered {
            Some(registered) => registered.go_on(serving),
            None => Registered::new(client, serving).map(|new| registered = Some(new)),
        };
        match went_on {
            Ok(()) => pause = PAUSES[0],
            Err(error) => {
                tracing::debug!(%error, "the server cannot call this client; the client will register again");
                serving.set_registered(false);
                leave(registered.take());
                sleep(client, serving, pause);
                pause = (pause * 2).min(PAUSES[1]);
            }
        }
    }
    serving.set_registered(false);
    leave(registered);
}

/// Informs the server, because the connection may continue: others share it.
fn leave(registered: Option<Registered>) {
    if let Some(mut registered) = registered {
        if let Err(error) = registered.leave() {
            tracing::debug!(%error, "cannot tell the server that the client can no longer be called");
        }
    }
}

/// Pauses before the server is contacted again, unless the registration is to end.
fn sleep(client: &Client, serving: &Serving, pause: Duration) {
    let until = thread::now() + pause;
    while !serving.is_ending() && !client.is_closed() {
        let left = until.saturating_duration_since(thread::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The registration of a client at its server, which lasts as long as the pipeline's connection.
struct Registered {
    pipeline: Pipeline,
    heard: Heard,
    /// The next request for the server, if it has found no room yet, and until when it is tried.
    unsent: Option<(Vec<u8>, Instant)>,
    /// The client's deadline: how long a request may find no room before the client registers again.
    limit: Duration,
}

/// Answers of the server that have not been processed yet.
#[derive(Default)]
struct Heard {
    next: Option<Vec<u8>>,
    has_left: bool,
    /// Why the client is no longer registered.
    ended: Option<CallError>,
}

impl Heard {
    fn take(&mut self, tag: u64, answer: Result<&[u8], CallError>) {
        match (tag, answer) {
            (LEAVE, _) => self.has_left = true,
            (NEXT, Ok(words)) => self.next = Some(words.to_vec()),
            // The first error is the cause; others follow from it.
            (_, Err(error)) => drop(self.ended.get_or_insert(error)),
            (_, Ok(_)) => drop(self.ended.get_or_insert(CallError::Closed)),
        }
    }
}

impl Registered {
    fn new(client: &Client, serving: &Serving) -> Result<Self, CallError> {
        let limit = client.deadline;
        let until = end_of(thread::now(), limit);
        let pipeline = client.within(PATIENCE).pipeline_of(2)?.sleeping();
        let mut new = Self {
            pipeline,
            heard: Heard::default(),
            unsent: None,
            limit,
        };
        new.submit(&Serving::stay(), STAY, until)?;
        new.submit(&Serving::next(), NEXT, until)?;
        loop {
            // The first answer to the request for what is next confirms the registration.
            if let Some(words) = new.wait(until)? {
                new.submit(&serving.follow(&words)?, NEXT, until)?;
                serving.set_registered(true);
                return Ok(new);
            }
            if thread::now() >= until {
                return Err(CallError::DeadlineExceeded { after: limit });
            }
        }
    }

    /// Waits for a short time for a request of the server, and carries it out; or for room for the next request, while
    /// there is none.
    fn go_on(&mut self, serving: &Serving) -> Result<(), CallError> {
        let (next, until) = match self.unsent.take() {
            Some(unsent) => unsent,
            None => match self.wait(thread::now() + LOOK)? {
                Some(words) => (serving.follow(&words)?, end_of(thread::now(), self.limit)),
                None => return Ok(()),
            },
        };
        if self.try_submit(&next, NEXT, until.min(thread::now() + LOOK))? {
            return Ok(());
        }
        if let Some(error) = self.heard.ended.take() {
            return Err(error);
        }
        if thread::now() >= until {
            return Err(CallError::DeadlineExceeded { after: self.limit });
        }
        self.unsent = Some((next, until));
        Ok(())
    }

    /// The answer to the request for what is next, if it arrives until then.
    ///
    /// # Errors
    /// When the connection is lost, or the server has answered the call that stays outstanding for as long as the
    /// client is registered.
    fn wait(&mut self, until: Instant) -> Result<Option<Vec<u8>>, CallError> {
        self.hear(until)?;
        match self.heard.ended.take() {
            Some(error) => Err(error),
            None => Ok(self.heard.next.take()),
        }
    }

    /// Waits for any answer.
    fn hear(&mut self, until: Instant) -> Result<(), CallError> {
        let limit = until.saturating_duration_since(thread::now());
        let heard = &mut self.heard;
        let waited = self
            .pipeline
            .wait_at_most(limit, |tag, answer| heard.take(tag, answer));
        match waited {
            Ok(_) | Err(CallError::DeadlineExceeded { .. }) => Ok(()),
            Err(error) => Err(self.heard.ended.take().unwrap_or(error)),
        }
    }

    fn leave(&mut self) -> Result<(), CallError> {
        let until = thread::now() + FAREWELL;
        self.submit(&Serving::leave(), LEAVE, until)?;
        while !self.heard.has_left && thread::now() < until {
            self.hear(until)?;
        }
        Ok(())
    }

    fn submit(&mut self, ask: &[u8], tag: u64, until: Instant) -> Result<(), CallError> {
        let began = thread::now();
        if self.try_submit(ask, tag, until)? {
            return Ok(());
        }
        let after = until.saturating_duration_since(began);
        Err(CallError::DeadlineExceeded { after })
    }

    /// As [`Registered::submit`]; `false` if it has found no room until then.
    fn try_submit(&mut self, ask: &[u8], tag: u64, until: Instant) -> Result<bool, CallError> {
        // Other calls of the client may take up the room on a shared connection.
        while !self.pipeline.submit_here(CALLBACKS, ask, tag)? {
            let heard = &mut self.heard;
            let taken = self.pipeline.poll(|tag, answer| heard.take(tag, answer))?;
            if taken == 0 {
                thread::give_way();
            }
            if thread::now() >= until {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dunlin_bootstrap::Refusal;

    use super::{Registered, Serving};
    use crate::call::callbacks::Told;
    use crate::error::CallError;
    use crate::{CallableClients, ChannelConfig, Client, ServeError, Server};

    const ECHO: u16 = 1;

    /// The thread that keeps the registration looks in between whether it is to end.
    #[test]
    fn a_request_that_finds_no_room_is_given_up_after_the_deadline_of_the_client() {
        const LIMIT: Duration = Duration::from_secs(1);
        let callable = CallableClients::new(4);
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let server = server.callable_clients(&callable).serve().unwrap();
        // For the two that stay out, and no other.
        let channel = ChannelConfig {
            max_outstanding: 2,
            ..ChannelConfig::default()
        };
        let builder = Client::builder().channel(channel);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let serving = Serving::new("shm".to_owned(), |_| Err(Refusal::ShuttingDown));
        let mut registered = Registered::new(&client, &serving).unwrap();
        registered.limit = LIMIT;
        registered.heard.next = Some(Told::Welcome.encode());
        let mut ended = registered.go_on(&serving);
        while ended.is_ok() {
            assert!(registered.unsent.is_some());
            ended = registered.go_on(&serving);
        }
        assert!(
            matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == LIMIT),
            "{ended:?}"
        );
    }

    #[test]
    fn a_client_that_may_have_too_few_calls_out_is_told_so() {
        let callable = CallableClients::new(4);
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let server = server
            .callable_clients(&callable)
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .serve()
            .unwrap();
        for most in 1..=super::CALLS_OUT {
            let channel = ChannelConfig {
                max_outstanding: most,
                ..ChannelConfig::default()
            };
            let client = Client::builder().channel(channel);
            let client = client.connect(&server.address().to_string()).unwrap();
            let echo =
                Server::unbound().handle(ECHO, |request, reply| reply.write(request.payload()));
            match echo.serve_to(&client) {
                Ok(serving) if most == super::CALLS_OUT => {
                    assert_eq!(callable.list().len(), 1);
                    drop(serving);
                    crate::hostile::wait_for("it has left", || callable.list().is_empty());
                }
                Err(ServeError::Setting(words)) if most < super::CALLS_OUT => {
                    assert!(words.contains("max_outstanding"), "{words}");
                    assert!(callable.list().is_empty());
                }
                other => panic!("{most} calls: {:?}", other.map(drop)),
            }
        }
    }
}
