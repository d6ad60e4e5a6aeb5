//! Calls of tasks: some at once, of which some are given up.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use dunlin_service::{Code, Response, Status, Streaming};
use futures_util::stream::{self, FuturesUnordered, StreamExt};

use crate::call::{clock, Call, Clients, Drawn};
use crate::caller::Caller;
use crate::log::{Failure, Log};
use crate::service::Note;

/// A call that is to be given up, and whether it may be answered before.
type Left = (bool, Pin<Box<dyn Future<Output = Result<(), Status>>>>);

/// Some calls at once; says whether the connection is to be made anew.
pub async fn call_group(caller: &mut Caller, clients: &Clients, made: &mut u64) -> bool {
    let calls = FuturesUnordered::new();
    for _ in 0..caller.dice.between(1, caller.together) {
        let call = caller.draw(made);
        let log = Arc::clone(&caller.log);
        let clients = clients.clone();
        calls.push(async move {
            let ended = call.make(&clients, &log).await;
            call.judge(ended, &log)
        });
    }
    // Given up when all the others have ended.
    let mut left: Vec<Left> = Vec::new();
    for _ in 0..caller.dice.one_of(&[0, 0, 1, 3]) {
        *made += 1;
        let clients = clients.clone();
        let microseconds = caller.dice.between(0, 2_000);
        let note = Note::new(caller.number, *made, microseconds, 9);
        left.push(match caller.dice.chance(1, 4) {
            true => {
                let call = async move { clients.works.work(note).await.map(drop) };
                (true, Box::pin(call))
            }
            false => {
                let call = async move { clients.front.stay(note).await.map(drop) };
                (false, Box::pin(call))
            }
        });
    }
    let mut ended = Vec::new();
    let mut all = std::pin::pin!(calls.collect::<Vec<bool>>());
    let lost = poll_fn(|context| {
        left.retain_mut(|(may_end, call)| match call.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(early) => {
                ended.push((*may_end, early));
                false
            }
        });
        all.as_mut().poll(context)
    })
    .await;
    let mut is_lost = lost.contains(&true);
    for (may_end, early) in ended {
        match early {
            Ok(()) if may_end => {}
            Ok(()) => caller.log().wrong.push("`stay` was answered".to_owned()),
            Err(status) => {
                is_lost |= status.code() == Code::Unavailable;
                caller.log().failed.push(Failure {
                    queued: may_end,
                    ..Failure::new("one that was to be given up", status)
                });
            }
        }
    }
    caller.log().given_up += left.len();
    drop(left);
    is_lost
}

impl Call {
    async fn make(&self, clients: &Clients, log: &Mutex<Log>) -> Result<(), Status> {
        let Clients {
            front,
            works,
            quick,
        } = clients;
        let (request, began) = (self.request(), clock());
        let ended = match self.drawn {
            Drawn::Echo => front.echo(request).await,
            Drawn::Quick => quick.echo(request).await,
            Drawn::Work(_) => works.work(request).await,
            Drawn::Fail(_) => front.fail(request).await,
            Drawn::Stay(_) => front.stay(request).await,
            Drawn::Relay(_) => front.relay(request).await,
            Drawn::Delegate(_) => works.delegate(request).await,
            Drawn::Count => {
                let streaming = front.count(request).await?.into_inner();
                return self.read(streaming, log).await;
            }
            Drawn::Sum => {
                self.summed(&front.sum(stream::iter(self.notes())).await?, log);
                return Ok(());
            }
            Drawn::Chat => {
                let said = stream::iter(self.notes());
                let streaming = front.chat(said).await?.into_inner();
                return self.read(streaming, log).await;
            }
        };
        self.ended(ended.map(Response::into_inner), began, log)
    }

    async fn read(&self, mut streaming: Streaming<Note>, log: &Mutex<Log>) -> Result<(), Status> {
        let mut count = 0;
        while self.stop_after != Some(count) {
            if !self.took(streaming.message().await?, count, log) {
                return Ok(());
            }
            count += 1;
        }
        log.lock().expect("nobody panicked").given_up += 1;
        Ok(())
    }
}
