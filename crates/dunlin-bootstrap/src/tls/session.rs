//! One side's TLS stream, over blocking and nonblocking sockets. A poll of it reads from TCP once, so a peer cannot
//! keep a thread busy by what it sends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::config::{ClientTls, ServerTls};
use super::names::names;
use crate::address::Address;
use crate::certificate::TlsFailure;
use crate::error::BootstrapError;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Session {
    tcp: TcpStream,
    tls: Connection,
    /// The other side has shown that it speaks TLS.
    met: bool,
}

impl Session {
    /// Creates the server's side; `begun`: bytes that have already been read.
    pub(crate) fn server(tcp: TcpStream, tls: &ServerTls, begun: &[u8]) -> io::Result<Self> {
        let connection =
            ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        let mut tls = Connection::Server(connection);
        let mut rest = begun;
        while !rest.is_empty() && tls.read_tls(&mut rest)? > 0 {}
        let met = true;
        Ok(Self { tcp, tls, met })
    }

    /// Creates the client's side, for the server at this address.
    pub(crate) fn client(
        tcp: TcpStream,
        tls: &ClientTls,
        address: &Address,
    ) -> Result<Self, BootstrapError> {
        let wrong = |what: String| BootstrapError::Tls {
            address: address.clone(),
            what,
        };
        let name = tls.server_name.as_deref().unwrap_or(address.host());
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            wrong(format!(
                "`{name}` is not a name that a certificate can be issued for"
            ))
        })?;
        let connection = ClientConnection::new(Arc::clone(&tls.config), server)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            tcp,
            tls: Connection::Client(connection),
            met: false,
        })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The names in the other side's certificate; `None` without one, or before it is known.
    pub(crate) fn peer_names(&self) -> Option<Vec<String>> {
        let chain = self.tls.peer_certificates()?;
        chain.first().map(names)
    }

    /// Sends pending output.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.tcp)? == 0 {
                return Err(ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    }

    /// Reads once, and answers TLS's own messages.
    fn look(&mut self) -> io::Result<()> {
        let sent = self.send();
        // What the other side sent before it closed the connection is still to be read.
        if self.tls.read_tls(&mut self.tcp)? == 0 {
            return sent.and(Err(ErrorKind::ConnectionReset.into()));
        }
        let processed = self.tls.process_new_packets();
        // Alerts are sent, too.
        let sent = self.send();
        match processed {
            Ok(_) => self.met = true,
            Err(error) => return Err(io::Error::other(TlsFailure::of(&error, self.met))),
        }
        match (sent, &self.tls) {
            // The socket buffer has space for the messages of a handshake; if a client has reduced it, its handshake
            // fails.
            (Err(error), Connection::Server(_)) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::ConnectionAborted.into())
            }
            (Err(error), Connection::Client(_)) if error.kind() != ErrorKind::WouldBlock => {
                // What the other side sent before it closed the connection is still to be read.
                tracing::debug!(%error, "cannot send the TLS response");
                Ok(())
            }
            (Err(error), Connection::Server(_)) => Err(error),
            _ => Ok(()),
        }
    }

    fn plain(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.tls.reader().read(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(ErrorKind::ConnectionReset.into())
            }
            other => other,
        }
    }
}

impl Read for Session {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.plain(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
        self.look()?;
        self.plain(bytes)
    }
}

impl Write for Session {
    /// Accepts all of it, which is at most one frame; [`Write::flush`] sends it. Nothing is sent before the other side
    /// is authenticated.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
