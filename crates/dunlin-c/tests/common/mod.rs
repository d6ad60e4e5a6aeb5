//! An installed libdunlin in a temporary folder, programs that are compiled against it, and processes that are ended.
#![allow(dead_code)] // Each test uses a part.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Far beyond what any program here takes, also on a machine that is busy with others.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// Says past the capture of the test runner what was not tested, and why.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// The crate's folder.
pub(crate) fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where Cargo puts the libraries that it builds before the tests.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    test.parent().expect("it stands in a folder").to_owned()
}

/// A folder that this process alone uses. Those of processes that are no more go.
pub(crate) fn folder(name: &str) -> PathBuf {
    let all = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for other in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        let other_name = other.file_name();
        let of_process = other_name
            .to_str()
            .and_then(|other| other.strip_prefix(name));
        let process = of_process.and_then(|rest| rest.strip_prefix('-'));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(other.path());
        }
    }
    let folder = all.join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// The header without its comments.
pub(crate) fn header_code() -> String {
    let header = std::fs::read_to_string(here().join("include/dunlin.h")).expect("it is there");
    let parts = header.split("/*").map(|part| match part.split_once("*/") {
        Some((_, code)) => code,
        None => part,
    });
    parts.collect()
}

/// The functions that it declares, each in one line, by name.
pub(crate) fn prototypes() -> std::collections::BTreeMap<String, String> {
    let code = header_code();
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join(" ");
    let mut prototypes = std::collections::BTreeMap::new();
    for statement in joined.split([';', '{', '}']) {
        let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((before, _)) = words.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        // A callback's type has a parenthesis before its name: what is in front of it is not one of ours.
        let name = match words.split_once("(*") {
            Some((_, rest)) => rest.split(')').next().unwrap_or_default(),
            None => name,
        };
        if name.starts_with("dunlin_") {
            prototypes.insert(name.to_owned(), words.clone());
        }
    }
    prototypes
}

pub(crate) fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// Runs a program to its end, and says what it has written.
pub(crate) fn run(command: &mut Command) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    finish(child)
}

/// Waits for a process, with a bound, and takes what it writes.
pub(crate) fn finish(mut child: Child) -> Output {
    fn all(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            bytes
        })
    }
    let (stdout, stderr) = (all(child.stdout.take()), all(child.stderr.take()));
    let status = wait(&mut child);
    Output {
        status,
        stdout: stdout.join().expect("reading ends"),
        stderr: stderr.join().expect("reading ends"),
    }
}

/// The end of a process, which is killed when that does not come.
fn wait(child: &mut Child) -> std::process::ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be asked") {
            return status;
        }
        if began.elapsed() > BOUND {
            let _ = child.kill();
            let _ = child.wait();
            panic!("a program has not ended within {BOUND:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a program has written, when it has ended well.
pub(crate) fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(
        output.status.success(),
        "{}\n-- output\n{out}\n-- errors\n{err}",
        output.status
    );
    out.into_owned()
}

/// Below which prefix the library is installed for this process.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = folder("prefix");
        let mut install = Command::new(here().join("install"));
        install.arg("--from").arg(built());
        install.arg("--prefix").arg(&prefix);
        said(&run(&mut install));
        prefix
    })
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
    /// With nothing: it has only what the header says.
    Header,
}

/// What a compiler is told of libdunlin: by pkg-config where there is one.
fn flags(link: Link) -> Vec<String> {
    if link == Link::Header {
        return vec![format!("-I{}", here().join("include").display())];
    }
    let prefix = prefix();
    let library = prefix.join("lib");
    let mut flags = match Command::new("pkg-config")
        .args(["--cflags", "--libs"])
        .args((link == Link::Static).then_some("--static"))
        .arg("dunlin")
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
        .output()
    {
        Ok(output) => said(&output)
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        Err(error) => {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| skipped("dunlin.pc", &format!("no pkg-config ({error})")));
            vec![
                format!("-I{}", prefix.join("include").display()),
                format!("-L{}", library.display()),
                "-ldunlin".to_owned(),
                "-lm".to_owned(),
                "-ldl".to_owned(),
            ]
        }
    };
    if link == Link::Static {
        // The archive itself, because the shared library stands beside it.
        let archive = library.join("libdunlin.a").display().to_string();
        for flag in &mut flags {
            if flag == "-ldunlin" {
                *flag = archive.clone();
            }
        }
    }
    flags
}

/// Compiles a program, with every warning as an error. `None`: there is no compiler, which has been said.
pub(crate) fn compile(source: &str, link: Link, extra: &[&str]) -> Option<PathBuf> {
    let is_cpp = source.ends_with(".cpp");
    let (compiler, standard) = match is_cpp {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c11"),
    };
    if !is_there(compiler) {
        skipped(source, &format!("no {compiler} here"));
        return None;
    }
    static NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = here().join(source);
    let name = path.file_stem().expect("a source has a name");
    let folder = match (link, path.parent()) {
        (Link::Header, Some(beside)) => beside,
        _ => prefix(),
    };
    let program = folder.join(format!("{}-{number}", name.to_string_lossy()));
    let mut command = Command::new(compiler);
    command
        .args([standard, "-D_GNU_SOURCE", "-O1", "-g"])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .args(extra)
        .arg(&path)
        .arg(format!("-I{}", here().join("examples").display()))
        .args(flags(link))
        .arg("-o")
        .arg(&program);
    said(&run(&mut command));
    Some(program)
}

/// Runs a program that finds the library.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// The example server as a process.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(path: &Path) -> Self {
        let mut child = program(path)
            .arg("dunlin://127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut server = Self {
            child,
            lines,
            address: String::new(),
        };
        let line = server.line();
        let address = line.strip_prefix("listening on ");
        server.address = address.expect("it says where it listens").to_owned();
        server
    }

    /// The next line that it writes.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(BOUND);
        line.expect("the server says something")
    }

    /// Ends it as its user would; what it says last.
    pub(crate) fn stop(mut self) -> String {
        let told = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status();
        assert!(told.expect("sh runs").success());
        let mut last = self.line();
        while let Ok(line) = self.lines.recv_timeout(BOUND) {
            last = line;
        }
        assert!(wait(&mut self.child).success(), "{last}");
        last
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
