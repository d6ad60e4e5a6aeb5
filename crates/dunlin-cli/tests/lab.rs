//! `dunlin lab` as a user calls it. The figures are the quickest; no test asserts a time.

use std::process::{Command, Output};

use serde_json::Value;

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .arg("lab")
        .args(arguments)
        .output()
        .expect("dunlin runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn score(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["score", "--quick", "--json"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    let output = lab(&all);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_str(&text(&output)).expect("one JSON object")
}

#[test]
fn the_figures_are_listed() {
    let output = lab(&["list"]);
    assert!(output.status.success());
    for name in ["flock-2a", "rb2-throughput", "scalerpc-1b"] {
        assert!(text(&output).contains(name), "{name}");
    }
    let list: Value = serde_json::from_str(&text(&lab(&["list", "--json"]))).expect("an object");
    let figures = list["figures"].as_array().expect("figures");
    assert!(
        figures.iter().any(|figure| figure["name"] == "flock-2a"),
        "{list}"
    );
}

#[test]
fn a_figure_that_does_not_exist_is_named() {
    for command in ["run", "score", "sensitivity"] {
        let output = lab(&[command, "no-such-figure"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("no-such-figure") && said.contains("lab list"),
            "{said}"
        );
    }
}

#[test]
fn sensitivity_takes_no_seeds_that_it_would_not_use() {
    let output = lab(&[
        "sensitivity",
        "--quick",
        "--seeds",
        "2",
        "--of",
        "E810",
        "rb2-nf",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--seeds can only be used with figures"),
        "{said}"
    );
    // Its parameters are guesses that can be changed: what is wrong is another thing.
    let output = lab(&["sensitivity", "--quick", "--of", "E810", "no-such-figure"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no-such-figure"), "{said}");
}

#[test]
fn a_run_says_what_it_judges_and_leaves_the_other_claims_out() {
    let output = lab(&["run", "rb2-nf", "--quick"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("RB-"), "{said}");
    assert!(!said.contains("not-run"), "{said}");
    assert!(said.contains("frozen"), "{said}");
}

#[test]
fn the_scorecard_has_every_claim_and_says_with_which_parameters() {
    let card = score(&["rb2-nf"]);
    let rows = card["rows"].as_array().expect("rows");
    assert!(rows.len() >= 285, "{}", rows.len());
    let mut counted = [0u64; 3];
    for row in rows {
        let place = match row["verdict"].as_str() {
            Some("within") => 0,
            Some("miss") => 1,
            Some("not-run") => 2,
            other => panic!("{other:?}: {row}"),
        };
        counted[place] += 1;
        assert!(row["id"].is_string() && row["paper"].is_string(), "{row}");
        assert!(
            row["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{row}"
        );
        assert_eq!(row["ours"].is_null(), place == 2, "{row}");
    }
    let summary = &card["summary"];
    for (name, count) in ["within", "miss", "not_run"].iter().zip(counted) {
        assert_eq!(summary[name].as_u64(), Some(count), "{name}");
    }
    let row = rows
        .iter()
        .find(|row| row["id"] == "RB-030")
        .expect("RB-030");
    assert!(
        row["ours"].as_f64().is_some_and(|seconds| seconds > 0.0),
        "{row}"
    );
    assert_eq!(card["complete"], true);
    let parameters = &card["parameters"];
    assert_eq!(parameters["hash"].as_str().map(str::len), Some(16));
    assert_eq!(parameters["changed"].as_array().map(Vec::len), Some(0));
}

#[test]
fn no_claim_is_judged_by_a_nic_that_is_not_the_papers() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../dunlin-sim/params/connectx-4-lx.toml"
    );
    let ours = |card: &Value| {
        let rows = card["rows"].as_array().expect("rows");
        let row = rows
            .iter()
            .find(|row| row["id"] == "RB-030")
            .expect("RB-030");
        row.clone()
    };
    let papers = ours(&score(&["rb2-nf"]));
    for (arguments, what) in [
        (["--nic", file], file),
        (["--set", "nic.link_gbit_s=50"], "nic.link_gbit_s=50"),
    ] {
        let card = score(&[&["rb2-nf"], &arguments[..]].concat());
        assert_eq!(card["parameters"]["replaced"], serde_json::json!([what]));
        assert_eq!(
            (&card["summary"]["within"], &card["summary"]["miss"]),
            (&0.into(), &0.into())
        );
        let row = ours(&card);
        assert_eq!(row["verdict"], "not-run");
        assert!(
            row["ours"].is_number() && row["ours"] != papers["ours"],
            "{row}"
        );
        let why = row["why"].as_str().expect("a reason");
        assert!(
            why.contains(what) && why.contains("not the paper's"),
            "{why}"
        );
    }
    let run = lab(&["run", "--quick", "rb2-nf", "--nic", file]);
    assert!(run.status.success(), "{run:?}");
    assert!(text(&run).contains("which is not the papers': no claim was judged"));
}

#[test]
fn a_figure_that_panics_costs_itself_alone() {
    for command in [&["run"][..], &["score", "--json"]] {
        let figures = ["--quick", "--set", "cpu.cores=4", "fasst-atomics", "rb2-nf"];
        let output = lab(&[command, &figures].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("fasst-atomics: ") && !said.contains("rb2-nf: "),
            "{said}"
        );
        match command {
            ["run"] => assert!(
                text(&output).contains("a network function counts"),
                "{output:?}"
            ),
            _ => {
                let card: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
                assert!(card["rows"]
                    .as_array()
                    .is_some_and(|rows| rows.len() >= 285));
                assert_eq!(card["complete"], false);
                let failed = card["failed"].as_array().map(Vec::as_slice);
                let Some([failed]) = failed else {
                    panic!("{card}");
                };
                assert_eq!(failed["figure"], "fasst-atomics");
                assert!(failed["why"].as_str().is_some_and(|why| !why.is_empty()));
                let said = refused_freeze("failed", &output.stdout);
                assert!(said.contains("the figure fasst-atomics: "), "{said}");
            }
        }
    }
}

#[test]
fn a_seed_that_no_file_can_have_is_refused() {
    for seed in ["1764500000000000000", "9007199254740991"] {
        let output = lab(&["run", "flock-miss", "--quick", "--seed", seed]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("9007199254675456"), "{said}");
    }
}

#[test]
fn one_thread_and_two_give_the_same() {
    let figures = ["rb2-nf", "rb2-ycsb"];
    let with = |threads| {
        let mut card = score(&[&["--threads", threads], &figures[..]].concat());
        // It says when it was.
        card["environment"].take();
        card
    };
    assert_eq!(with("1"), with("2"));
}

#[test]
fn a_report_needs_no_other_file() {
    let folder = std::env::temp_dir().join(format!("dunlin-lab-{}", std::process::id()));
    let out = folder.to_str().expect("a path in UTF-8");
    let output = lab(&["run", "--quick", "--out", out, "rb2-nf", "rb2-http"]);
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    let page = read("report.html");
    assert!(page.contains("<svg") && page.contains("The paper:") && page.contains("RB-030"));
    assert!(
        !page.contains("src=") && !page.contains("href="),
        "links out"
    );
    assert!(read("rb2-nf.csv").starts_with("series,"));
    assert!(read("rb2-http.svg").contains("polyline"));
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn the_quick_set_runs_whole() {
    let folder = std::env::temp_dir().join(format!("dunlin-lab-quick-{}", std::process::id()));
    let out = folder.to_str().expect("a path in UTF-8");
    let output = lab(&["run", "--quick", "--out", out]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(folder.join("report.html")).expect("a report");
    let list = text(&lab(&["list"]));
    let listed: Value = serde_json::from_str(&text(&lab(&["list", "--json"]))).expect("JSON");
    let listed = listed["figures"].as_array().expect("a list");
    assert_eq!(listed.len(), list.lines().count());
    let names: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 21, "{list}");
    let mut with_points = 0;
    for name in &names {
        assert!(page.contains(name), "{name} is not in the report");
        let points = std::fs::read_to_string(folder.join(format!("{name}.csv"))).expect(name);
        assert!(points.starts_with("series,"), "{name}: {points}");
        with_points += usize::from(points.lines().count() > 2);
    }
    // One judges claims alone: the bare limits.
    assert!(with_points + 1 >= names.len(), "{with_points}: {names:?}");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// What a command writes to standard error where that is a terminal.
fn on_a_terminal(arguments: &[&str]) -> String {
    use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let theirs = std::fs::OpenOptions::new()
        .write(true)
        .open(name.to_str().expect("UTF-8"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(arguments)
        .env("TERM", "xterm")
        .stdout(std::process::Stdio::null())
        .stderr(theirs.expect("its other side"))
        .spawn()
        .expect("dunlin runs");
    let mut terminal = std::fs::File::from(ours);
    let mut said = Vec::new();
    // It ends with an error when the last process has closed the other side.
    let _ = std::io::Read::read_to_end(&mut terminal, &mut said);
    assert!(child.wait().expect("it ends").success());
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_terminal_sees_what_is_done_and_how_long_it_takes() {
    let run = ["lab", "run", "--quick", "rb2-nf", "rb2-latency"];
    let said = on_a_terminal(&run);
    for words in ["rb2-latency (2 of 2)", " left"] {
        assert!(said.contains(words), "no {words} in {said}");
    }
    // Anything else sees nothing of it.
    assert!(lab(&run[1..]).stderr.is_empty());
}

#[test]
fn speed_is_of_runs_that_are_always_the_same() {
    let measured = || -> Value {
        let output = lab(&["speed", "--quick", "--machines", "4,2", "--json"]);
        serde_json::from_str(&text(&output)).expect("JSON")
    };
    let [first, second] = [measured(), measured()];
    let digests = |of: &Value, list: &str| -> Vec<u64> {
        let rows = of[list].as_array().expect("rows");
        let digest = |row: &Value| row["digest"].as_u64().expect("a digest");
        rows.iter().map(digest).collect()
    };
    for list in ["loads", "clusters"] {
        assert_eq!(digests(&first, list), digests(&second, list), "{list}");
    }
    assert_eq!(digests(&first, "loads").len(), 2);
    let of = |row: usize, key: &str| first["clusters"][row][key].as_u64();
    let machines = [0, 1, 2, 3].map(|row| of(row, "machines"));
    assert_eq!(machines, [Some(2), Some(2), Some(4), Some(4)]);
    assert_eq!([of(0, "cores"), of(1, "cores")], [Some(1), Some(2)]);
    assert_eq!(of(2, "digest"), of(3, "digest"), "on one core and on two");
    assert!(first["clusters"][0]["calls"].as_u64() > Some(0));
    assert!(first["loads"][0]["gain_of_two_cores"].as_f64() > Some(0.0));
}

#[test]
fn the_hunt_replays_a_seed() {
    let (one, two) = (lab(&["hunt", "--seed", "5"]), lab(&["hunt", "--seed", "5"]));
    assert!(one.status.success(), "{one:?}");
    assert!(text(&one).contains("digest"), "{}", text(&one));
    assert_eq!(text(&one), text(&two));
}

#[test]
fn a_hunt_prints_one_object() {
    let hunt = |arguments: &[&str]| -> Value {
        let output = lab(&[&["hunt", "--json", "--load", "rings"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_str(&text(&output)).expect("one JSON object")
    };
    let found = hunt(&["--seeds", "2"]);
    assert_eq!(found["seeds"], 2, "{found}");
    for count in ["events", "messages", "succeeded"] {
        assert!(found[count].as_u64() > Some(0), "{found}");
    }
    assert!(found["seconds"].as_f64() > Some(0.0), "{found}");
    assert_eq!(found["failures"], serde_json::json!([]), "{found}");
    assert!(found["environment"]["kernel"].is_string(), "{found}");
    let one = hunt(&["--seed", "1"]);
    let told = text(&lab(&["hunt", "--load", "rings", "--seed", "1"]));
    let digest = one["outcome"]["digest"].as_str().expect("a digest");
    assert!(told.contains(digest), "{told} {one}");
}

#[test]
fn a_hunt_without_seeds_is_none() {
    let most = u64::MAX.to_string();
    for (option, value, limit) in [
        ("--seeds", "0", "1..=1000000"),
        ("--seeds", most.as_str(), "1..=1000000"),
        ("--from", most.as_str(), "18446744073708551615"),
    ] {
        let output = lab(&["hunt", option, value]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(limit), "{said}");
    }
    let last = (u64::MAX - 1_000_000).to_string();
    let output = lab(&["hunt", "--load", "rings", "--seeds", "1", "--from", &last]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains("1 seeds"), "{}", text(&output));
}

/// Why nothing is frozen on this scorecard.
fn refused_freeze(name: &str, card: &[u8]) -> String {
    let file = format!("dunlin-card-{name}-{}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, card).expect("a file");
    let path = file.to_str().expect("a path in UTF-8");
    let output = lab(&["freeze", "2026-01-01", "a test", "--score", path]);
    std::fs::remove_file(&file).expect("the file goes");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn a_freeze_wants_the_calibrating_rows() {
    let card = lab(&["score", "--quick", "--json", "rb2-nf"]);
    let said = refused_freeze("quick", &card.stdout);
    assert!(
        said.contains("SR-004, a calibrating row, was not run"),
        "{said}"
    );
    assert!(said.contains("from a quick run"), "{said}");
    assert!(!said.contains("incomplete"), "{said}");
}

#[test]
fn several_seeds_give_an_interval() {
    let card = score(&["--seeds", "2", "rb2-nf"]);
    let rows = card["rows"].as_array().expect("rows");
    let row = rows
        .iter()
        .find(|row| row["id"] == "RB-030")
        .expect("a row");
    let seeds = &row["seeds"];
    assert_eq!(seeds["count"].as_u64(), Some(2));
    let (least, ours) = (seeds["least"].as_f64(), row["ours"].as_f64());
    assert!(
        least.is_some() && least <= ours && ours <= seeds["most"].as_f64(),
        "{row}"
    );
    assert_eq!(row["first"]["verdict"], "within");
    assert!(row["near"].is_boolean());
    assert_eq!(card["first_run"]["within"].as_u64(), Some(53));
}

/// What perftest printed becomes a parameter file that an experiment takes; what it is not is said.
#[test]
fn a_nic_is_calibrated_by_what_perftest_printed() {
    let folder = std::env::temp_dir().join(format!("dunlin-calibrate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    let (text, nic, experiment) = (path("latency.txt"), path("mine.toml"), path("try.toml"));
    let dashes = "-".repeat(80);
    let latency = format!(
        "{dashes}\n                    RDMA_Write Latency Test\n Connection type : RC\t\tUsing SRQ      : OFF\n \
         Mtu             : 4096[B]\n{dashes}\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
         t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
         8       1000          1.90           3.55         2.00     \t       2.01        \t0.05   \t\t2.09    \t\t3.55   \n \
         64       1000          1.95           3.60         2.05     \t       2.06        \t0.05   \t\t2.14    \t\t3.60   \n\
         {dashes}\n                    Send BW Test\n{dashes}\n"
    );
    std::fs::write(&text, latency).expect("the text is written");
    let output = lab(&["calibrate", &text, "--out", &nic, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("skipped Send BW Test"), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let seen = &found["error"]["seen"];
    assert!(
        seen["worst"].as_f64().is_some_and(|worst| worst < 0.05),
        "{found}"
    );
    assert!(found["error"]["held_out"].is_null());
    let fitted = |name: &str| {
        let all = found["fitted"].as_array().expect("a list");
        all.iter().any(|parameter| parameter["name"] == name)
    };
    assert!(fitted("pipeline_ns") && !fitted("context_sets"), "{found}");
    let example = "[topology]\nswitch = \"z9264f\"\n[[topology.hosts]]\nname = \"server\"\nnic_file = \"mine.toml\"\n\
        [[topology.hosts]]\nname = \"clients\"\n[server]\nhost = \"server\"\n[[clients]]\nhosts = \"clients\"\n";
    std::fs::write(&experiment, example).expect("the experiment is written");
    let checked = lab(&["run", &experiment, "--check"]);
    assert!(checked.status.success(), "{checked:?}");
    std::fs::write(&text, "nothing of it").expect("the text is written");
    let output = lab(&["calibrate", &text]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("latency.txt") && said.contains("ib_write_lat"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}
