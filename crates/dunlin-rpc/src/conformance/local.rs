//! Calls of one thread: local tasks, and the driver of all of them.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use dunlin_verbs::thread;

use super::{pattern, Outcome, Stage, ECHO};
use crate::{CallError, LocalClient};

/// Number of tasks, and number of calls of each.
const TASKS: u64 = 40;
const CALLS: u64 = 8;

/// One of the tasks; every third call is given up.
async fn task(client: LocalClient, number: u64) {
    for call in 0..CALLS {
        let length = (number * 137 + call * 1021) as usize % 9000;
        let payload = pattern(length, number << 32 | call);
        if call % 3 == 2 {
            drop(client.call_async(ECHO, &payload));
        }
        let answer = client.call(ECHO, &payload).await.expect("an answer");
        assert!(*answer == *payload);
    }
}

/// Tasks of one thread, more than may have calls outstanding at once, get their own answers; some give calls up, and
/// one calls a handler that does not exist.
pub fn tasks_of_one_thread_have_their_own_answers(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    stage.with_client(stage.client(&server), |client| {
        let (local, mut driver) = client.local().expect("a lane");
        let mut tasks: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>> = Vec::new();
        for number in 0..TASKS {
            tasks.push(Some(Box::pin(task(local.clone(), number))));
        }
        let all = std::future::poll_fn(|context| {
            for place in &mut tasks {
                let ended = place.as_mut().map(|task| task.as_mut().poll(context));
                if matches!(ended, Some(Poll::Ready(()))) {
                    *place = None;
                }
            }
            match tasks.iter().all(Option::is_none) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        thread::block_on(driver.run_until(all));
        let missing = thread::block_on(driver.run_until(local.call(999, b"")));
        assert!(
            matches!(missing, Err(CallError::UnknownHandler(999))),
            "{missing:?}"
        );
        // Calls made from now on are not driven.
        drop(driver);
        let late = thread::block_on(local.call(ECHO, b"late"));
        assert!(matches!(late, Err(CallError::Closed)), "{late:?}");
    });
    Ok(())
}
