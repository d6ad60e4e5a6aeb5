//! Calls of a thread that waits for each.

use std::sync::Mutex;

use dunlin_service::{BlockingStreaming, Response, Status};

use crate::call::{clock, Call, Clients, Drawn};
use crate::caller::Caller;
use crate::log::Log;
use crate::service::Note;

/// Some calls, one after the other; says whether the connection is to be made anew.
pub fn call_group(caller: &mut Caller, clients: &Clients, made: &mut u64) -> bool {
    for _ in 0..caller.dice.between(1, caller.together) {
        let call = caller.draw(made);
        let ended = call.make_blocking(clients, &caller.log);
        if call.judge(ended, &caller.log) {
            return true;
        }
    }
    false
}

impl Call {
    fn make_blocking(&self, clients: &Clients, log: &Mutex<Log>) -> Result<(), Status> {
        let front = clients.front.blocking();
        let (works, quick) = (clients.works.blocking(), clients.quick.blocking());
        let (request, began) = (self.request(), clock());
        let ended = match self.drawn {
            Drawn::Echo => front.echo(request),
            Drawn::Quick => quick.echo(request),
            Drawn::Work(_) => works.work(request),
            Drawn::Fail(_) => front.fail(request),
            Drawn::Stay(_) => front.stay(request),
            Drawn::Relay(_) => front.relay(request),
            Drawn::Delegate(_) => works.delegate(request),
            Drawn::Count => {
                let streaming = front.count(request)?.into_inner();
                return self.read_blocking(streaming, log);
            }
            Drawn::Sum => {
                self.summed(&front.sum(self.notes())?, log);
                return Ok(());
            }
            Drawn::Chat => {
                let streaming = front.chat(self.notes())?.into_inner();
                return self.read_blocking(streaming, log);
            }
        };
        self.ended(ended.map(Response::into_inner), began, log)
    }

    fn read_blocking(
        &self,
        mut streaming: BlockingStreaming<Note>,
        log: &Mutex<Log>,
    ) -> Result<(), Status> {
        let mut count = 0;
        while self.stop_after != Some(count) {
            if !self.took(streaming.next().transpose()?, count, log) {
                return Ok(());
            }
            count += 1;
        }
        log.lock().expect("nobody panicked").given_up += 1;
        Ok(())
    }
}
