//! The place and time of a measurement, a part of every JSON object that the command prints.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::affinity;

/// What a figure depends on in addition to the code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    /// Of this program.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// Model of its processors, if the system reports it.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Machine, as the kernel calls it.
    pub machine: String,
    /// When the object was printed, in UTC: RFC 3339.
    pub time: String,
}

impl Environment {
    /// As it is now.
    pub fn now() -> Self {
        let system = rustix::system::uname();
        let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            host: words(system.nodename()),
            cpu: cpu_model(),
            cpus: affinity::cores().len(),
            kernel: format!("{} {}", words(system.sysname()), words(system.release())),
            machine: words(system.machine()),
            time: rfc_3339(since.map_or(0, |since| since.as_secs())),
        }
    }
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    Some(model.trim().to_owned())
}

/// A time since 1970 in UTC. The date is Howard Hinnant's `civil_from_days`, for days that are not negative.
fn rfc_3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, from which on a year ends with its leap day.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, time) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc_3339(seconds), time);
        }
    }

    #[test]
    fn it_is_known_where_this_runs() {
        let here = Environment::now();
        assert!(here.cpus > 0);
        assert!(here.kernel.starts_with("Linux "), "{}", here.kernel);
        assert!(!here.host.is_empty());
    }
}
