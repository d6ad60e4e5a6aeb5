//! Several faults of one kind in force at once.

use std::path::Path;

use super::{Experiment, Settings, Statistic};

/// The columns of the file with a server slowed by these faults.
fn columns(faults: &[&str]) -> Vec<Statistic> {
    let faults = faults
        .iter()
        .map(|fault| format!("[[faults]]\nhosts = \"server\"\n{fault}\n"));
    let text = format!(
        "[topology]\nswitch = \"z9264f\"\n[[topology.hosts]]\nname = \"server\"\n\
        [[topology.hosts]]\nname = \"clients\"\n[server]\nhost = \"server\"\n\
        [[clients]]\nhosts = \"clients\"\nrequest = \"4KiB\"\nthreads = 4\npreset = \"erpc\"\n\
        [run]\nwarm_up = \"100us\"\nduration = \"200us\"\n[print]\ncolumns = [\"rate\"]\n{}",
        faults.collect::<String>()
    );
    let experiment = Experiment::parse("my.toml", &text, Path::new(""), &Settings::default());
    let experiment = experiment.unwrap_or_else(|wrong| panic!("{wrong}"));
    let outcome = experiment.run(1, || false).expect("it runs");
    outcome.points[0].columns.clone()
}

#[test]
fn the_end_of_a_fault_leaves_the_others() {
    for (long, short, weaker) in [
        (
            "kind = \"slow\"\nfactor = 20\nto = \"10s\"",
            "kind = \"slow\"\nfactor = 40\nfrom = \"10us\"\nto = \"50us\"",
            "kind = \"slow\"\nfactor = 2\nfrom = \"10us\"\nto = \"50us\"",
        ),
        (
            "kind = \"slow-dma\"\nshare = 0.01\nto = \"10s\"",
            "kind = \"slow-dma\"\nshare = 0.005\nfrom = \"10us\"\nto = \"50us\"",
            "kind = \"slow-dma\"\nshare = 0.5\nfrom = \"10us\"\nto = \"50us\"",
        ),
    ] {
        let (none, alone) = (columns(&[]), columns(&[long]));
        assert!(
            alone[0].mean < none[0].mean / 2.0,
            "{alone:?} beside {none:?}"
        );
        // An additional weaker one changes nothing.
        assert_eq!(columns(&[long, weaker]), alone);
        assert_eq!(columns(&[weaker, long]), alone);
        let both = columns(&[long, short])[0].mean;
        assert!(both < none[0].mean / 2.0, "{both} beside {none:?}");
        // After the last has ended, everything is as before.
        let over = long.replace("10s", "50us");
        let healed = columns(&[&over, weaker])[0].mean;
        assert!(healed > none[0].mean / 2.0, "{healed} beside {none:?}");
    }
}
