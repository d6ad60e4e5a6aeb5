//! A child that was forked has nothing to say to peers of its parent.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::pair_of;
use dunlin_verbs::{Device, Operation, QueuePair, QueuePairState, Transport, VerbsError};

/// Has a child of this process do something; says with which code it ended.
fn in_a_child(does: impl FnOnce()) -> i32 {
    // SAFETY: the child only asks the device for what it refuses, and ends without returning from here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: ends the child, also if it hangs.
        unsafe { libc::alarm(30) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does));
        // SAFETY: ends the process.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 101 }) };
    }
    let mut status = 0;
    // SAFETY: our own child; `status` is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => -libc::WTERMSIG(status),
    }
}

#[test]
fn a_child_neither_ends_its_parents_queue_pairs_nor_asks_about_them() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    let send = Operation::Send { immediate: None };
    b.receive(1, 0, 100);
    a.post_inline(1, send, b"connected");
    assert!(a.sent().is_success() && b.received().is_success());
    let (abort, remote) = (b.pair.aborter().unwrap(), a.pair.address());
    let code = in_a_child(|| {
        abort();
        let confirmed = b.device.confirm_peer(&remote, Duration::from_secs(1));
        assert!(
            matches!(confirmed, Err(VerbsError::Forked(_))),
            "{confirmed:?}"
        );
    });
    assert_eq!(code, 0);
    // What the child has aborted is what it inherited: the parent's goes on, at both ends.
    b.receive(2, 0, 100);
    a.post_inline(2, send, b"still connected");
    assert!(a.sent().is_success() && b.received().is_success());
    assert_eq!(b.pair.state(), QueuePairState::ReadyToSend);
}
