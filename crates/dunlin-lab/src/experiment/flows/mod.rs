//! Flows of an experiment: a number of bytes from one host to another, beginning at a given time, as WRITEs on a queue
//! pair of their own; and the completion time of each.
//!
//! - `keys` and `model` check the tables of a file; `list` reads flows from files of other simulators;
//! - `sender` is the thread that posts the flows of a host, `running` puts them all on a cluster, `times` has their
//!   completion times;
//! - `queues` observes the queues at switch ports meanwhile.

mod keys;
mod list;
mod model;
mod queues;
mod running;
mod sender;
mod times;

pub(super) use keys::SECTION;
pub(super) use model::{read, Flow, Flows};
pub(super) use queues::{Deepest, Queues};
pub(super) use running::Running;
pub use times::FlowTime;
pub(super) use times::FlowTimes;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Experiment, OutcomePoint, Settings};

    fn run(more: &str) -> OutcomePoint {
        let text = format!(
            "{more}\n{}",
            r#"
            [topology]
            switch = "z9264f"
            [[topology.hosts]]
            name = "hosts"
            count = 3
            [[flows]]
            name = "both"
            senders = ["hosts.0", "hosts.1"]
            receivers = "hosts.2"
            size = "3MB"
            message = "64KiB"
            outstanding = 4
            [[flows]]
            name = "late"
            senders = "hosts.2"
            receivers = "hosts"
            size = 1
            count = 2
            start = "1ms"
            [run]
            warm_up = "0ns"
            duration = "5s"
            [print]
            columns = ["flows", "unfinished.both", "flows.late", "fct_max.late", "goodput"]
            "#
        );
        let settings = Settings::default();
        let experiment = Experiment::parse("f.toml", &text, Path::new(""), &settings).unwrap();
        let mut outcome = experiment.run(1, || false).unwrap();
        outcome.points.remove(0)
    }

    #[test]
    fn flows_begin_when_they_are_to_and_all_end() {
        let point = run("");
        let values: Vec<f64> = point.columns.iter().map(|column| column.mean).collect();
        assert_eq!(values[..3], [6.0, 0.0, 4.0]);
        // A byte takes microseconds whenever it is sent, and three megabytes take the time of the port.
        assert!((1.0..20.0).contains(&values[3]), "{values:?}");
        for flow in &point.flows {
            let took = flow.took_ns.expect("it ended");
            let least = flow.bytes * 8 / 100;
            assert!(took > least, "{flow:?}");
        }
        let starts: Vec<u64> = point.flows.iter().map(|flow| flow.start_ns).collect();
        assert_eq!(starts, [0, 0, 1_000_000, 1_000_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn flows_to_a_host_that_has_crashed_do_not_end() {
        let crash = "[[faults]]\nkind = \"crash\"\nhosts = \"hosts.2\"\nfrom = \"100us\"\n";
        let point = run(crash);
        let values: Vec<f64> = point.columns.iter().map(|column| column.mean).collect();
        assert_eq!(values[..3], [0.0, 2.0, 0.0]);
        assert!(point.flows.iter().all(|flow| flow.took_ns.is_none()));
    }
}
