//! Where tests of users and namespaces work, and how processes are started there.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::common::{object, DUNLIN};
use crate::namespaces::run;

/// A group of whoever may meet, and users in it and out of it.
pub(crate) const GROUP: u32 = 61_000;
pub(crate) const MEMBERS: [u32; 2] = [61_001, 61_002];
pub(crate) const STRANGER: u32 = 61_003;

/// Numbers for names.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where a test works: a folder with the program, which all users may run, and the namespaces that are to go.
pub(crate) struct Place {
    folder: PathBuf,
    namespaces: Vec<String>,
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

impl Place {
    /// `None`: it cannot be made here, which is said.
    pub(crate) fn new(test: &str) -> Option<Self> {
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
    pub(crate) fn meeting(&self, mode: u32) -> String {
        let folder = self.folder.join("meeting");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.to_str().unwrap().to_owned();
        run("chgrp", &[&GROUP.to_string(), &path]).unwrap();
        set_mode(&folder, mode);
        path
    }

    /// Two network namespaces with a wire between them. `None`: they cannot be made here, which is said.
    pub(crate) fn two_networks(&mut self, test: &str) -> Option<[String; 2]> {
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

    pub(crate) fn program(&self) -> String {
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
pub(crate) struct Within(Vec<String>);

impl Within {
    pub(crate) fn and(mut self, words: &[&str]) -> Self {
        self.0.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    pub(crate) fn user(self, user: u32, groups: &[u32]) -> Self {
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

    pub(crate) fn network(self, name: &str) -> Self {
        self.and(&["ip", "netns", "exec", name])
    }

    /// What a container has of its own beside the network, with a folder of the host mounted at a path of its own.
    pub(crate) fn container(self, mount: Option<(&str, &str)>) -> Self {
        let script = mount.map_or(String::new(), |(folder, at)| {
            let beside = Path::new(at).parent().unwrap().display().to_string();
            format!("mount -t tmpfs none {beside} && mkdir {at} && mount --bind {folder} {at} && ")
        });
        let script = format!("{script}exec \"$@\"");
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

    pub(crate) fn command(
        &self,
        program: &str,
        folder: Option<&str>,
        arguments: &[&str],
    ) -> Command {
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
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(place: &Place, within: &Within, folder: Option<&str>) -> Self {
        let serve = ["serve", "echo", "--listen", "dunlin://0.0.0.0:0"];
        Self::start_with(place, within, folder, &serve)
    }

    pub(crate) fn start_with(
        place: &Place,
        within: &Within,
        folder: Option<&str>,
        arguments: &[&str],
    ) -> Self {
        let serve = [arguments, &["--with-parent"]].concat();
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

pub(crate) fn ask(
    place: &Place,
    within: &Within,
    folder: Option<&str>,
    arguments: &[&str],
) -> Output {
    within
        .command(&place.program(), folder, arguments)
        .output()
        .unwrap()
}

/// The device by which a client reaches the server; its calls have been answered.
pub(crate) fn device(
    place: &Place,
    within: &Within,
    folder: Option<&str>,
    address: &str,
) -> String {
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
pub(crate) fn doctor(
    place: &Place,
    within: &Within,
    folder: Option<&str>,
    address: &str,
) -> String {
    let output = ask(place, within, folder, &["doctor", address]);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn assert_says(text: &str, words: &str) {
    assert!(text.contains(words), "{words}: {text}");
}
