//! The examinations of `dunlin doctor`, each a plain function that returns findings.

pub mod connection;
mod machine;
mod memory;
mod network;
mod rdma;

use serde::Serialize;

/// The result of one examination.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was examined.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, and could do better.
    Warn,
    /// It is missing; something cannot be used, or only in a slower way.
    Missing,
}

impl Finding {
    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            advice: None,
        }
    }

    /// It works, and could do better.
    pub fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    /// It is not there.
    pub fn missing(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            state: State::Missing,
            ..Self::warn(name, found, advice)
        }
    }
}

/// Looks at everything.
pub fn examine() -> Vec<Finding> {
    let mut findings = machine::examine();
    findings.extend(memory::examine());
    findings.extend(network::examine());
    findings.extend(rdma::examine());
    findings.extend(connection::devices());
    findings
}

/// A file's text without the white space around it; `None` where it cannot be read.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The names in a directory, sorted; none where it cannot be read.
fn names_in(path: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .map(|entries| {
            entries
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}
