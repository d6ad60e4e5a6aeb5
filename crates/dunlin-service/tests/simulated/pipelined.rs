//! Calls of a pipeline: many out at once, each answered once, by the answer to itself.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use dunlin_service::{Answer, Channel, Method, Pipeline, Response, Status};

use crate::call::{clock, Call, Drawn};
use crate::caller::Caller;
use crate::log::{Failure, Log};
use crate::service::{FrontEcho, FrontFail, Note};
use crate::works::{QuickEcho, WorksWork};

/// Calls of one pipeline for each that a task would have out at once.
const CALLS: u64 = 6;

/// Calls that are out, by their tags, and when they began.
type Out = BTreeMap<u64, (Call, Duration)>;

/// Some calls by a pipeline of its own; says whether the connection is to be made anew.
pub fn call_group(caller: &mut Caller, channel: &Channel, made: &mut u64) -> bool {
    let window = caller.dice.between(1, 12) as usize;
    let mut pipeline = match channel.pipeline(window) {
        Ok(pipeline) => pipeline,
        Err(status) => {
            caller.log().failed.push(Failure::new("a pipeline", status));
            return true;
        }
    };
    let (mut out, mut is_lost) = (Out::new(), false);
    let mut to_come = caller.dice.between(1, caller.together * CALLS);
    let ended = loop {
        if let Err(status) = submit(caller, &mut pipeline, &mut out, &mut to_come, made) {
            break Err(status);
        }
        if out.is_empty() && to_come == 0 {
            break Ok(());
        }
        let log = &caller.log;
        let taken = pipeline.wait(|tag, answer| is_lost |= answered(&mut out, tag, answer, log));
        if let Err(status) = taken {
            break Err(status);
        }
        if caller.dice.chance(1, 8) {
            dunlin::thread::sleep(Duration::from_micros(caller.dice.between(0, 200)));
        }
        if pipeline.outstanding() != out.len() {
            let words = format!("{} out, of {}", pipeline.outstanding(), out.len());
            caller
                .log()
                .wrong
                .push(format!("a pipeline says that there are {words}"));
        }
    };
    if let Err(status) = ended {
        // Of a connection that is lost each call has heard.
        if pipeline.outstanding() != out.len() {
            let words = format!("{} calls of a pipeline ended without a word", out.len());
            caller.log().wrong.push(words);
        }
        caller.log().given_up += out.len();
        caller.log().failed.push(Failure {
            queued: out
                .values()
                .any(|(call, _)| matches!(call.drawn, Drawn::Work(_))),
            ..Failure::new("a pipeline", status)
        });
        is_lost = true;
    }
    is_lost
}

/// Puts calls into the batch as long as there is room.
fn submit(
    caller: &mut Caller,
    pipeline: &mut Pipeline,
    out: &mut Out,
    to_come: &mut u64,
    made: &mut u64,
) -> Result<(), Status> {
    while *to_come > 0 {
        let before = (caller.dice.clone(), *made);
        let call = caller.draw_short(made);
        let tag = call.number;
        let note = call.note();
        let has_room = match call.drawn {
            Drawn::Quick => pipeline.submit::<QuickEcho>(&note, tag)?,
            Drawn::Work(_) => pipeline.submit::<WorksWork>(&note, tag)?,
            Drawn::Fail(_) => pipeline.submit::<FrontFail>(&note, tag)?,
            _ => pipeline.submit::<FrontEcho>(&note, tag)?,
        };
        if !has_room {
            // Drawn again when there is.
            (caller.dice, *made) = before;
            break;
        }
        *to_come -= 1;
        caller.log().made += 1;
        out.insert(tag, (call, clock()));
    }
    Ok(())
}

/// A call has ended; says whether the connection is to be made anew.
fn answered(out: &mut Out, tag: u64, answer: Result<Answer<'_>, Status>, log: &Mutex<Log>) -> bool {
    let Some((call, began)) = out.remove(&tag) else {
        let words = format!("the tag {tag}, of which no call is out");
        log.lock().expect("nobody panicked").wrong.push(words);
        return false;
    };
    let came = answer.and_then(|answer| match call.drawn {
        Drawn::Quick => message::<QuickEcho>(answer, &call),
        Drawn::Work(_) => message::<WorksWork>(answer, &call),
        Drawn::Fail(_) => message::<FrontFail>(answer, &call),
        _ => message::<FrontEcho>(answer, &call),
    });
    let ended = call.ended(came, began, log);
    log.lock().expect("nobody panicked").pipelined += usize::from(ended.is_ok());
    call.judge(ended, log)
}

/// Taken out of the answer, or lent by it.
fn message<M: Method<Response = Note>>(answer: Answer<'_>, call: &Call) -> Result<Note, Status> {
    match call.number % 2 {
        0 => answer.with::<M, _>(Note::clone),
        _ => answer.response::<M>().map(Response::into_inner),
    }
}
