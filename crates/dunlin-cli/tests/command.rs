//! The command as a user calls it: what it prints, and the code it ends with. No test asserts a time.

use std::process::{Command, Output};

use serde_json::Value;

fn dunlin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(arguments)
        .output()
        .expect("dunlin runs")
}

/// Standard output as the one JSON object it must be.
fn object(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(value.is_object(), "{text}");
    value
}

#[test]
fn limits_are_one_object_of_positive_figures() {
    let output = dunlin(&["perf", "limits", "--seconds", "1", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report = object(&output);
    for key in ["rate_per_s", "bytes_per_s", "seconds"] {
        assert!(
            report[key].as_f64().is_some_and(|figure| figure > 0.0),
            "{key}: {report}"
        );
    }
    for key in ["p50", "p99", "max"] {
        assert!(
            report["latency_ns"][key].as_u64().is_some_and(|ns| ns > 0),
            "{key}: {report}"
        );
    }
    // Few operations, as on a busy machine, have none.
    let tail = &report["latency_ns"]["p999"];
    assert!(tail.is_null() || tail.as_u64() > Some(0), "{report}");
    for key in [
        "errors",
        "device",
        "preset",
        "threads",
        "outstanding",
        "size",
    ] {
        assert!(report.get(key).is_some(), "{key}: {report}");
    }
    let limits = report["limits"].as_object().expect("limits");
    for (name, figure) in limits {
        let positive = figure
            .as_f64()
            .is_some_and(|figure| figure > 0.0 && figure.is_finite());
        assert!(positive, "{name}: {figure}");
    }
    for name in [
        "line_round_trip_p50_ns",
        "ring_round_trip_p50_ns",
        "ring_pipelined_8_per_s",
        "ring_pipelined_64_per_s",
        "spsc_by_1_per_s",
        "spsc_by_128_per_s",
        "copy_hot_1m_bytes_per_s",
        "copy_cold_64m_bytes_per_s",
        "udp_round_trip_p50_ns",
        "udp_plain_64_per_s",
        "udp_offload_128_per_s",
        "tcp_round_trip_p50_ns",
        "tcp_1m_bytes_per_s",
    ] {
        assert!(limits.contains_key(name), "{name}: {limits:?}");
    }
}

#[test]
fn doctor_looks_and_is_content_with_any_machine() {
    let output = dunlin(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("huge pages"));

    let output = dunlin(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let examined = object(&output);
    let findings = examined["findings"].as_array().expect("findings");
    assert!(!findings.is_empty());
    for finding in findings {
        assert!(["ok", "warn", "missing"].contains(&finding["state"].as_str().unwrap()));
        // Whatever is not as it should be comes with what to do about it.
        assert_eq!(
            finding["state"] == "ok",
            finding.get("advice").is_none(),
            "{finding}"
        );
    }
}

#[test]
fn bad_usage_is_exit_code_2_and_says_why_on_standard_error() {
    for arguments in [
        &["no-such-command"][..],
        &["perf", "limits", "--no-such-option"],
        &["perf", "limits", "--seconds", "0"],
        &["perf", "limits", "--seconds", "NaN"],
        &["perf", "limits", "--seconds", "soon"],
        &["perf"],
        &[],
    ] {
        let output = dunlin(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn help_teaches_by_examples() {
    for arguments in [
        &["--help"][..],
        &["perf", "limits", "--help"],
        &["doctor", "--help"],
    ] {
        let output = dunlin(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("Examples:"),
            "{output:?}"
        );
    }
}

#[test]
fn the_log_says_why_on_standard_error_and_nothing_unasked() {
    let measured = |log: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(["perf", "rpc", "--seconds", "1", "--json"]);
        if let Some(log) = log {
            command.env("DUNLIN_LOG", log);
        }
        command.output().expect("dunlin runs")
    };
    let words = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let quiet = measured(None);
    assert!(quiet.status.success(), "{quiet:?}");
    assert!(!words(&quiet).contains("DEBUG"), "{quiet:?}");
    let told = measured(Some("dunlin_bootstrap=debug"));
    assert!(told.status.success(), "{told:?}");
    object(&told);
    // The server process has it from its parent.
    assert!(words(&told).contains("handshake ended"), "{told:?}");
    let wrong = measured(Some("dunlin_rpc=loud"));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(words(&wrong).contains("DUNLIN_LOG=dunlin_rpc=loud"));
}
