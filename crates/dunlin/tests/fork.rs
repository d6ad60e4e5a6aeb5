//! `fork()` in a process with connections: the child gets a typed error from all that it has inherited, the parent does not notice, and what the
//! child makes anew works. Each process that forks is the test binary started again.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::time::{Duration, Instant};

use common::{serve_echo, ECHO};
use dunlin::{CallError, Client, ConnectError, Peers, Preset};
use process::{listen, role, say, Other};

/// How long a child may take for everything, its end included.
const BOUND: Duration = Duration::from_secs(30);

/// Has a child of this process do something while this one does another thing again and again; says with which code the child ended. A child that
/// panics ends with 101, one that hangs is killed.
fn while_a_child(does: impl FnOnce(), mut meanwhile: impl FnMut()) -> i32 {
    // SAFETY: the child uses Dunlin, whose promise it is that this works, and ends without returning from here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does));
        // SAFETY: ends the process.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 101 }) };
    }
    let started = Instant::now();
    loop {
        meanwhile();
        let mut status = 0;
        // SAFETY: our own child; `status` is ours.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            return match libc::WIFEXITED(status) {
                true => libc::WEXITSTATUS(status),
                false => -libc::WTERMSIG(status),
            };
        }
        if started.elapsed() > BOUND {
            // SAFETY: as above.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            panic!("the child did not end");
        }
    }
}

/// Runs `test` in a process of its own, for each of these arguments; the first process serves.
fn in_processes(name: &str, arguments: &[&str], test: impl Fn(&str, &str)) {
    if let Some((_, argument)) = role() {
        let address = listen().unwrap();
        test(&argument, &address);
        return say("done");
    }
    let server = serve_echo();
    for argument in arguments {
        let mut other = Other::start(name, "forks", argument);
        other.say(&server.address().to_string());
        assert_eq!(other.hear(), "done", "{argument}");
    }
}

fn forked<T: std::fmt::Debug>(what: &str, result: Result<T, CallError>) {
    assert!(
        matches!(result, Err(CallError::Forked)),
        "{what} in the child: {result:?}"
    );
}

#[test]
fn parent_and_child_never_get_each_others_answers() {
    let presets: Vec<&str> = Preset::ALL.iter().map(|preset| preset.name()).collect();
    in_processes(
        "parent_and_child_never_get_each_others_answers",
        &presets,
        |preset, address| {
            let preset: Preset = preset.parse().unwrap();
            let connect = || Client::builder().preset(preset).connect(address).unwrap();
            let client = connect();
            let mut pipeline = client.pipeline().unwrap();
            let mut peers = Peers::new([&client]).unwrap();
            let future = client.call_async(ECHO, b"before");
            let mut number = 0;
            let mut call = |client: &Client, who: &str| {
                number += 1;
                let sent = format!("{who} {number}");
                let answer = client.call(ECHO, sent.as_bytes());
                answer.map(|answer| {
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    assert_eq!(answer, sent, "{who} of {preset:?} got another's answer");
                })
            };
            call(&client, "parent").unwrap();
            let ends = std::sync::atomic::AtomicBool::new(false);
            let ended = std::thread::scope(|scope| {
                // Another thread is in the middle of something when this one forks.
                let busy = client.clone();
                let thread = scope.spawn({
                    let ends = &ends;
                    move || {
                        while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                            assert_eq!(&*busy.call(ECHO, b"busy").unwrap(), b"busy");
                        }
                    }
                });
                let parents = client.clone();
                let code = while_a_child(
                    || {
                        let started = Instant::now();
                        let mut calls = 0;
                        while started.elapsed() < Duration::from_millis(200) || calls < 50 {
                            let result = client.call(ECHO, b"child");
                            if let Ok(answer) = &result {
                                panic!(
                                    "child of {preset:?} got {:?}",
                                    String::from_utf8_lossy(answer)
                                );
                            }
                            forked("call", result);
                            calls += 1;
                        }
                        let a_while = Duration::from_secs(1);
                        forked("call_within", client.call_within(a_while, ECHO, b"child"));
                        forked("buffer", client.buffer(100_000));
                        forked("attach", client.attach("none"));
                        forked("batch", client.batch().call(ECHO, b"child").send());
                        forked(
                            "future",
                            futures_executor::block_on(client.call_async(ECHO, b"child")),
                        );
                        forked("a future of before", futures_executor::block_on(future));
                        assert!(matches!(client.pipeline(), Err(ConnectError::Forked)));
                        assert!(matches!(Peers::new([&client]), Err(ConnectError::Forked)));
                        forked("submit", pipeline.submit(ECHO, b"child", 1));
                        forked("poll", pipeline.poll(|_, _| panic!("an answer")));
                        forked("wait", pipeline.wait(|_, _| panic!("an answer")));
                        forked("peers", peers.submit(0, ECHO, b"child", 1));
                        forked("peers wait", peers.wait(|_, _, _| panic!("an answer")));
                        assert_eq!(peers.poll(|_, _, _| panic!("an answer")), 0);
                        assert!(client.figures().is_none());
                        client.close();
                        drop((client, pipeline, peers));
                        let own = connect();
                        for _ in 0..50 {
                            call(&own, "child").unwrap();
                        }
                        let answer = futures_executor::block_on(own.call_async(ECHO, b"later"));
                        assert_eq!(&*answer.unwrap(), b"later");
                    },
                    || {
                        let sent = b"parent";
                        let answer = parents.call(ECHO, sent).unwrap();
                        assert_eq!(
                            String::from_utf8_lossy(&answer),
                            "parent",
                            "parent of {preset:?} got another's answer"
                        );
                    },
                );
                ends.store(true, std::sync::atomic::Ordering::Relaxed);
                thread.join().unwrap();
                code
            });
            assert_eq!(ended, 0, "the child of {preset:?}");
        },
    );
}
