//! A file that an observer of a simulated run writes, and what is said of it in the end.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_sim::Observer;

use crate::commands::Failure;
use crate::output;

/// A file that is being written.
pub(super) struct Recording<R> {
    file: PathBuf,
    recorder: Arc<Mutex<R>>,
}

impl<R: Observer + 'static> Recording<R> {
    /// Makes the file, and who writes into it.
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
            recorder: Arc::new(Mutex::new(recorder(BufWriter::new(opened))?)),
        })
    }

    /// What is to observe the run.
    pub(super) fn observer(&self) -> Box<dyn Observer> {
        Box::new(Arc::clone(&self.recorder))
    }

    /// Ends the file, and says what is in it and what was left out, as `end` counts them; `choose` says by what.
    ///
    /// # Errors
    /// When it could not be written.
    pub(super) fn end(
        self,
        end: impl FnOnce(&mut R) -> Result<(u64, u64), Failure>,
        what: &str,
        choose: &str,
    ) -> Result<(), Failure> {
        let recorder = self.recorder.lock();
        let (taken, left_out) = end(&mut recorder.unwrap_or_else(PoisonError::into_inner))?;
        let file = self.file.display();
        output::note(format_args!("{file}: {taken} {what}"));
        if left_out > 0 {
            output::note(format_args!(
                "{file}: {left_out} more were left out: a bound was reached; {choose} choose"
            ));
        }
        Ok(())
    }
}
