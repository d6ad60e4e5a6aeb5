//! Threads of a device: who waits for one waits until its deadline and no longer, and hears what it panicked with.

use std::cell::RefCell;
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use dunlin_verbs::thread::Running;

const LONG: Duration = Duration::from_secs(60);

/// Ends when whoever has the other end of it has gone.
struct Polite(Receiver<()>);

impl Drop for Polite {
    fn drop(&mut self) {
        let _ = self.0.recv_timeout(LONG);
    }
}

thread_local! {
    static CONNECTION: RefCell<Option<Polite>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_that_has_ended_is_not_waited_for_while_what_is_its_own_goes_on() {
    let (keep, closed) = channel();
    let thread = Running::start("polite".to_owned(), move || {
        CONNECTION.set(Some(Polite(closed)));
    })
    .unwrap();
    let began = Instant::now();
    let ended = thread.join_until(began + LONG / 2);
    assert!(matches!(ended, Some(Ok(()))), "{ended:?}");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    drop(keep);
}

#[test]
fn one_that_goes_on_is_left_at_the_deadline() {
    let (end, goes_on) = channel::<()>();
    let run = move || {
        let _ = goes_on.recv_timeout(LONG);
    };
    let thread = Running::start("goes on".to_owned(), run).unwrap();
    let until = Instant::now() + Duration::from_millis(20);
    assert!(thread.join_until(until).is_none());
    drop(end);
}

#[test]
fn a_panic_is_heard_of() {
    for bounded in [false, true] {
        let thread = Running::start("panics".to_owned(), || panic!("as it should")).unwrap();
        let ended = match bounded {
            true => thread.join_until(Instant::now() + LONG).unwrap(),
            false => thread.join(),
        };
        let words = ended.unwrap_err();
        assert_eq!(words.downcast_ref(), Some(&"as it should"));
    }
}
