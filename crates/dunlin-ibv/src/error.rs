//! Conversion of an errno to an error with context: which call failed, with what, and what to do about it.

use std::io;

use dunlin_verbs::VerbsError;

/// An errno with an explanation.
#[derive(Debug)]
struct Explained {
    errno: io::Error,
    what: String,
}

impl std::fmt::Display for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.errno, self.what)
    }
}

impl std::error::Error for Explained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

/// The error of a call that left its reason in `errno`.
pub(crate) fn last(call: &'static str, what: impl Into<String>) -> VerbsError {
    explain(call, io::Error::last_os_error(), what)
}

/// The error of a call that returned its reason.
pub(crate) fn returned(call: &'static str, errno: i32, what: impl Into<String>) -> VerbsError {
    // A few old providers return -1 and set errno; on some kernels the number is negative.
    let error = match errno {
        -1 => io::Error::last_os_error(),
        other => io::Error::from_raw_os_error(other.abs()),
    };
    explain(call, error, what)
}

/// Converts an error of rustix.
pub(crate) fn system(
    call: &'static str,
    what: &'static str,
) -> impl Fn(rustix::io::Errno) -> VerbsError {
    move |errno| explain(call, errno.into(), what)
}

pub(crate) fn explain(call: &'static str, errno: io::Error, what: impl Into<String>) -> VerbsError {
    let kind = errno.kind();
    VerbsError::System {
        call,
        source: io::Error::new(
            kind,
            Explained {
                errno,
                what: what.into(),
            },
        ),
    }
}

/// The error for something missing, without an errno.
pub(crate) fn absent(call: &'static str, what: impl Into<String>) -> VerbsError {
    VerbsError::System {
        call,
        source: io::Error::new(io::ErrorKind::NotFound, what.into()),
    }
}

pub(crate) fn invalid(argument: &'static str, why: impl Into<String>) -> VerbsError {
    VerbsError::Invalid {
        argument,
        why: why.into(),
    }
}
