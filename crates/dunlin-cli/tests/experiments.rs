//! `dunlin lab run FILE.toml` as a user calls it. No test asserts a time.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["lab", "run"])
        .arg(file)
        .args(arguments)
        .output()
        .expect("dunlin runs")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The file that the help shows.
fn example() -> String {
    let help = run(Path::new("--help"), &[]);
    let help = words(&help.stdout);
    let after = help.split("# clients.toml\n").nth(1).expect("an example");
    let text = after.split("dunlin lab run clients.toml").next();
    text.expect("commands behind it").to_owned()
}

const SHORT: [&str; 4] = ["--set", "run.duration=50us", "--set", "run.warm_up=20us"];

#[test]
fn the_help_teaches_a_file_that_runs() {
    let folder = Folder::new("experiment-help");
    let file = folder.file("clients.toml", &example());
    let checked = run(&file, &["--check"]);
    assert!(checked.status.success(), "{checked:?}");
    let said = words(&checked.stdout);
    assert!(said.contains("right; points: 6, runs of each: 1"), "{said}");
    let out = folder.0.join("report");
    let more = ["--out", out.to_str().expect("UTF-8"), "--repeat", "2"];
    let ran = run(&file, &[&SHORT[..], &more].concat());
    assert!(ran.status.success(), "{ran:?}");
    let said = words(&ran.stdout);
    for part in ["clients.preset", "rate, M/s", "erpc", " ± ", "digest "] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    assert_eq!(read("clients.csv").lines().count(), 7);
    assert!(read("clients.svg").contains("polyline"));
}

#[test]
fn json_is_one_object_and_the_same_with_one_thread_and_two() {
    let folder = Folder::new("experiment-json");
    let file = folder.file("clients.toml", &example());
    let json = |arguments: &[&str]| -> Value {
        let output = run(&file, &[&SHORT[..], &["--json"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let mut object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        // Where and when are all that differs.
        let environment = object.as_object_mut().expect("an object");
        assert!(environment.remove("environment").is_some());
        object
    };
    let (one, two) = (json(&["--threads", "1"]), json(&["--threads", "2"]));
    assert_eq!(one, two);
    assert_ne!(one["digest"], json(&["--seed", "9"])["digest"]);
    let points = one["points"].as_array().expect("points");
    assert_eq!(points.len(), 6);
    assert_eq!(points[5]["at"]["clients.preset"], "erpc");
    let rate = &points[5]["columns"][0];
    assert_eq!(
        (&rate["name"], &rate["unit"]),
        (&"rate".into(), &"M/s".into())
    );
    assert!(
        rate["mean"].as_f64().is_some_and(|rate| rate > 0.0),
        "{rate}"
    );
}

#[test]
fn a_wrong_file_ends_with_two_and_says_where() {
    let folder = Folder::new("experiment-wrong");
    let text = example().replace("pollers = 4", "polers = 4");
    let file = folder.file("my.toml", &text);
    let line = text
        .lines()
        .position(|line| line.contains("polers"))
        .expect("a line")
        + 1;
    for arguments in [&[][..], &["--check"], &["--json"]] {
        let output = run(&file, arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        let said = words(&output.stderr);
        let place = format!("error: {}:{line}:", file.display());
        assert!(said.starts_with(&place), "{said}");
        for part in [
            "`server.polers`; did you mean `pollers`?",
            "docs/experiments.md",
        ] {
            assert!(said.contains(part), "no {part} in {said}");
        }
    }
}

#[test]
fn wrong_calls_say_what_is_for_what() {
    let folder = Folder::new("experiment-calls");
    let file = folder.file("my.toml", &example());
    let file = file.to_str().expect("UTF-8");
    for (arguments, why) in [
        (
            &["rb2-nf", "--set", "clients.threads=2"][..],
            "only be used with experiments",
        ),
        (&["rb2-nf", "--check"], "only be used with experiments"),
        (&[file, "--quick"], "no table [quick]"),
        (
            &[file, "--seeds", "2"],
            "--seeds can only be used with figures",
        ),
        (
            &["flock-10", "--check", "--seeds", "2"],
            "--seeds can only be used with figures",
        ),
        (
            &["rb2-nf", "--set", "nic.no_such=2"],
            "unknown `nic.no_such`",
        ),
        (&["rb2-nf", "--nic", "no/such.toml"], "--nic no/such.toml: "),
        (&[file, "--nic", file], "--nic "),
        (&[file, "rb2-nf"], "must run alone"),
        (&["no/such.toml"], "no/such.toml"),
        (
            &[file, "--set", "clients.treads=2"],
            "did you mean `threads`?",
        ),
        (&[file, "--repeat", "0"], "0 is not in 1..=1000"),
        (
            &[file, "--check", "--set", "nic.mtu_bytes=0"],
            "must be a number from 1",
        ),
        (
            &[file, "--check", "--set", "nic.pcie_chunk_bytes=0"],
            "must be a number from 1",
        ),
        (
            &[file, "--check", "--set", "nic.link_gbit_s=0"],
            "must be a number from 0.001",
        ),
        (
            &[file, "--check", "--set", "cpu.llc_sets=0"],
            "must be a number from 1",
        ),
    ] {
        let output = run(Path::new(arguments[0]), &arguments[1..]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = words(&output.stderr);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn the_keys_are_those_of_the_page() {
    let output = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["lab", "keys"])
        .output()
        .expect("dunlin runs");
    let page = include_str!("../../../docs/experiments.md");
    let text = words(&output.stdout);
    assert!(text.lines().count() > 100, "{text}");
    for line in text.lines() {
        assert!(page.contains(line), "not on the page: {line}");
    }
}

/// Flows from a list, beside what another simulator is said to have shown.
#[test]
fn flows_are_shown_beside_others() {
    let folder = Folder::new("experiment-flows");
    let text = "[[topology.hosts]]\nname = \"hosts\"\ncount = 3\n[topology]\nswitch = \"z9264f\"\n\
                [[flows]]\nfile = \"list.cm\"\nform = \"htsim\"\n\
                [run]\nwarm_up = \"0ns\"\n[print]\ncolumns = [\"flows\", \"fct_max\", \"queue_max\"]\n";
    let file = folder.file("flows.toml", text);
    let list = "Nodes 3\nConnections 2\n0->2 start 0 size 100000\n1->2 start 0 size 100000\n";
    folder.file("list.cm", list);
    let runs = "experiment,point,peer,model,run,flows,fct_max\nflows,,another,its own,1,2,10\n";
    let runs = folder.file("runs.csv", runs);
    let runs = runs.to_str().expect("UTF-8");
    let out = folder.0.join("report");
    let ran = run(
        &file,
        &["--beside", runs, "--out", out.to_str().expect("UTF-8")],
    );
    assert!(ran.status.success(), "{ran:?}");
    let said = words(&ran.stdout);
    for part in [
        "another",
        "its own",
        "of their runs",
        "fct_max, us",
        "+0.0 %",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let each = std::fs::read_to_string(out.join("flows.flows.csv")).expect("a file");
    assert!(
        each.starts_with("from,to,bytes,start_ns,took_ns\n0,2,100000,0,"),
        "{each}"
    );
    assert_eq!(each.lines().count(), 3);
    let ran = run(&file, &["--beside", runs, "--json"]);
    let json: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(json["beside"][1]["column"], "fct_max");
    assert_eq!(json["beside"][1]["theirs"], 10.0);
    assert_eq!(json["points"][0]["flows"][1]["from"], 1);
    let wrong = folder.file("wrong.csv", "experiment,point\n");
    let ran = run(&file, &["--beside", wrong.to_str().expect("UTF-8")]);
    assert_eq!(ran.status.code(), Some(2));
    let said = words(&ran.stderr);
    assert!(said.contains("wrong.csv: line 1 must begin with"), "{said}");
}

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command
        .arg("lab")
        .args(arguments)
        .output()
        .expect("dunlin runs")
}

#[test]
fn the_file_of_a_figure_is_shown_changed_and_run() {
    let shown = lab(&["show", "flock-10"]);
    assert!(shown.status.success(), "{shown:?}");
    let folder = Folder::new("experiment-figure");
    let few = words(&shown.stdout).replace("count = 23", "count = 2");
    let file = folder.file("mine.toml", &few);
    let checked = run(&file, &["--check", "--quick"]);
    assert!(
        words(&checked.stdout).contains("right; points: 3,"),
        "{checked:?}"
    );
    let ran = run(
        &file,
        &[
            "--quick",
            "--set",
            "clients.threads=2",
            "--set",
            "server.pollers=2",
            "--json",
        ],
    );
    assert!(ran.status.success(), "{ran:?}");
    let found: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(found["points"][2]["at"]["case"], "auto");
    // By its name with a key of its own, where the file need not be written.
    let named = lab(&["run", "flock-10", "--set", "clients.threads=2", "--check"]);
    assert!(
        words(&named.stdout).contains("flock-10: right; points: 9,"),
        "{named:?}"
    );
    for (name, why) in [
        ("rb2-nf", "is a program and has no file"),
        ("flock-99", "no figure"),
    ] {
        let refused = lab(&["show", name]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(words(&refused.stderr).contains(why), "{refused:?}");
    }
}

#[test]
fn what_was_expected_and_is_not_so_ends_with_one() {
    let folder = Folder::new("experiment-expect");
    let expect = |bound: &str| {
        let more = format!("[[expect]]\nname = \"a rate\"\nvalue = \"max(rate)\"\n{bound}\n");
        folder.file("my.toml", &format!("{}\n{more}", example()))
    };
    let ran = run(&expect("least = 0.001"), &SHORT);
    assert!(ran.status.success(), "{ran:?}");
    assert!(words(&ran.stdout).contains("a rate"), "{ran:?}");
    let ran = run(&expect("most = 0.001"), &SHORT);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(
        words(&ran.stderr).contains("expectation not met: a rate"),
        "{ran:?}"
    );
    assert!(words(&ran.stdout).contains("does not hold"), "{ran:?}");
}

/// A worst value is not that of the points that had one.
#[test]
fn nothing_is_expected_of_a_point_that_measured_nothing() {
    let folder = Folder::new("experiment-dead");
    let (ok, dead) = ("name = \"ok\"", "name = \"dead\"\nfaults.share = 1");
    for cases in [[ok, dead], [dead, ok]] {
        let cases = cases.map(|case| format!("[[cases]]\n{case}\n"));
        let file = |value: &str, bound: &str| {
            let text = format!(
                "[topology]\nswitch = \"z9264f\"\n\
                [[topology.hosts]]\nname = \"server\"\n[[topology.hosts]]\nname = \"clients\"\n\
                [server]\nhost = \"server\"\n[[clients]]\nhosts = \"clients\"\npreset = \"flock\"\n\
                [[faults]]\nkind = \"loss\"\nshare = 0\n{}\
                [run]\nwarm_up = \"20us\"\nduration = \"50us\"\n[print]\ncolumns = [\"calls\", \"p99\", \"coalescing\"]\n\
                [[expect]]\nname = \"it\"\nvalue = \"{value}\"\n{bound}\n",
                cases.concat()
            );
            folder.file("dead.toml", &text)
        };
        let alive = run(&file("p99[ok]", "most = 100"), &["--json"]);
        assert!(alive.status.success(), "{alive:?}");
        for (value, bound) in [
            ("max(p99)", "most = 100"),
            ("max(p99[ok], p99[dead])", "most = 100"),
            ("min(p99[ok] / p99[dead], 5)", "least = 1"),
            ("min(coalescing)", "least = 1"),
        ] {
            let ran = run(&file(value, bound), &["--json"]);
            assert_eq!(ran.status.code(), Some(1), "{value}: {ran:?}");
            let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
            let judged = &said["expected"][0];
            assert!(judged["value"].is_null(), "{judged}");
            assert_eq!(judged["holds"], false, "{judged}");
            let points = said["points"].as_array().expect("points");
            let dead = points.iter().find(|point| point["at"]["case"] == "dead");
            let p99 = &dead.expect("a point")["columns"][1];
            assert_eq!(
                [&p99["count"], &p99["repeats"]],
                [&0.into(), &Value::from(1)],
                "{p99}"
            );
        }
    }
}
