//! An etcd cluster of a test's own, on loopback, by Debian's `etcd-server`.
#![allow(dead_code, unreachable_pub)]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No start takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("dunlin-test-{}-{name}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ports that were free a moment ago. They are below those that the system gives to connections, of which the tests
/// beside this one make many: one of them had the port of a member before that had begun.
pub fn ports(count: usize) -> Vec<u16> {
    let random = || RandomState::new().build_hasher().finish();
    let listen = |_| TcpListener::bind(("127.0.0.1", 10_000 + (random() % 20_000) as u16)).ok();
    let free: Vec<TcpListener> = (0..10_000).filter_map(listen).take(count).collect();
    assert_eq!(free.len(), count, "free ports");
    let port = |one: &TcpListener| one.local_addr().expect("its address").port();
    free.iter().map(port).collect()
}

/// The members of a cluster, which end with it.
pub struct Etcd {
    folder: Folder,
    /// The address that all listen on.
    host: &'static str,
    processes: Vec<Child>,
    peers: Vec<u16>,
    ports: Vec<u16>,
}

impl Etcd {
    /// So many members. None where there is no etcd, which is said aloud.
    pub fn start(name: &str, members: usize) -> Option<Etcd> {
        Self::start_on("127.0.0.1", name, members)
    }

    /// The same on an address of this host.
    pub fn start_on(host: &'static str, name: &str, members: usize) -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("skipped: no etcd here (apt-get install etcd-server)");
            return None;
        }
        for attempt in 0..5 {
            let ports = ports(2 * members);
            let (peers, clients) = ports.split_at(members);
            let mut etcd = Etcd {
                folder: Folder::new(&format!("{name}-{attempt}")),
                host,
                processes: Vec::new(),
                peers: peers.to_vec(),
                ports: clients.to_vec(),
            };
            for number in 0..members {
                let process = etcd.run(number);
                etcd.processes.push(process);
            }
            if etcd.is_up() {
                return Some(etcd);
            }
        }
        panic!("members of etcd ended, five times");
    }

    /// Waits until all members know who leads; `false`: one has ended, as it does without its ports.
    fn is_up(&mut self) -> bool {
        let ended = |process: &mut Child| !matches!(process.try_wait(), Ok(None));
        self.ports.iter().all(|&port| {
            let processes = &mut self.processes;
            until_healthy((self.host, port), || processes.iter_mut().any(ended))
        })
    }

    /// A member, with what it has on disk.
    fn run(&self, number: usize) -> Child {
        let url = |port: u16| format!("http://{}:{port}", self.host);
        let named = self.peers.iter().enumerate();
        let cluster: Vec<String> = named
            .map(|(n, port)| format!("n{n}={}", url(*port)))
            .collect();
        let (peer, client) = (url(self.peers[number]), url(self.ports[number]));
        Command::new("etcd")
            .args(["--name", &format!("n{number}")])
            .args(["--initial-cluster", &cluster.join(",")])
            .arg("--data-dir")
            .arg(self.folder.0.join(format!("n{number}")))
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts")
    }

    /// Where clients reach each.
    pub fn members(&self) -> Vec<String> {
        let member = |port: &u16| format!("{}:{port}", self.host);
        self.ports.iter().map(member).collect()
    }

    /// Kills the member that leads the others, and says which that was.
    pub fn kill_leader(&mut self) -> usize {
        let leads = |port: &u16| {
            let status =
                http((self.host, *port), "POST /v3/maintenance/status", "{}").expect("its status");
            field(&status, "leader") == field(&status, "member_id")
        };
        let leader = self.ports.iter().position(leads).expect("one leads");
        self.processes[leader].kill().expect("it is ours");
        self.processes[leader].wait().expect("it ends");
        println!("killed the leader of etcd, n{leader}");
        leader
    }

    /// Starts a member again that was killed, and waits until it knows who leads.
    pub fn restart(&mut self, number: usize) {
        self.processes[number] = self.run(number);
        assert!(until_healthy((self.host, self.ports[number]), || false));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A field of a JSON object whose value is a string.
fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let (_, rest) = json.split_once(&format!("\"{name}\":\"")).expect(name);
    rest.split('"').next().unwrap_or_default()
}

/// The answer to a request, its head included.
fn http(member: (&str, u16), what: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(member)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits until a member knows who leads, or until there is no use in waiting: `false`.
fn until_healthy(member: (&str, u16), mut is_over: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !http(member, "GET /health", "").is_ok_and(|answer| answer.contains("\"true\"")) {
        if is_over() {
            return false;
        }
        assert!(began.elapsed() < BOUND, "etcd does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}
