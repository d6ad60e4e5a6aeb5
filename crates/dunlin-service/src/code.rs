//! gRPC's status codes.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal, $words:literal;)*) => {
        /// The result of a call: gRPC's codes, with their numbers and meanings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// All codes, by number.
            pub const ALL: [Self; 17] = [$(Self::$name,)*];

            /// The name in gRPC's documentation, such as `NOT_FOUND`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// A human-readable description.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

codes! {
    /// The call succeeded.
    Ok = 0, "OK", "the call succeeded";
    /// The caller has cancelled the call.
    Cancelled = 1, "CANCELLED", "the call was cancelled";
    /// An error that has no code.
    Unknown = 2, "UNKNOWN", "unknown error";
    /// The request is invalid, regardless of the state of the system.
    InvalidArgument = 3, "INVALID_ARGUMENT", "the client gave an invalid argument";
    /// The deadline has passed; the server may have executed the call.
    DeadlineExceeded = 4, "DEADLINE_EXCEEDED", "deadline exceeded";
    /// The requested entity does not exist.
    NotFound = 5, "NOT_FOUND", "not found";
    /// The entity to be created already exists.
    AlreadyExists = 6, "ALREADY_EXISTS", "already exists";
    /// The caller is not permitted to make this call.
    PermissionDenied = 7, "PERMISSION_DENIED", "permission denied";
    /// A limit is reached: memory, calls, bytes of a message.
    ResourceExhausted = 8, "RESOURCE_EXHAUSTED", "resource exhausted";
    /// The system is not in the state that the call requires.
    FailedPrecondition = 9, "FAILED_PRECONDITION", "the system is not in the state required for the operation";
    /// The operation was aborted by a conflict, such as one between transactions.
    Aborted = 10, "ABORTED", "the operation was aborted";
    /// The operation goes beyond the valid range.
    OutOfRange = 11, "OUT_OF_RANGE", "the operation exceeds the valid range";
    /// The server has no such method.
    Unimplemented = 12, "UNIMPLEMENTED", "the server has no such method";
    /// An internal invariant is violated.
    Internal = 13, "INTERNAL", "internal error";
    /// The server cannot be reached at the moment.
    Unavailable = 14, "UNAVAILABLE", "the service is not available now";
    /// Data is lost or corrupted.
    DataLoss = 15, "DATA_LOSS", "data was lost or corrupted";
    /// The caller is not authenticated.
    Unauthenticated = 16, "UNAUTHENTICATED", "the caller is not authenticated";
}

impl Code {
    /// Returns the code with this number; [`Code::Unknown`] if there is none.
    pub fn from_number(number: u32) -> Self {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        Self::ALL.get(index).copied().unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        code as Self
    }
}

impl From<i32> for Code {
    fn from(number: i32) -> Self {
        Self::from_number(number as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_grpc_and_come_back() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!(Code::from_number(number), code);
            assert_eq!(i32::from(code), number as i32);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from(-1), Code::Unknown);
        assert_eq!(Code::Unauthenticated.name(), "UNAUTHENTICATED");
    }
}
