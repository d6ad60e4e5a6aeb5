//! A PostgreSQL server in a private folder, reachable through a Unix socket only.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::wire::{Connection, USER};
use super::{bytes, Draws};
use rustix::process::Signal;

use crate::commands::Failure;
use crate::interrupt;
use crate::kv_load::peer::{self, Folder, Peer};
use crate::txn_load::first;

/// Time limit for the server to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where Debian installs the programs, by version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user that Debian creates for it, since it does not run as root.
const SYSTEM_USER: &str = "postgres";

/// Tables and functions.
const SMALLBANK: &str = include_str!("smallbank.sql");
const TATP: &str = include_str!("tatp.sql");
/// The tables by their numbers.
const SMALLBANK_TABLES: [&str; 2] = ["savings", "checking"];
const TATP_TABLES: [&str; 5] = [
    "subscriber",
    "subscriber_by_number",
    "access_info",
    "special_facility",
    "call_forwarding",
];

/// Starts a server for this many connections. All transactions are SERIALIZABLE, and a commit does not wait for the
/// disk.
///
/// # Errors
/// When it is not installed, or does not start.
pub fn start(connections: usize) -> Result<Peer, Failure> {
    let programs = programs()?;
    let version = peer::version(&programs.join("postgres"), "postgresql")?;
    let folder = Folder::new("postgres")?;
    let user = system_user()?;
    if let Some((user, group)) = user {
        chown(folder.path(), Some(user), Some(group))?;
    }
    let data = folder.path().join("data");
    let command = |program: &str| {
        let mut command = Command::new(programs.join(program));
        command.current_dir(folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        command
    };
    let made = command("initdb")
        .args([
            "--auth",
            "trust",
            "--username",
            USER,
            "--no-sync",
            "--locale",
            "C",
        ])
        .args(["--encoding", "UTF8", "--pgdata"])
        .arg(&data)
        .output()?;
    if !made.status.success() {
        let words = String::from_utf8_lossy(&made.stderr);
        let why = words.trim().to_owned();
        return Err(Failure::new(format!("initdb failed: {why}")));
    }
    let mut server = command("postgres");
    server.arg("-D").arg(&data).arg("-k").arg(folder.path());
    for setting in [
        "listen_addresses=",
        "default_transaction_isolation=serializable",
        "synchronous_commit=off",
        "shared_buffers=512MB",
        // Avoids checkpoints during a measurement.
        "max_wal_size=8GB",
        "checkpoint_timeout=1h",
        &format!("max_connections={}", connections + 8),
        "max_pred_locks_per_transaction=256",
    ] {
        server.args(["-c", setting]);
    }
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let socket = folder.path().join(".s.PGSQL.5432");
    // Without a checkpoint, and with all of its processes.
    let mut peer = Peer::run(server, (folder, socket), version, Signal::QUIT)?;
    let began = Instant::now();
    while let Err(why) = Connection::open(peer.socket(), PATIENCE) {
        peer.check()?;
        if began.elapsed() > PATIENCE {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(peer)
}

/// The folder of its programs: on the path, or Debian's newest.
fn programs() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    let has = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    folders.into_iter().find(has).ok_or_else(|| {
        Failure::new("PostgreSQL is not installed")
            .help("on Debian and Ubuntu: apt-get install postgresql")
    })
}

/// User and group for it, if this process is root.
fn system_user() -> Result<Option<(u32, u32)>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let fields = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let mut numbers = fields.skip(1).map(|field| field.parse().ok());
        (name == SYSTEM_USER).then_some((numbers.next()??, numbers.next()??))
    };
    let found = users.lines().find_map(fields);
    found.map(Some).ok_or_else(|| {
        Failure::new(format!(
            "PostgreSQL cannot run as root, and there is no user {SYSTEM_USER}"
        ))
        .help("run the command as another user, or apt-get install postgresql")
    })
}

/// Creates tables and functions, and loads the initial rows.
///
/// # Errors
/// When PostgreSQL rejects them.
pub fn load(peer: &Peer, draws: &Draws, mut progress: impl FnMut(usize)) -> Result<(), Failure> {
    let mut connection = Connection::open(peer.socket(), PATIENCE)?;
    let (schema, tables): (&str, &[&str]) = match draws {
        Draws::SmallBank(_) => (SMALLBANK, &SMALLBANK_TABLES),
        Draws::Tatp(_) => (TATP, &TATP_TABLES),
    };
    connection.run(schema)?;
    let place = |table: &str| peer.folder().join(format!("{table}.rows"));
    let mut files = Vec::new();
    for table in tables {
        files.push(BufWriter::new(fs::File::create(place(table))?));
    }
    let mut line = String::new();
    for (done, (table, number, value)) in draws.rows().enumerate() {
        line.clear();
        let written = match draws {
            Draws::SmallBank(_) => writeln!(line, "{number}\t{}", first(&value)),
            // The telephone number's row is the subscriber's number.
            Draws::Tatp(_) if table == 1 => writeln!(line, "{number}\t{}", first(&value)),
            // A backslash is doubled in a file of rows.
            Draws::Tatp(_) => writeln!(line, "{number}\t\\{}", bytes(&value)),
        };
        written.map_err(Failure::new)?;
        files[table].write_all(line.as_bytes())?;
        if done % 4096 == 0 {
            progress(done);
            interrupt::check()?;
        }
    }
    for file in files {
        file.into_inner()
            .map_err(|error| Failure::new(error.to_string()))?;
    }
    for table in tables {
        let file = place(table);
        copy(&mut connection, table, &file)?;
        fs::remove_file(&file)?;
    }
    connection.run("VACUUM ANALYZE")
}

fn copy(connection: &mut Connection, table: &str, file: &Path) -> Result<(), Failure> {
    let path = file.to_str().filter(|path| !path.contains('\''));
    let path = path.ok_or_else(|| {
        Failure::new(format!(
            "{} cannot be used as a name in PostgreSQL",
            file.display()
        ))
        .help("set TMPDIR to another directory")
    })?;
    connection.run(&format!("COPY {table} FROM '{path}'"))
}
