//! `dunlin serve store --membership`: three machines that replace each other, as a user starts them. One is killed and
//! one stopped while a load runs and others read; nothing acknowledged is lost, and both come back. With a folder as
//! the membership, and with etcd where Debian's `etcd-server` is installed.

mod common;
#[path = "../../dunlin-txn/tests/common/etcd.rs"]
mod etcd;

use std::process::Output;
use std::time::{Duration, Instant};

use common::{dunlin, failure, object, Serving};
use etcd::{ports, Etcd, Folder};
use rustix::process::{kill_process, Pid, Signal};

/// No step takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(60);

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

struct Database {
    membership: String,
    /// Where machines have their logs, if they do.
    logs: Option<String>,
    ports: [u16; 3],
    machines: Vec<Option<Serving>>,
}

impl Database {
    fn start(membership: &str, logs: Option<String>) -> Database {
        let mut database = Database {
            membership: membership.to_owned(),
            logs,
            ports: ports(3).try_into().expect("three"),
            machines: Vec::new(),
        };
        for number in 0..3 {
            let machine = database.machine(number);
            database.machines.push(Some(machine));
        }
        database
    }

    fn machine(&self, number: usize) -> Serving {
        let listen = format!("dunlin://127.0.0.1:{}", self.ports[number]);
        let number = number.to_string();
        let place = [
            "--machine",
            &number,
            "--machines",
            "3",
            "--membership",
            &self.membership,
        ];
        let what = [
            "--load",
            "smallbank",
            "--rows",
            "1000",
            "--table",
            "accounts:100:8",
        ];
        let log = self.logs.as_ref().map(|logs| format!("{logs}/log{number}"));
        let log: Vec<&str> = log.iter().flat_map(|log| ["--log", log]).collect();
        let arguments = [&place[..], &what, &["--replace-after", "1"], &log].concat();
        Serving::start_at(&listen, "store", &arguments)
    }

    fn run(&self, command: &[&str], arguments: &[&str]) -> Output {
        let mut all: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        for port in self.ports {
            all.extend(["--address".to_owned(), format!("dunlin://127.0.0.1:{port}")]);
        }
        all.extend(arguments.iter().map(|&word| word.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        dunlin(&all)
    }

    fn txn(&self, arguments: &[&str]) -> Output {
        self.run(&["txn", "--within", "30"], arguments)
    }

    fn add(&self, number: i64) -> i64 {
        let line = text(&self.txn(&["add", "accounts", "1", &number.to_string()]));
        let sum = line.trim().rsplit('\t').next().expect("a sum");
        sum.parse().expect("a number")
    }

    fn signal(&self, number: usize, signal: Signal) {
        let machine = self.machines[number].as_ref().expect("it runs");
        let id = Pid::from_raw(machine.process() as i32).expect("a process");
        kill_process(id, signal).expect("it is ours");
    }

    fn until(&self, what: &str, mut is: impl FnMut(&str) -> bool) {
        let began = Instant::now();
        loop {
            let output = self.txn(&["--machines"]);
            if is(&String::from_utf8_lossy(&output.stdout)) {
                return;
            }
            assert!(began.elapsed() < BOUND, "{what}: {output:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_whole(&self) {
        self.until("not all are back", |shown| {
            shown.matches("whole").count() == 3
        });
    }
}

fn survives(membership: &str, between: impl FnOnce()) {
    let mut database = Database::start(membership, None);
    database.until_whole();
    assert_eq!(database.add(100), 100);
    let load = std::thread::scope(|scope| {
        let (address, run) = (&database, ["perf", "txn"]);
        let load =
            scope.spawn(move || address.run(&run, &["--rows", "1000", "--seconds", "6", "--json"]));
        // Killed, as nobody can prepare for it.
        database.signal(0, Signal::KILL);
        database.until("nobody goes on", |shown| shown.contains("out"));
        assert_eq!(database.add(-30), 70);
        load.join().expect("no panic")
    });
    let report = object(&load);
    assert_eq!(load.status.code(), Some(0), "{load:?}");
    assert_eq!(report["errors"], 0, "{report}");
    assert!(report["committed"].as_u64() > Some(0), "{report}");
    database.machines[0] = None;
    let again = database.machine(0);
    database.machines[0] = Some(again);
    database.until_whole();
    between();
    // Stopped until the others have gone on: it begins anew by itself.
    database.signal(1, Signal::STOP);
    database.until("nobody goes on", |shown| shown.contains("out"));
    assert_eq!(database.add(5), 75);
    database.signal(1, Signal::CONT);
    database.until_whole();
    // Each has all that there is: those that stay alone know it.
    for number in [0, 2] {
        database.signal(number, Signal::KILL);
        database.until("nobody goes on", |shown| {
            shown.matches("out").count() == if number == 0 { 1 } else { 2 }
        });
    }
    assert_eq!(
        text(&database.txn(&["get", "accounts", "1"])),
        "accounts\t1\t75\n"
    );
}

#[test]
fn machines_with_a_folder_survive_a_kill() {
    let folder = Folder::new("membership");
    survives(folder.0.to_str().expect("UTF-8"), || ());
}

#[test]
fn machines_with_etcd_survive_a_kill_also_of_its_leader() {
    let Some(mut etcd) = Etcd::start("etcd", 3) else {
        return;
    };
    let membership = format!("etcd://{}/bank", etcd.members().join(","));
    survives(&membership, || {
        etcd.kill_leader();
    });
}

#[test]
fn a_database_with_logs_survives_the_kill_of_all_its_machines() {
    let folder = Folder::new("logs");
    let place = |name: &str| folder.0.join(name).to_str().expect("UTF-8").to_owned();
    let mut database = Database::start(&place("membership"), Some(place("")));
    database.until_whole();
    assert_eq!(database.add(100), 100);
    (0..3).for_each(|number| database.signal(number, Signal::KILL));
    database.machines.clear();
    for number in 0..3 {
        let machine = database.machine(number);
        database.machines.push(Some(machine));
    }
    assert_eq!(database.add(-30), 70);
    database.until_whole();

    // A directory that runs, and one without anybody who decides.
    let (membership, log) = (place("membership"), place("log0"));
    let store = [
        "serve",
        "store",
        "--listen",
        "dunlin://127.0.0.1:0",
        "--table",
        "accounts:10:8",
        "--log",
    ];
    let words = failure(&dunlin(&[&store[..], &[&log]].concat()), 2);
    assert!(words.contains("--membership"), "{words}");
    let taken = [&store[..], &[&log, "--membership", &membership]].concat();
    let words = failure(&dunlin(&taken), 1);
    assert!(words.contains("in use by a running machine"), "{words}");
}

#[test]
fn a_membership_that_is_none_is_said() {
    for (place, expected) in [
        ("etcd://127.0.0.1:2379", "etcd://HOST:PORT"),
        ("etcd:///bank", "etcd://HOST:PORT"),
        ("redis://127.0.0.1/bank", "use a folder or etcd"),
    ] {
        let table = ["--table", "accounts:10:8", "--membership", place];
        let words = failure(&dunlin(&[&["serve", "store"], &table[..]].concat()), 2);
        assert!(words.contains(expected), "{words}");
    }
    let both = ["--table", "a:10:8", "--one-sided-writes", "--membership"];
    let folder = Folder::new("refused");
    let folder = folder.0.to_str().expect("UTF-8");
    let words = failure(
        &dunlin(&[&["serve", "store"], &both[..], &[folder]].concat()),
        2,
    );
    assert!(words.contains("one-sided WRITEs"), "{words}");
}
