//! Latencies of calls that take long.

use std::path::Path;

use super::{Experiment, Settings};

#[test]
fn a_latency_of_seconds_is_shown_as_it_is() {
    let text = "[topology]\nswitch = \"z9264f\"\n[[topology.hosts]]\nname = \"server\"\n\
        [[topology.hosts]]\nname = \"clients\"\n[server]\nhost = \"server\"\npollers = 1\nhandler = \"5s\"\n\
        [[clients]]\nhosts = \"clients\"\npreset = \"flock\"\ndeadline = \"60s\"\n\
        [run]\nwarm_up = \"0ns\"\nduration = \"6s\"\n[print]\ncolumns = [\"calls\", \"mean\", \"max\"]\n";
    let experiment = Experiment::parse("my.toml", text, Path::new(""), &Settings::default());
    let experiment = experiment.unwrap_or_else(|wrong| panic!("{wrong}"));
    let outcome = experiment.run(1, || false).expect("it runs");
    let columns = outcome.points[0].columns.iter();
    let values: Vec<f64> = columns.map(|column| column.mean).collect();
    assert_eq!(values[0], 1.0, "{values:?}");
    assert!(values[1] > 5e6 && values[2] > 5e6, "{values:?}");
}
