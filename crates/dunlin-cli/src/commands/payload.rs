//! Payloads given by hand: bytes of the command line, or standard input.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use dunlin::Client;

use super::Failure;
use crate::input;

/// The bytes of an argument; `-` stands for standard input, of which no more is read than the server accepts.
pub(super) fn payload(client: &Client, argument: &OsStr) -> Result<Vec<u8>, Failure> {
    if argument != "-" {
        return Ok(argument.as_bytes().to_vec());
    }
    // Only the server knows how long a request may be: nothing is read before it is there.
    let longest = client.max_message_bytes().map_err(Failure::new)?;
    input::read_at_most(std::io::stdin().lock(), longest)?.ok_or_else(|| {
        let words = "standard input is longer than the server's limit for a request";
        Failure::new(format!("{words}: {longest} bytes (max_message_bytes)"))
    })
}
