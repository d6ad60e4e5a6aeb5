//! Joining a job by the environment that its launcher sets.

use std::env::{self, VarError};
use std::str::FromStr;

use dunlin_bootstrap::Secret;

use crate::error::JoinError;
use crate::settings::Settings;
use crate::world::World;

/// The variable with the number of this process.
pub const RANK: &str = "DUNLIN_MPI_RANK";
/// The variable with the number of processes.
pub const SIZE: &str = "DUNLIN_MPI_SIZE";
/// The variable with the address of rank 0.
pub const ROOT: &str = "DUNLIN_MPI_ROOT";
/// The variable with the number of the job, which may be missing.
pub const JOB: &str = "DUNLIN_MPI_JOB";
/// The variable with the device, which may be missing.
pub const DEVICE: &str = "DUNLIN_MPI_DEVICE";
/// The variable with the path of a file that contains the secret, which may be missing.
pub const SECRET_FILE: &str = "DUNLIN_MPI_SECRET_FILE";

impl World {
    /// Joins the job that the environment describes, as `dunlin mpi run` or another launcher sets it: [`RANK`],
    /// [`SIZE`] and [`ROOT`], and where they are set [`JOB`], [`DEVICE`] and [`SECRET_FILE`]. Without rank and size the
    /// process is a job of its own.
    ///
    /// # Errors
    /// When a variable is missing or invalid, and as for [`World::join`].
    pub fn from_env() -> Result<Self, JoinError> {
        Self::from_env_with(Settings::default())
    }

    /// As [`World::from_env`], with other settings; the environment's device, job and secret come first.
    ///
    /// # Errors
    /// As for [`World::from_env`].
    pub fn from_env_with(mut settings: Settings) -> Result<Self, JoinError> {
        let (rank, size) = (number::<usize>(RANK)?, number::<usize>(SIZE)?);
        if (rank, size) == (None, None) {
            return Ok(Self::new(0, 1, &settings));
        }
        let missing = |name| JoinError::Environment {
            name,
            why: "is not set".to_owned(),
        };
        let rank = rank.ok_or_else(|| missing(RANK))?;
        let size = size.ok_or_else(|| missing(SIZE))?;
        let root = text(ROOT)?.ok_or_else(|| missing(ROOT))?;
        if let Some(job) = number(JOB)? {
            settings = settings.job(job);
        }
        if let Some(device) = text(DEVICE)? {
            settings = settings.device(device);
        }
        if let Some(path) = text(SECRET_FILE)? {
            settings = settings.secret(read_secret(&path)?);
        }
        Self::join(rank, size, &root, &settings)
    }
}

/// Reads a secret, without a line break at its end.
fn read_secret(path: &str) -> Result<Secret, JoinError> {
    let failed = |why: String| JoinError::Environment {
        name: SECRET_FILE,
        why: format!("names {path}: {why}"),
    };
    let mut bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    while bytes.last().is_some_and(|last| b"\r\n".contains(last)) {
        bytes.pop();
    }
    Secret::new(bytes).map_err(|error| failed(error.to_string()))
}

fn text(name: &'static str) -> Result<Option<String>, JoinError> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(JoinError::Environment {
            name,
            why: error.to_string(),
        }),
    }
}

fn number<T: FromStr>(name: &'static str) -> Result<Option<T>, JoinError> {
    let parse = |text: String| {
        text.parse().map_err(|_| JoinError::Environment {
            name,
            why: format!("is `{text}`, which is not a number"),
        })
    };
    text(name)?.map(parse).transpose()
}
