//! Reports of a client to its server about itself, which `dunlin top` shows.

use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Client, Core};
use crate::sharing::figures::HandleFigures;
use crate::{versioned, HandlerId};

/// The server's built-in handler that receives [`ClientReport`]s.
pub(crate) const REPORT: HandlerId = HandlerId::MAX - 1;

/// Version of a report's format.
const VERSION: u8 = 1;

/// Maximum length of a client's name in bytes.
const NAME_BYTES: usize = 64;
/// Maximum number of lanes and of threads in a report: those of a connection handle.
const MOST_LANES: usize = 256;
const MOST_THREADS: usize = 4096;

/// What a client reports about itself. A server displays it and does not rely on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientReport {
    /// The client's name: at most 64 bytes.
    pub name: String,
    /// The device it uses.
    pub device: String,
    /// Its preset.
    pub preset: String,
    /// Its connection handle, if it has one.
    pub handle: Option<HandleFigures>,
}

impl ClientReport {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        versioned::encode(VERSION, self)
    }

    /// Decodes a report from an untrusted peer.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let report: Self = versioned::decode(VERSION, bytes, "client report")?;
        let handle = report.handle.as_ref();
        let bounds = [
            ("name", report.name.len(), NAME_BYTES),
            ("device", report.device.len(), NAME_BYTES),
            ("preset", report.preset.len(), NAME_BYTES),
            ("lanes", handle.map_or(0, |h| h.lanes.len()), MOST_LANES),
            (
                "threads",
                handle.map_or(0, |h| h.assignment.len()),
                MOST_THREADS,
            ),
        ];
        for (what, length, most) in bounds {
            if length > most {
                return Err(format!(
                    "client report: {what} is {length}, above the limit of {most}"
                ));
            }
        }
        Ok(report)
    }
}

/// The interval and the name.
#[derive(Clone, Debug)]
pub(super) struct Reporting {
    pub(super) name: String,
    pub(super) every: Duration,
}

impl Reporting {
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.name.len() > NAME_BYTES {
            let length = self.name.len();
            return Err(format!(
                "the client's name has {length} bytes: the limit is {NAME_BYTES}"
            ));
        }
        if self.every < Duration::from_millis(10) {
            return Err(format!(
                "the interval of reports is {:?}: it must be at least 10 ms",
                self.every
            ));
        }
        Ok(())
    }
}

/// Starts the thread that reports. It has a lane or port of its own like any thread, and ends with the client.
pub(super) fn start(core: &Arc<Core>, reporting: &Reporting) -> std::io::Result<Thread> {
    let core = Arc::downgrade(core);
    let reporting = reporting.clone();
    let thread = std::thread::Builder::new().name("dunlin-report".into());
    let thread = thread.spawn(move || {
        while report(&core, &reporting.name) {
            std::thread::park_timeout(reporting.every);
        }
    })?;
    Ok(thread.thread().clone())
}

/// Sends one report; `false` when the client has ended. If the server is unreachable or does not accept it, the next
/// one is sent all the same.
fn report(core: &Weak<Core>, name: &str) -> bool {
    let Some(client) = core.upgrade().map(|core| Client {
        deadline: core.settings.deadline,
        core,
    }) else {
        return false;
    };
    if client.is_closed() {
        return false;
    }
    let info = client.info();
    let mut handle = client.figures();
    if let Some(handle) = &mut handle {
        // Further ones are not reported.
        handle.lanes.truncate(MOST_LANES);
        handle.assignment.truncate(MOST_THREADS);
    }
    let report = ClientReport {
        name: name.to_owned(),
        device: info.device.clone(),
        preset: info.preset.name().to_owned(),
        handle,
    };
    let Ok(bytes) = report.encode() else {
        return true;
    };
    if let Err(error) = client.call(REPORT, &bytes) {
        tracing::debug!(%error, "the server did not accept a report");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded() {
        let mut report = ClientReport {
            name: "x".repeat(NAME_BYTES),
            ..ClientReport::default()
        };
        let decoded = |report: &ClientReport| ClientReport::decode(&report.encode().unwrap());
        assert_eq!(decoded(&report).as_ref(), Ok(&report));
        report.handle = Some(HandleFigures {
            assignment: vec![0; MOST_THREADS + 1],
            ..HandleFigures::default()
        });
        assert!(decoded(&report).unwrap_err().contains("threads is 4097"));
        report.handle = None;
        report.name.push('x');
        assert!(decoded(&report).unwrap_err().contains("name is 65"));
        assert!(ClientReport::decode(&[255; 40])
            .unwrap_err()
            .contains("version 255"));
    }
}
