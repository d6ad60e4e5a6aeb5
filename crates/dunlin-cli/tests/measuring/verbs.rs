//! Verbs, without anything on top.

use crate::common::{assert_against, assert_report, dunlin, failure};
use crate::leaves_nothing;

#[test]
fn verbs_are_measured() {
    for arguments in [
        &["--test", "write"][..],
        &["--test", "write", "--size", "1"],
        &["--test", "write", "--size", "100000"],
        &["--test", "write", "--outstanding", "64"],
        &["--test", "write", "--outstanding", "3", "--transport", "uc"],
        &["--test", "write", "--transport", "uc"],
        &["--test", "read"],
        &["--test", "read", "--outstanding", "16", "--size", "4096"],
        &["--test", "send"],
        &["--test", "send", "--size", "1000000"],
        &["--test", "send", "--outstanding", "64"],
        &["--test", "send", "--transport", "uc"],
        &["--test", "send", "--transport", "ud"],
        &["--test", "send", "--transport", "ud", "--outstanding", "8"],
        &["--test", "atomic"],
        &["--test", "atomic", "--outstanding", "64"],
    ] {
        let command = ["perf", "verbs", "--seconds", "0.2", "--json"];
        let report = assert_report(&leaves_nothing(&[&command[..], arguments].concat()));
        assert_eq!(report["preset"], "verbs", "{arguments:?}");
        assert_eq!(report["device"], "shm", "{arguments:?}");
    }
}

#[test]
fn verbs_are_measured_against_the_limits() {
    for test in ["write", "read"] {
        let arguments = ["--against", "limits", "--test", test, "--json"];
        let command = ["perf", "verbs", "--seconds", "0.5"];
        let output = dunlin(&[&command[..], &arguments].concat());
        assert_against(&assert_report(&output));
    }
}

#[test]
fn verbs_that_a_transport_lacks_are_refused() {
    for (test, transport) in [("read", "uc"), ("atomic", "uc"), ("write", "ud")] {
        let arguments = ["perf", "verbs", "--test", test, "--transport", transport];
        let words = failure(&dunlin(&arguments), 2);
        assert!(words.contains("transports that support it: RC"), "{words}");
    }
    let arguments = ["perf", "verbs", "--test", "send", "--transport", "ud"];
    let words = failure(
        &dunlin(&[&arguments[..], &["--size", "100000"]].concat()),
        2,
    );
    assert!(words.contains("over UD is 4096 bytes"), "{words}");
}
