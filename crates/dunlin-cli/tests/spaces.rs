//! Users, network namespaces and containers' worth of namespaces on one host: shared memory where a folder lets them,
//! UDP where not, and the reason either way. They are made with `ip netns`, `unshare` and `setpriv`, which takes root;
//! else the tests say that they are skipped. They end with the test that made them.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{object, DUNLIN};
use serde_json::Value;

/// A group of whoever may meet, and users in it and out of it.
const GROUP: u32 = 61_000;
const MEMBERS: [u32; 2] = [61_001, 61_002];
const STRANGER: u32 = 61_003;

/// Numbers for names.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where a test works: a folder with the program, which all users may run, and the namespaces that are to go.
struct Place {
    folder: PathBuf,
    namespaces: Vec<String>,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

impl Place {
    /// `None`: it cannot be made here, which is said.
    fn new(test: &str) -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("dunlin-{}-{number}", std::process::id()));
        let made = match rustix::process::geteuid().is_root() {
            false => Err("only root makes users and namespaces".to_owned()),
            true => {
                run("setpriv", &["--version"]).and_then(|()| run("unshare", &["--net", "true"]))
            }
        };
        if let Err(why) = made {
            eprintln!("skipped: {test}: {}", why.trim());
            return None;
        }
        std::fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o755);
        std::fs::copy(DUNLIN, folder.join("dunlin")).unwrap();
        Some(Self {
            folder,
            namespaces: Vec::new(),
        })
    }

    /// A folder in which processes meet whom its group and mode let.
    fn meeting(&self, mode: u32) -> String {
        let folder = self.folder.join("meeting");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.to_str().unwrap().to_owned();
        run("chgrp", &[&GROUP.to_string(), &path]).unwrap();
        set_mode(&folder, mode);
        path
    }

    /// Two network namespaces with a wire between them. `None`: they cannot be made here, which is said.
    fn two_networks(&mut self, test: &str) -> Option<[String; 2]> {
        let id = self.folder.file_name()?.to_str()?.to_owned();
        let names = [format!("{id}-a"), format!("{id}-b")];
        let made = || -> Result<(), String> {
            for name in &names {
                run("ip", &["netns", "add", name])?;
            }
            let [a, b] = [names[0].as_str(), names[1].as_str()];
            let wire = [
                "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b,
            ];
            run("ip", &[&["-n", a][..], &wire].concat())?;
            for (name, address) in [(a, "198.51.100.1/24"), (b, "198.51.100.2/24")] {
                run("ip", &["-n", name, "addr", "add", address, "dev", "wire"])?;
                run("ip", &["-n", name, "link", "set", "wire", "up"])?;
                run("ip", &["-n", name, "link", "set", "lo", "up"])?;
            }
            Ok(())
        };
        self.namespaces = names.to_vec();
        match made() {
            Ok(()) => Some(names),
            Err(why) => {
                eprintln!("skipped: {test}: {}", why.trim());
                None
            }
        }
    }

    fn program(&self) -> String {
        self.folder.join("dunlin").to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = run("ip", &["netns", "del", name]);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where a process runs: words before its own.
#[derive(Clone, Default)]
struct Within(Vec<String>);

impl Within {
    fn and(mut self, words: &[&str]) -> Self {
        self.0.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    fn user(self, user: u32, groups: &[u32]) -> Self {
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let groups = match groups.is_empty() {
            true => "--clear-groups".to_owned(),
            false => format!("--groups={}", groups.join(",")),
        };
        self.and(&[
            "setpriv",
            &format!("--reuid={user}"),
            &format!("--regid={user}"),
            &groups,
        ])
    }

    fn network(self, name: &str) -> Self {
        self.and(&["ip", "netns", "exec", name])
    }

    /// What a container has of its own beside the network, and the folder at another place.
    fn container(self, folder: &str) -> Self {
        let script = format!("mount -t tmpfs none /mnt && mkdir /mnt/met && mount --bind {folder} /mnt/met && exec \"$@\"");
        let unshare = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--ipc",
            "--uts",
            "--mount-proc",
        ];
        self.and(&unshare).and(&["sh", "-c", &script, "sh"])
    }

    fn command(&self, program: &str, folder: Option<&str>, arguments: &[&str]) -> Command {
        let own = [program];
        let mut words = self
            .0
            .iter()
            .map(String::as_str)
            .chain(own)
            .chain(arguments.iter().copied());
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env_remove("DUNLIN_SHM_FOLDER");
        if let Some(folder) = folder {
            command.env("DUNLIN_SHM_FOLDER", folder);
        }
        command
    }
}

/// A server that ends with the test: its standard input closes then.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(place: &Place, within: &Within, folder: Option<&str>) -> Self {
        let serve = [
            "serve",
            "echo",
            "--listen",
            "dunlin://0.0.0.0:0",
            "--with-parent",
        ];
        let mut child = within
            .command(&place.program(), folder, &serve)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port = line
            .trim()
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("it listens: {line:?}"));
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn ask(place: &Place, within: &Within, folder: Option<&str>, arguments: &[&str]) -> Output {
    within
        .command(&place.program(), folder, arguments)
        .output()
        .unwrap()
}

/// The device by which a client reaches the server; its calls have been answered.
fn device(place: &Place, within: &Within, folder: Option<&str>, address: &str) -> String {
    let ping = [
        "ping",
        address,
        "--count",
        "2",
        "--interval",
        "0.01",
        "--json",
    ];
    let output = ask(place, within, folder, &ping);
    assert!(output.status.success(), "{output:?}");
    let found: Value = object(&output);
    assert_eq!(found["failed"], 0, "{found}");
    found["device"].as_str().unwrap().to_owned()
}

/// What the doctor says of the way, and of shared memory where it is not taken.
fn doctor(place: &Place, within: &Within, folder: Option<&str>, address: &str) -> String {
    let output = ask(place, within, folder, &["doctor", address]);
    String::from_utf8(output.stdout).unwrap()
}

fn assert_says(text: &str, words: &str) {
    assert!(text.contains(words), "{words}: {text}");
}

#[test]
fn two_users_share_memory_when_a_folder_of_their_group_lets_them() {
    let Some(place) = Place::new("two users") else {
        return;
    };
    let meeting = place.meeting(0o3770);
    let [member, other] = MEMBERS.map(|user| Within::default().user(user, &[GROUP]));
    let server = Server::start(&place, &member, Some(&meeting));
    let address = format!("127.0.0.1:{}", server.port);
    assert_eq!(device(&place, &other, Some(&meeting), &address), "shm");
    assert_eq!(device(&place, &member, None, &address), "shm");
    // Who names no folder, and who may not enter it.
    assert_eq!(device(&place, &other, None, &address), "roce");
    let said = doctor(&place, &other, None, &address);
    assert_says(&said, "over roce (same host, another user: RoCEv2 on UDP");
    assert_says(
        &said,
        "the device `shm` does not reach from client to server: same host, another user",
    );
    let asked = ["ping", &address, "--device", "shm", "--count", "1"];
    let refused = ask(&place, &other, None, &asked);
    assert_eq!(refused.status.code(), Some(1));
    assert_says(
        &String::from_utf8_lossy(&refused.stderr),
        "same host, another user",
    );
    let stranger = Within::default().user(STRANGER, &[]);
    assert_eq!(device(&place, &stranger, Some(&meeting), &address), "roce");
    let said = doctor(&place, &stranger, Some(&meeting), &address);
    assert_says(&said, "Permission denied");
}

#[test]
fn two_network_namespaces_share_memory_when_both_have_the_folder() {
    let Some(mut place) = Place::new("two network namespaces") else {
        return;
    };
    let Some([a, b]) = place.two_networks("two network namespaces") else {
        return;
    };
    let meeting = place.meeting(0o700);
    let (a, b) = (Within::default().network(&a), Within::default().network(&b));
    let server = Server::start(&place, &b, Some(&meeting));
    let address = format!("198.51.100.2:{}", server.port);
    assert_eq!(device(&place, &a, Some(&meeting), &address), "shm");
    assert_eq!(device(&place, &a, None, &address), "roce");
    let said = doctor(&place, &a, None, &address);
    assert_says(
        &said,
        "over roce (same host, another network namespace: RoCEv2 on UDP",
    );
    let user = a.user(STRANGER, &[]);
    let said = doctor(&place, &user, None, &address);
    assert_says(
        &said,
        "same host, another network namespace and another user",
    );
}

#[test]
fn two_containers_worth_of_namespaces_share_memory_by_a_folder_mounted_in_both() {
    let Some(mut place) = Place::new("two containers") else {
        return;
    };
    let Some([a, b]) = place.two_networks("two containers") else {
        return;
    };
    let meeting = place.meeting(0o3770);
    let [first, second] = MEMBERS;
    let inside = |network: &str, user: u32| {
        let container = Within::default().network(network).container(&meeting);
        container.user(user, &[GROUP])
    };
    let (a, b) = (inside(&a, first), inside(&b, second));
    let server = Server::start(&place, &b, Some("/mnt/met"));
    let address = format!("198.51.100.2:{}", server.port);
    assert_eq!(device(&place, &a, Some("/mnt/met"), &address), "shm");
    let long = ["call", &address, "1", &"x".repeat(100_000)];
    let called = ask(&place, &a, Some("/mnt/met"), &long);
    assert!(called.status.success() && called.stdout.len() == 100_000);
    assert_eq!(device(&place, &a, None, &address), "roce");
}
