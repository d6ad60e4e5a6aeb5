//! Commands of the book as processes: every wait has a bound, and all are ended by their ids.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// Far beyond what any line takes, also on a machine that is busy with others.
const BOUND: Duration = Duration::from_secs(120);

/// How a line ended; what it wrote, to standard output and error as they came.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

/// Runs a line of shell to its end.
pub(crate) fn run(shell: &mut Command, line: &str) -> Result<Ended, String> {
    let mut child = shell
        .arg("-c")
        .arg(format!("exec 2>&1\n{line}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("sh: {error}"))?;
    let mut pipe = child.stdout.take().expect("its output");
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let status = wait(&mut child, BOUND);
    if status.is_none() {
        // The group, because a line can be several processes.
        signal("KILL", &format!("-{}", child.id()));
        let _ = child.wait();
    }
    let said = reading.join().expect("reading ends");
    let status =
        status.ok_or_else(|| format!("it has not ended within {BOUND:?}; it said\n{said}"))?;
    Ok(Ended { status, said })
}

/// The end of a process, unless it does not come in time.
fn wait(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be asked") {
            return Some(status);
        }
        if began.elapsed() > bound {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, process: &str) {
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{name} {process}")])
        .status();
}

/// A server that a chapter has started; it ends with the chapter.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts it, and waits for so many lines of its output, one at least: then it serves. Says the lines.
    pub(crate) fn start(
        shell: &mut Command,
        line: &str,
        lines: usize,
    ) -> Result<(Self, Vec<String>), String> {
        let mut child = shell
            .arg("-c")
            // So that its id is the program's, also behind settings of the environment.
            .arg(format!("exec 2>&1\nexec env {line}"))
            // As in the background of a script.
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut running = Self {
            child,
            lines: receiver,
        };
        let mut said = Vec::new();
        while said.len() < lines.max(1) {
            match running.lines.recv_timeout(BOUND) {
                Ok(line) => said.push(line),
                Err(_) => {
                    let ended = running.child.try_wait();
                    return Err(format!("it said no more than {said:?} ({ended:?})"));
                }
            }
        }
        Ok((running, said))
    }

    /// Ends it by a signal.
    pub(crate) fn end(&mut self, name: &str) {
        signal(name, &self.child.id().to_string());
        if wait(&mut self.child, Duration::from_secs(20)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end("TERM");
        }
    }
}
