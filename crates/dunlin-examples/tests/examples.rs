//! Each example, as a user runs it: a server and a client in processes of their own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A server of an example, started as in the background of a script: it ends by a signal.
struct Served {
    child: Child,
    address: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Served {
    fn start(program: &str) -> Self {
        let mut child = Command::new(program)
            .args(["serve", "dunlin://127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self {
            child,
            address,
            output,
        }
    }

    /// Ends it, and gives what else it has said.
    fn end(mut self) -> String {
        let told = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status();
        assert!(told.unwrap().success());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Of a test that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a client says, and whether it ended well.
fn call(program: &str, arguments: &[&str]) -> (String, bool) {
    let output = Command::new(program)
        .arg("call")
        .args(arguments)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8(said).unwrap(), output.status.success())
}

#[test]
fn helloworld() {
    let program = env!("CARGO_BIN_EXE_helloworld");
    let served = Served::start(program);
    let (said, well) = call(program, &[&served.address, "Ada"]);
    assert!(well && said == "Hello Ada!\n", "{said}");
    let (said, well) = call(program, &[&served.address, ""]);
    assert!(!well && said.contains("a greeting needs a name"), "{said}");
    served.end();
}

#[test]
fn routeguide() {
    let program = env!("CARGO_BIN_EXE_routeguide");
    let served = Served::start(program);
    let (said, well) = call(program, &[&served.address]);
    assert!(well, "{said}");
    let wanted = "\
feature: Berkshire Valley Management Area Trail
listed: Berkshire Valley Management Area Trail
listed: Patriots Path
listed: 101 New Jersey 10
route: 4 points, 4 features, 107 km
left before: note 0
left before: note 1
";
    assert_eq!(said, wanted);
    served.end();
}

#[test]
fn streaming() {
    let program = env!("CARGO_BIN_EXE_streaming");
    let served = Served::start(program);
    let (said, well) = call(program, &[&served.address]);
    assert!(well, "{said}");
    assert!(
        said.starts_with("unary: once\nserver: 5 of them, then the client goes\nclient: abc\n"),
        "{said}"
    );
    assert!(said.ends_with("both: message 16\n"), "{said}");
    assert_eq!(said.lines().count(), 20, "{said}");
    let heard = served.end();
    assert_eq!(heard, "the client has gone\n");
}
