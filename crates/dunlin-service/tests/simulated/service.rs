//! The services of the simulated hosts, and what their handlers saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use dunlin::thread;
use dunlin_service::codec::Prost;
use dunlin_service::{Channel, Code, Request, Response, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::dice::bytes_of;
use front_server::Front;

/// What is said, both ways: which of whose, of how many, and bytes that belong to that.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Note {
    #[prost(uint64, tag = "1")]
    pub source: u64,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(uint64, tag = "3")]
    pub of: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub payload: Vec<u8>,
}

impl Note {
    pub fn new(source: u64, number: u64, of: u64, length: usize) -> Self {
        let payload = bytes_of(source, number, length);
        Self {
            source,
            number,
            of,
            payload,
        }
    }

    /// Whether it is the one of this number, with its own bytes.
    pub fn is(&self, source: u64, number: u64) -> bool {
        (self.source, self.number) == (source, number)
            && self.payload == bytes_of(source, number, self.payload.len())
    }
}

dunlin_service::service! {
    /// What clients call.
    pub service Front = "simulated.Front" with Prost {
        /// The same note.
        rpc echo as Echo(Note) -> Note;
        /// A status of which `of` is the code.
        rpc fail as Fail(Note) -> Note;
        /// Never answers.
        rpc stay as Stay(Note) -> Note;
        /// What the handler of the second server sees: see [`Back`].
        rpc relay as Relay(Note) -> Note;
        /// `of` notes.
        rpc count as Count(Note) -> stream Note;
        /// How many notes there were, in `number`.
        rpc sum as Sum(stream Note) -> Note;
        /// Each note comes back.
        rpc chat as Chat(stream Note) -> stream Note;
    }
}

dunlin_service::service! {
    /// What handlers of [`Front`] call.
    pub service Back = "simulated.Back" with Prost {
        /// In `of` the deadline in nanoseconds of virtual time plus one, or zero; in the payload the `traceparent`.
        rpc look as Look(Note) -> Note;
    }
}

/// What handlers saw.
#[derive(Default)]
pub struct Seen {
    /// How often each unary call was executed.
    pub executed: BTreeMap<(u64, u64), usize>,
    /// Handlers that are there.
    pub running: usize,
    /// Messages that came to handlers of streams.
    pub messages: usize,
    pub wrong: Vec<String>,
}

/// Shared by all servers of a scene, those that are started anew too.
#[derive(Clone, Default)]
pub struct Service {
    seen: Arc<Mutex<Seen>>,
    /// To the second server.
    pub back: Arc<Mutex<Option<Channel>>>,
}

pub struct Running(Arc<Mutex<Seen>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().expect("nobody panicked").running -= 1;
    }
}

pub type Notes = BoxStream<'static, Result<Note, Status>>;

impl Service {
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panicked")
    }

    pub fn to_back(&self) -> Result<Channel, Status> {
        let back = self.back.lock().expect("nobody panicked").clone();
        back.ok_or_else(|| Status::unavailable("the second server is not known"))
    }

    pub fn enter(&self) -> Running {
        self.seen().running += 1;
        Running(Arc::clone(&self.seen))
    }

    pub fn count_call(&self, note: &Note) {
        let mut seen = self.seen();
        *seen.executed.entry((note.source, note.number)).or_default() += 1;
        if !note.is(note.source, note.number) {
            let what = format!("request {} of {} has other bytes", note.number, note.source);
            seen.wrong.push(what);
        }
    }
}

/// The next message of a client's stream; notes what is wrong with it.
async fn next(
    service: &Service,
    notes: &mut Streaming<Note>,
    expected: &mut (Option<(u64, u64)>, u64),
) -> Result<Option<Note>, Status> {
    let came = notes.message().await?;
    let mut seen = service.seen();
    let (stream, count) = expected;
    match &came {
        Some(note) => {
            seen.messages += 1;
            let (source, _) = *stream.get_or_insert((note.source, note.of));
            if !note.is(source, *count) {
                let what = format!(
                    "of stream {source} came {} of {} where {count} was to come",
                    note.number, note.source
                );
                seen.wrong.push(what);
            }
            *count += 1;
        }
        None => {
            if let Some((source, of)) = stream.filter(|(_, of)| of != count) {
                let what = format!("stream {source} ended well after {count} of {of}");
                seen.wrong.push(what);
            }
        }
    }
    Ok(came)
}

#[dunlin_service::async_trait]
impl Front for Service {
    type CountStream = Notes;
    type ChatStream = Notes;

    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.count_call(request.get_ref());
        Ok(Response::new(request.into_inner()))
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.count_call(request.get_ref());
        let code = Code::from(request.get_ref().of as i32);
        Err(Status::with_details(
            code,
            "as asked",
            &*request.get_ref().payload,
        ))
    }

    async fn stay(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.count_call(request.get_ref());
        let _running = self.enter();
        std::future::pending().await
    }

    async fn relay(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        self.count_call(request.get_ref());
        let _running = self.enter();
        let back = back_client::BackClient::new(self.to_back()?);
        back.look(request.into_inner()).await
    }

    async fn count(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let running = self.enter();
        let asked = request.into_inner();
        let notes = stream::iter(0..asked.of).map(move |number| {
            let _running = &running;
            let length = asked.payload.len();
            Ok(Note::new(asked.source, number, asked.of, length))
        });
        Ok(Response::new(notes.boxed()))
    }

    async fn sum(&self, request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        let _running = self.enter();
        let mut notes = request.into_inner();
        let mut expected = (None, 0);
        while next(self, &mut notes, &mut expected).await?.is_some() {}
        Ok(Response::new(Note {
            number: expected.1,
            ..Note::default()
        }))
    }

    async fn chat(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        let state = (self.clone(), self.enter(), request.into_inner(), (None, 0));
        let notes = stream::try_unfold(state, |mut state| async move {
            let (service, _, notes, expected) = &mut state;
            let came = next(service, notes, expected).await?;
            Ok(came.map(|note| (note, state)))
        });
        Ok(Response::new(notes.boxed()))
    }
}

#[dunlin_service::async_trait]
impl back_server::Back for Service {
    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let _running = self.enter();
        let deadline = request.deadline().map_or(0, |deadline| {
            let left = deadline.saturating_duration_since(thread::now());
            let now = thread::simulated_now().unwrap_or_default();
            (now + left).as_nanos() as u64 + 1
        });
        let trace = request.metadata().get(dunlin_service::TRACEPARENT);
        let payload = trace.unwrap_or_default().as_bytes().to_vec();
        let mut seen = request.into_inner();
        (seen.of, seen.payload) = (deadline, payload);
        Ok(Response::new(seen))
    }
}
