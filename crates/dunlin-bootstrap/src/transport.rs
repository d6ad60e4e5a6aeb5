//! The byte stream of a handshake: plain TCP, or TLS over it.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::tls::Session;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<Session>),
}

impl Transport {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(session) => session.tcp(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The names in the other side's certificate, if it has presented one.
    pub(crate) fn peer_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(session) => session.peer_names(),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(bytes),
            Self::Tls(session) => session.read(bytes),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(session) => session.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(session) => session.flush(),
        }
    }
}
