//! The launcher of a job: it starts its processes, passes on their output, and ends all of them when one fails.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_mpi::environment::{DEVICE, JOB, RANK, ROOT, SIZE};
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};
use rustix::process::{kill_process, kill_process_group, test_kill_process_group, Pid, Signal};

use crate::commands::Failure;
use crate::interrupt;

/// Interval between two checks of the processes.
const TICK: Duration = Duration::from_millis(10);
/// Time that processes have to end after a SIGTERM, before they are killed.
const GRACE: Duration = Duration::from_secs(2);

/// A job to run.
#[derive(Debug)]
pub struct Job<'a> {
    /// Number of processes.
    pub ranks: usize,
    /// The device between them, if not the best.
    pub device: Option<&'a str>,
    /// Whether their lines begin with their rank.
    pub prefix: bool,
    /// The program and its arguments.
    pub program: &'a [OsString],
}

/// Runs a job to its end.
///
/// # Errors
/// When a process cannot be started or fails, with its exit code, and after Ctrl-C.
pub fn launch(job: &Job<'_>) -> Result<(), Failure> {
    interrupt::listen_twice()?;
    let (held, root) = hold_port()?;
    let number = fastrand::u64(..).to_string();
    let mut processes = Processes::default();
    for rank in 0..job.ranks {
        processes.start(job, rank, &root, &number)?;
    }
    let ended = processes.watch();
    drop(processes);
    drop(held);
    ended
}

/// A port of this host for rank 0. As long as it is held the system gives it to nobody else. Rank 0 can bind it all the
/// same: it binds with `SO_REUSEADDR` too, as the standard library does, and this socket never listens.
fn hold_port() -> std::io::Result<(TcpListener, String)> {
    let socket = net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    // It is asked for its address only.
    let held = TcpListener::from(socket);
    let root = format!("dunlin://{}", held.local_addr()?);
    Ok((held, root))
}

/// The processes of a job. Those that still run when it is dropped are ended.
#[derive(Debug, Default)]
struct Processes {
    running: Vec<Rank>,
    /// The groups of those that have failed, which what they have started may still belong to.
    failed: Vec<Pid>,
    printing: Vec<JoinHandle<()>>,
    /// Whether the reader of the standard output is gone.
    unread: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Rank {
    number: usize,
    child: Child,
    /// Whether it has a process group of its own, which what it starts belongs to.
    is_group: bool,
}

impl Rank {
    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn group(&self) -> Option<Pid> {
        self.id().filter(|_| self.is_group)
    }
}

impl Processes {
    fn start(
        &mut self,
        job: &Job<'_>,
        rank: usize,
        root: &str,
        number: &str,
    ) -> Result<(), Failure> {
        let (name, arguments) = job.program.split_first().ok_or_else(|| {
            // clap requires one.
            Failure::usage("no program")
        })?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .env(RANK, rank.to_string())
            .env(SIZE, job.ranks.to_string())
            .env(ROOT, root)
            .env(JOB, number);
        if let Some(device) = job.device {
            command.env(DEVICE, device);
        }
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        // A shell that is a rank would leave its program behind. In a group of its own a process cannot read from the
        // terminal.
        let is_group = rank > 0 || !std::io::stdin().is_terminal();
        if is_group {
            command.process_group(0);
        }
        if job.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let failed = |error| Failure::new(format!("{}: {error}", name.to_string_lossy()));
        let mut child = command.spawn().map_err(failed)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        self.running.push(Rank {
            number: rank,
            child,
            is_group,
        });
        if let Some(output) = output {
            let unread = Some(Arc::clone(&self.unread));
            self.print(rank, output, std::io::stdout, unread)?;
        }
        if let Some(errors) = errors {
            self.print(rank, errors, std::io::stderr, None)?;
        }
        Ok(())
    }

    /// Passes on the lines of a process with its rank in front of them, and says when nobody reads them any more.
    fn print<W: Write + 'static>(
        &mut self,
        rank: usize,
        from: impl Read + Send + 'static,
        to: fn() -> W,
        unread: Option<Arc<AtomicBool>>,
    ) -> Result<(), Failure> {
        let printing = thread::Builder::new().spawn(move || {
            let mut lines = BufReader::new(from);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|bytes| bytes > 0)
            {
                let mut whole = format!("[{rank}] ").into_bytes();
                whole.append(&mut line);
                if !whole.ends_with(b"\n") {
                    whole.push(b'\n');
                }
                let printed = to().write_all(&whole);
                let Err(error) = printed else { continue };
                if let Some(unread) = unread
                    .as_ref()
                    .filter(|_| error.kind() == ErrorKind::BrokenPipe)
                {
                    unread.store(true, Ordering::Relaxed);
                }
            }
        });
        self.printing.push(printing?);
        Ok(())
    }

    /// Waits until all have ended, or one has failed.
    fn watch(&mut self) -> Result<(), Failure> {
        while !self.running.is_empty() {
            if interrupt::came() {
                return Err(Failure::interrupted());
            }
            if self.unread.load(Ordering::Relaxed) {
                // As with other commands, that is no error.
                return Ok(());
            }
            let mut failed: Option<(String, ExitStatus)> = None;
            let mut at = 0;
            while at < self.running.len() {
                let Rank { number, child, .. } = &mut self.running[at];
                let (rank, id) = (*number, child.id());
                let Some(status) = child.try_wait()? else {
                    at += 1;
                    continue;
                };
                let ended = self.running.swap_remove(at);
                self.failed
                    .extend(ended.group().filter(|_| !status.success()));
                // Of those that failed within a tick, one that a signal has ended is the likely cause.
                let is_cause = failed.as_ref().is_none_or(|_| status.signal().is_some());
                if !status.success() && is_cause {
                    let what = format!("rank {rank} (process {id}) ended with {status}");
                    failed = Some((what, status));
                }
            }
            if let Some((what, status)) = failed {
                return Err(Failure::new(what).with_exit_code(exit_code(status)));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// The process groups that may still have a process.
    fn groups(&self) -> impl Iterator<Item = Pid> + '_ {
        let running = self.running.iter().filter_map(Rank::group);
        running.chain(self.failed.iter().copied())
    }

    fn signal(&self, signal: Signal) {
        // It has not been waited for, so the number is still its own; it may have ended.
        for rank in self.running.iter().filter(|rank| !rank.is_group) {
            let _ = rank.id().map(|id| kill_process(id, signal));
        }
        // A group keeps its number as long as it has a process.
        for group in self.groups() {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// The exit code of a process, as shells report it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

impl Drop for Processes {
    fn drop(&mut self) {
        // When all have ended by themselves, the last of their output is passed on however slow its reader is.
        let is_over = self.running.is_empty();
        self.signal(Signal::TERM);
        let until = Instant::now() + GRACE;
        loop {
            self.running.retain_mut(|rank| {
                let runs = matches!(rank.child.try_wait(), Ok(None));
                self.failed.extend(rank.group().filter(|_| !runs));
                runs
            });
            self.failed
                .retain(|group| test_kill_process_group(*group).is_ok());
            let is_over = self.running.is_empty() && self.failed.is_empty();
            if is_over || Instant::now() >= until || interrupt::came_again() {
                break;
            }
            thread::sleep(TICK);
        }
        self.signal(Signal::KILL);
        for rank in &mut self.running {
            let _ = rank.child.wait();
        }
        let until = Instant::now() + GRACE;
        for printing in self.printing.drain(..) {
            // After a failure, a process that the rank has started may still hold its output open.
            let goes_on = || (is_over && !interrupt::came()) || Instant::now() < until;
            while !printing.is_finished() && goes_on() {
                thread::sleep(TICK);
            }
        }
    }
}
