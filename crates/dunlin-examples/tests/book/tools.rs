//! What the book's commands find: a folder for each chapter that looks like the checkout, and in front of the `PATH`
//! the command `dunlin` and a `cargo` that runs what Cargo has built already.

use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo run` without building: `@PROGRAMS@` is where the examples are.
const CARGO: &str = r#"#!/bin/sh
said="cargo $*"
program=dunlin
# The library for C is what this test depends on.
[ "$*" = "build -q -p dunlin-c" ] && exit
if [ "$1" = run ]; then
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            -q | --release) shift ;;
            -p) [ "$2" = dunlin-examples ] || break; shift 2 ;;
            --bin) program="@PROGRAMS@/$2"; shift 2 ;;
            --) shift; exec "$program" "$@" ;;
            *) break ;;
        esac
    done
    [ $# -gt 0 ] || exec "$program"
fi
echo "error: the book's test does not know '$said'"
exit 9
"#;

/// The tools of one run; the folder goes with it.
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    pub(crate) fn new() -> Self {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("book-{}", std::process::id()));
        let programs = folder.join("bin");
        std::fs::create_dir_all(&programs).expect("a folder for the tools");
        let this = std::env::current_exe().expect("a test knows its file");
        let dunlin = format!(
            "#!/bin/sh\n{}=1 exec '{}' \"$@\"\n",
            crate::COMMAND,
            this.display()
        );
        let examples = Path::new(env!("CARGO_BIN_EXE_echo"))
            .parent()
            .expect("a folder");
        let cargo = CARGO.replace("@PROGRAMS@", &examples.display().to_string());
        for (name, script) in [("dunlin", dunlin), ("cargo", cargo)] {
            let file = programs.join(name);
            std::fs::write(&file, script).expect("a script");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
                .expect("it runs");
        }
        Self { folder }
    }

    /// A folder for a chapter, with the checkout's `crates` in it and a `target/debug` that has the libraries.
    pub(crate) fn folder(&self, chapter: &str) -> PathBuf {
        let folder = self.folder.join(chapter.trim_end_matches(".md"));
        std::fs::create_dir_all(folder.join("target")).expect("a folder for the chapter");
        symlink(crate::root().join("crates"), folder.join("crates")).expect("a link");
        symlink(built(), folder.join("target/debug")).expect("a link");
        folder
    }

    /// A shell in that folder.
    pub(crate) fn shell(&self, folder: &Path) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell
            .current_dir(folder)
            .env(
                "PATH",
                format!("{}:{path}", self.folder.join("bin").display()),
            )
            .env("PYTHONPATH", folder.join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1");
        // What is shown does not depend on who runs it.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            shell.env_remove(name);
        }
        shell
    }

    /// Makes ready what a chapter or a block says that it needs; why it cannot be had.
    pub(crate) fn prepare(&self, what: &str, folder: &Path) -> Result<(), String> {
        match what {
            "openssl" => match Command::new(what).arg("version").output() {
                Ok(output) if output.status.success() => Ok(()),
                _ => Err(format!("no {what} here")),
            },
            "cc" | "curl" => match Command::new(what).arg("--version").output() {
                Ok(output) if output.status.success() => Ok(()),
                _ => Err(format!("no {what} here")),
            },
            "python3" => python(folder),
            "namespaces" => namespaces(),
            "fuse" => match std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
            {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("/dev/fuse: {error}")),
            },
            "fio" => match Command::new("fio").arg("--enghelp=nbd").output() {
                Ok(output) if output.status.success() => Ok(()),
                _ => Err("no fio with an engine for NBD here".to_owned()),
            },
            other => panic!("nobody knows what '{other}' is, which the book needs"),
        }
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether it is a variable that Dunlin reads.
fn is_setting(name: &std::ffi::OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("DUNLIN_"))
}

/// Where Cargo puts libraries that tests depend on.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("a test knows its file");
    this.parent().expect("it stands in a folder").to_owned()
}

/// Whether network namespaces of the book's names can be made here, and are nobody's.
fn namespaces() -> Result<(), String> {
    let can = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        return Err("no network namespaces here: root and iproute2 are wanted".to_owned());
    }
    Ok(())
}

/// The package for Python, with the library that Cargo has built.
fn python(folder: &Path) -> Result<(), String> {
    let new_enough = "import sys; sys.exit(sys.version_info < (3, 11))";
    let found = Command::new("python3").args(["-c", new_enough]).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err("no Python 3.11 here".to_owned());
    }
    let package = folder.join("python/dunlin");
    std::fs::create_dir_all(&package).expect("a folder for the package");
    let source = crate::root().join("crates/dunlin-python/python/dunlin");
    for file in std::fs::read_dir(source).expect("the package is there") {
        let file = file.expect("an entry");
        if file.path().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).expect("a copy");
        }
    }
    let library = built().join("libdunlin_python.so");
    std::fs::copy(library, package.join("_dunlin.abi3.so"))
        .expect("Cargo builds it before the test");
    Ok(())
}
