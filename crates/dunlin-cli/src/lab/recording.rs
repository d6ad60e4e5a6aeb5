//! A file that an observer of a simulated run writes, and its final summary.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_sim::{Busy, Observer, SeenNic, SeenPacket, SwitchId};

use crate::commands::Failure;
use crate::output;

/// A file that is being written.
pub(super) struct Recording<R> {
    file: PathBuf,
    recorder: Arc<Mutex<UntilEnded<R>>>,
}

/// Writes into the file until it is ended: an interrupted run may still be running then.
struct UntilEnded<R>(Option<R>);

impl<R: Observer> Observer for UntilEnded<R> {
    fn begin(&mut self, now_ps: u64) {
        self.0.iter_mut().for_each(|one| one.begin(now_ps));
    }

    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.0.iter_mut().for_each(|one| one.packet(packet));
    }

    fn busy(&mut self, busy: &Busy<'_>) {
        self.0.iter_mut().for_each(|one| one.busy(busy));
    }

    fn nic(&mut self, nic: &SeenNic<'_>) {
        self.0.iter_mut().for_each(|one| one.nic(nic));
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let ports = self.0.iter_mut();
        ports.for_each(|one| one.port(at_ps, switch, port, queued_bytes));
    }
}

impl<R: Observer + 'static> Recording<R> {
    /// Creates the file and its writer.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn begin(
        file: &Path,
        recorder: impl FnOnce(BufWriter<File>) -> Result<R, Failure>,
    ) -> Result<Self, Failure> {
        let opened = File::create(file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        Ok(Self {
            file: file.to_owned(),
            recorder: Arc::new(Mutex::new(UntilEnded(Some(recorder(BufWriter::new(
                opened,
            ))?)))),
        })
    }

    /// The observer of the run.
    pub(super) fn observer(&self) -> Box<dyn Observer> {
        Box::new(Arc::clone(&self.recorder))
    }

    /// Ends the file, and says what is in it and what was left out, as `end` counts them; `choose` says by what.
    ///
    /// # Errors
    /// When the file could not be written.
    pub(super) fn end(
        self,
        end: impl FnOnce(&mut R) -> Result<(u64, u64), Failure>,
        what: &str,
        choose: &str,
    ) -> Result<(), Failure> {
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, left_out) = match recorder.0.take() {
            Some(mut recorder) => end(&mut recorder)?,
            None => (0, 0),
        };
        let file = self.file.display();
        output::note(format_args!("{file}: {taken} {what}"));
        if left_out > 0 {
            output::note(format_args!(
                "{file}: {left_out} more were omitted because a limit was reached; select with {choose}"
            ));
        }
        Ok(())
    }
}
