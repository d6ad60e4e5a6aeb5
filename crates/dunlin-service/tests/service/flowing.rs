//! Handlers of streams that the tests share.
#![allow(missing_docs, unreachable_pub)]

use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::flow_server::{Flow, FlowServer};
use crate::common::Note;
use dunlin::RunningServer;
use dunlin_service::{Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::Notify;

/// The service, which counts its handlers and what they have made.
#[derive(Clone, Default)]
pub struct Flowing {
    begun: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    pub made: Arc<AtomicUsize>,
    /// Has a handler that hangs drop what it could read.
    pub deaf: Arc<Notify>,
}

pub struct Guard(Arc<AtomicUsize>);

impl Flowing {
    fn begin(&self) -> Guard {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        Guard(Arc::clone(&self.running))
    }

    /// How many there have been.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub type Notes = BoxStream<'static, Result<Note, Status>>;

#[dunlin_service::async_trait]
impl Flow for Flowing {
    type CountStream = Notes;
    type ChatStream = Notes;
    type HangStream = Notes;

    async fn count(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let guard = self.begin();
        let made = Arc::clone(&self.made);
        let asked = request.into_inner();
        if asked.words == "no" {
            return Err(Status::not_found("no notes"));
        }
        if asked.words == "tick" {
            let ticks = stream::unfold(guard, move |guard| {
                made.fetch_add(1, Ordering::SeqCst);
                async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Some((Ok(Note::new("tick")), guard))
                }
            });
            return Ok(Response::new(ticks.boxed()));
        }
        let (count, is_long) = (asked.number, asked.words == "long head");
        let notes = stream::iter(0..count).map(move |number| {
            let _running = &guard;
            made.fetch_add(1, Ordering::SeqCst);
            match asked.words.as_str() {
                "panic" if number == 2 => panic!("a bug in a stream"),
                "fail" if number == 2 => Err(Status::data_loss("the third is lost")),
                _ => Ok(Note {
                    number,
                    payload: asked.payload.clone(),
                    ..Note::default()
                }),
            }
        });
        let mut response = Response::new(notes.boxed());
        response
            .metadata_mut()
            .insert("x-count", count.to_string())
            .unwrap();
        if is_long {
            let long = vec![b'a'; 9000];
            response.metadata_mut().insert("x-long", long).unwrap();
        }
        Ok(response)
    }

    async fn sum(&self, request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        let _running = self.begin();
        let mut notes = request.into_inner();
        let mut sum = Note::default();
        let (mut count, mut is_long) = (0, false);
        while let Some(note) = notes.message().await? {
            sum.number += note.number;
            count += 1;
            is_long |= note.words == "long head";
            if note.words == "enough" {
                return Err(Status::out_of_range("enough"));
            }
        }
        sum.words = count.to_string();
        let mut response = Response::new(sum);
        if is_long {
            let long = vec![b'a'; 9000];
            response.metadata_mut().insert("x-long", long).unwrap();
        }
        Ok(response)
    }

    async fn chat(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        let guard = self.begin();
        let made = Arc::clone(&self.made);
        Ok(Response::new(
            request
                .into_inner()
                .inspect(move |_| {
                    let _running = &guard;
                    made.fetch_add(1, Ordering::SeqCst);
                })
                .boxed(),
        ))
    }

    async fn hang(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        let (running, notes) = (self.begin(), request.into_inner());
        let deaf = Arc::clone(&self.deaf);
        let first = stream::iter([Ok(Note::new("hello"))]);
        let never = stream::once(async move {
            let _running = running;
            deaf.notified().await;
            drop(notes);
            pending().await
        });
        Ok(Response::new(first.chain(never).boxed()))
    }
}

pub fn start(flowing: &Flowing) -> (RunningServer, String) {
    let server = Server::builder().add_service(FlowServer::new(flowing.clone()));
    let running = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = running.address().to_string();
    (running, address)
}

pub fn note(number: u64, bytes: usize) -> Note {
    Note {
        number,
        payload: vec![number as u8; bytes],
        ..Note::default()
    }
}

/// A stream of the user's that says how much was taken of it.
pub struct Counted(pub Arc<AtomicUsize>, pub usize);

impl Stream for Counted {
    type Item = Note;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Note>> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(note(number as u64, self.1)))
    }
}

/// Waits until a count stands still.
pub async fn still(count: &AtomicUsize) -> usize {
    let mut before = usize::MAX;
    loop {
        let now = count.load(Ordering::SeqCst);
        if now == before {
            return now;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
