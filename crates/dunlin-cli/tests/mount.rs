//! Programs on a mounted file system: SQLite, fio, git and tar, whose files are compared again after another mount,
//! when nothing of them is in the kernel's memory; and two mounts beside each other. It needs root, `/dev/fuse` and the
//! program; else a test says that it is skipped. `DUNLIN_MOUNT_LONG=1` has more of each. No test asserts a time.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::{dunlin, failure, Serving, DUNLIN};
use rustix::process::{kill_process, Pid, Signal};

/// Servers, and a folder that the file system is mounted in.
struct Mounted {
    meta: Serving,
    _data: Serving,
    folder: PathBuf,
    mount: Option<Mount>,
}

/// One mount; it ends with the test, however that ends.
struct Mount {
    child: Child,
    path: PathBuf,
}

fn is_long() -> bool {
    std::env::var_os("DUNLIN_MOUNT_LONG").is_some()
}

/// Why this cannot run here.
fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("requires root".into());
    }
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = fuse {
        return Some(format!("/dev/fuse: {error}"));
    }
    let is_there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let absent = programs.iter().find(|program| !is_there(program))?;
    Some(format!("no command {absent}"))
}

/// A mount for a test, or nothing, which is said.
fn mounted(test: &str, programs: &[&str]) -> Option<Mounted> {
    if let Some(why) = missing(programs) {
        eprintln!("skipped: {test}: {why}");
        return None;
    }
    let folder = format!("dunlin-mount-{test}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (file, store) = (path("extents"), path("meta"));
    let fast = ["--durability", "process"];
    let size = ["--file", &file, "--size", "512MiB"];
    let data = Serving::start("data", &[&size[..], &fast].concat());
    let stored = ["--store", &store, "--data", data.address()];
    let meta = Serving::start("meta", &[&stored[..], &fast].concat());
    let mut mounted = Mounted {
        meta,
        _data: data,
        folder,
        mount: None,
    };
    mounted.mount();
    Some(mounted)
}

impl Mounted {
    fn path(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    fn mount(&mut self) {
        self.mount = Some(self.mount_in("mnt", &[]));
    }

    /// Another mount of it, in another folder.
    fn mount_in(&self, name: &str, further: &[&str]) -> Mount {
        self.mount_with(name, further, Stdio::null())
    }

    fn mount_with(&self, name: &str, further: &[&str], words: Stdio) -> Mount {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        let child = Command::new(DUNLIN)
            .args(["mount", self.meta.address()])
            .arg(&path)
            .args(further)
            .stdout(Stdio::piped())
            .stderr(words)
            .spawn()
            .unwrap();
        let mut mount = Mount { child, path };
        let mut line = String::new();
        let output = mount.child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted on"), "{line}");
        mount
    }

    /// Syncs everything and unmounts.
    fn unmount(&mut self) {
        let mut mount = self.mount.take().unwrap();
        kill_process(Pid::from_child(&mount.child), Signal::INT).unwrap();
        let status = mount.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn mount_again(&mut self) {
        self.unmount();
        self.mount();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nothing where it has ended already.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let _ = Command::new("umount").arg("-l").arg(&self.path).output();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.mount = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs a command that must succeed; what it printed.
fn run(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn are_equal(one: &Path, other: &Path) {
    let mut diff = Command::new("diff");
    let output = run(diff.arg("-r").arg("--no-dereference").args([one, other]));
    assert_eq!(output, "");
}

#[test]
fn a_database_of_sqlite_is_sound() {
    let Some(mut mounted) = mounted("sqlite", &["sqlite3"]) else {
        return;
    };
    let rows = if is_long() { 400_000 } else { 20_000 };
    let database = mounted.path().join("birds.db");
    let make = format!(
        "create table birds(id integer primary key, name text, body blob);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
        insert into birds select i, 'bird ' || (i * 7919 % 20011), randomblob(100) from n;
        create index by_name on birds(name);
        delete from birds where id % 3 = 0;
        update birds set body = zeroblob(300) where id % 7 = 0;
        vacuum;"
    );
    run(Command::new("sqlite3").arg(&database).arg(make));
    let ask = "pragma integrity_check; select count(*), count(distinct name) from birds;";
    let before = run(Command::new("sqlite3").arg(&database).arg(ask));
    let left = rows - rows / 3;
    assert!(before.starts_with(&format!("ok\n{left}|")), "{before}");
    mounted.mount_again();
    let after = run(Command::new("sqlite3").arg(&database).arg(ask));
    assert_eq!(after, before);
}

#[test]
fn fio_reads_what_it_has_written() {
    let Some(mut mounted) = mounted("fio", &["fio"]) else {
        return;
    };
    let mut job = vec!["--name=verify", "--bs=4k", "--rw=randwrite", "--fsync=64"];
    job.extend(["--verify=crc32c", "--verify_fatal=1", "--randseed=7"]);
    job.extend(["--verify_state_save=0", "--numjobs=2", "--thread"]);
    job.push(if is_long() { "--size=64m" } else { "--size=4m" });
    let directory = format!("--directory={}", mounted.path().display());
    run(Command::new("fio").args(&job).arg(&directory));
    mounted.mount_again();
    run(Command::new("fio")
        .args(&job)
        .arg(&directory)
        .arg("--verify_only=1"));
}

/// The sources of this crate, or the whole repository.
fn sources() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match is_long() {
        true => here.join("../../crates"),
        false => here.join("../dunlin-fs"),
    }
}

#[test]
fn git_clones_into_it() {
    let Some(mut mounted) = mounted("git", &["git", "diff"]) else {
        return;
    };
    let origin = mounted.folder.join("origin");
    std::fs::create_dir(&origin).unwrap();
    run(Command::new("cp")
        .arg("-r")
        .arg(sources())
        .arg(origin.join("sources")));
    let git = |folder: &Path, arguments: &[&str]| {
        let name = ["-c", "user.name=test", "-c", "user.email=test@localhost"];
        run(Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(name)
            .args(arguments))
    };
    git(&origin, &["init", "--quiet"]);
    git(&origin, &["add", "."]);
    git(&origin, &["commit", "--quiet", "--message", "sources"]);
    // What git does not take, such as empty folders, is not to be compared.
    git(&origin, &["clean", "--quiet", "-fdx"]);
    let clone = mounted.path().join("clone");
    let (from, to) = (origin.to_str().unwrap(), clone.to_str().unwrap());
    let cloning = ["clone", "--quiet", "--no-hardlinks", from, to];
    git(&mounted.path(), &cloning);
    git(&clone, &["mv", "sources", "moved"]);
    git(&clone, &["commit", "--quiet", "--message", "moved"]);
    mounted.mount_again();
    git(&clone, &["fsck", "--strict"]);
    assert_eq!(git(&clone, &["status", "--porcelain"]), "");
    are_equal(&clone.join("moved"), &origin.join("sources"));
}

#[test]
fn tar_packs_and_unpacks_in_it() {
    let Some(mut mounted) = mounted("tar", &["tar", "diff"]) else {
        return;
    };
    let (sources, packed) = (sources(), mounted.path().join("sources.tar"));
    let unpacked = mounted.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    run(Command::new("tar")
        .arg("-cf")
        .arg(&packed)
        .arg("-C")
        .arg(&sources)
        .arg("."));
    run(Command::new("tar")
        .arg("-xf")
        .arg(&packed)
        .arg("-C")
        .arg(&unpacked));
    are_equal(&unpacked, &sources);
    mounted.mount_again();
    are_equal(&unpacked, &sources);
}

#[test]
fn a_write_without_privileges_takes_set_user_id_away() {
    use std::io::Write;
    use std::os::unix::fs::{chown, PermissionsExt};
    let Some(mounted) = mounted("setuid", &["setpriv", "sh"]) else {
        return;
    };
    let path = mounted.path().join("program");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
    };
    let mut file = File::create(&path).unwrap();
    set(0o6777);
    file.write_all(b"root may keep them").unwrap();
    assert_eq!(mode(), 0o6777);
    let write = format!("echo words >> {}", path.display());
    let other = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    run(Command::new("setpriv")
        .args(other)
        .args(["sh", "-c", &write]));
    assert_eq!(mode(), 0o777);
    set(0o6777);
    let cut = format!(": > {}", path.display());
    run(Command::new("setpriv").args(other).args(["sh", "-c", &cut]));
    assert_eq!(mode(), 0o777);
    set(0o6777);
    chown(&path, Some(7), None).unwrap();
    assert_eq!(mode(), 0o777);
}

/// A mount on a device that the user chose sees what one on the best device wrote; a device that is not there is named.
#[test]
fn a_mount_uses_the_device_that_is_asked_for() {
    let Some(mut mounted) = mounted("device", &[]) else {
        return;
    };
    std::fs::write(mounted.path().join("bird"), "dunlin").unwrap();
    mounted.unmount();
    let other = mounted.mount_in("other", &["--device", "roce"]);
    let bird = std::fs::read(other.path.join("bird")).unwrap();
    assert_eq!(bird, b"dunlin");
    let none = [
        "mount",
        mounted.meta.address(),
        mounted.folder.to_str().unwrap(),
    ];
    let words = failure(&dunlin(&[&none[..], &["--device", "ibv:none"]].concat()), 1);
    assert!(words.contains("ibv:none"), "{words}");
}

#[test]
fn two_mounts_see_what_the_other_has_written() {
    use std::io::Write;
    let Some(mounted) = mounted("two", &[]) else {
        return;
    };
    let mounts = ["one", "two"].map(|name| mounted.mount_in(name, &["--cache", "0"]));
    let mut written = Vec::new();
    for turn in 0..6u8 {
        let (mine, others) = (
            &mounts[usize::from(turn % 2)],
            &mounts[usize::from(1 - turn % 2)],
        );
        let name = format!("made-in-turn-{turn}");
        assert!(!others.path.join(&name).exists());
        std::fs::write(mine.path.join(&name), [turn; 10]).unwrap();
        assert_eq!(std::fs::read(others.path.join(&name)).unwrap(), [turn; 10]);

        let mut options = File::options();
        let file = options
            .append(true)
            .create(true)
            .open(mine.path.join("log"));
        let line = vec![turn; 50_000];
        file.unwrap().write_all(&line).unwrap();
        written.extend(line);
        assert!(std::fs::read(others.path.join("log")).unwrap() == written);
    }
}

/// A mount with what it says, and a file of it that is open.
fn busy(test: &str) -> Option<(Mounted, Mount, mpsc::Receiver<String>, File)> {
    let mounted = mounted(test, &[])?;
    let mut mount = mounted.mount_with("busy", &[], Stdio::piped());
    let from = BufReader::new(mount.child.stderr.take().unwrap());
    let (tell, words) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = from.lines().map_while(Result::ok);
        lines.all(|line| tell.send(line).is_ok())
    });
    let held = File::create(mount.path.join("held")).unwrap();
    Some((mounted, mount, words, held))
}

/// Interrupts it; the next line that it says.
fn interrupted(mount: &Mount, words: &mpsc::Receiver<String>) -> String {
    kill_process(Pid::from_child(&mount.child), Signal::INT).unwrap();
    words.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn a_busy_mount_says_so_and_ends_by_a_later_signal() {
    let Some((_mounted, mut mount, words, held)) = busy("busy") else {
        return;
    };
    let line = interrupted(&mount, &words);
    assert!(
        line.contains("busy; press Ctrl-C again to detach"),
        "{line}"
    );
    assert!(mount.path.join("held").exists());
    drop(held);
    // What comes at once may be the same Ctrl-C once more.
    common::eventually("it ends", || {
        let _ = kill_process(Pid::from_child(&mount.child), Signal::INT);
        mount.child.try_wait().unwrap().is_some()
    });
    let status = mount.child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(!mount.path.join("held").exists());
}

#[test]
fn a_second_signal_detaches_a_mount_that_stays_busy() {
    use std::io::Write;
    let Some((_mounted, mut mount, words, mut held)) = busy("detached") else {
        return;
    };
    interrupted(&mount, &words);
    std::thread::sleep(Duration::from_millis(300));
    let line = interrupted(&mount, &words);
    assert!(line.contains("is detached"), "{line}");
    assert!(!mount.path.join("held").exists());
    // Whoever has a file goes on with it, and the command ends after them.
    held.write_all(b"words").unwrap();
    held.sync_all().unwrap();
    drop(held);
    let status = mount.child.wait().unwrap();
    assert!(status.success(), "{status}");
}
