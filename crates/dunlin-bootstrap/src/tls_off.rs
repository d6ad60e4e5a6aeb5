//! Replaces the module `tls` if the feature is disabled: there are no certificates, so none of these types can be
//! created.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::address::Address;
use crate::error::BootstrapError;

/// A server's certificate; needs the feature `tls`.
#[derive(Clone, Debug)]
pub enum ServerTls {}

impl ServerTls {
    /// Whether it asks clients for a certificate.
    pub fn asks_clients(&self) -> bool {
        match *self {}
    }
}

/// The authorities that a client trusts; needs the feature `tls`.
#[derive(Clone, Debug)]
pub enum ClientTls {}

/// A TLS stream; needs the feature `tls`.
#[derive(Debug)]
pub(crate) enum Session {}

impl Session {
    pub(crate) fn server(_: TcpStream, tls: &ServerTls, _: &[u8]) -> io::Result<Self> {
        match *tls {}
    }

    pub(crate) fn client(
        _: TcpStream,
        tls: &ClientTls,
        _: &Address,
    ) -> Result<Self, BootstrapError> {
        match *tls {}
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match *self {}
    }

    pub(crate) fn peer_names(&self) -> Option<Vec<String>> {
        match *self {}
    }
}

impl Read for Session {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for Session {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
