//! One side of a connection, between its creation and the peer's answer.

use dunlin_verbs::{EndpointAddress, VerbsError};

use super::Parameters;

/// Connects a side to the peer with this address, which has stated these parameters.
type Join<T> = Box<dyn FnOnce(&EndpointAddress, &Parameters) -> Result<T, VerbsError>>;

/// What becomes a `T` (a channel, a lane) when its peer is known.
pub(crate) struct Opening<T> {
    /// Its address, for the peer.
    pub(crate) address: EndpointAddress,
    /// What the peer must know in addition.
    pub(crate) parameters: Parameters,
    /// Connects it. A side that dials is connected after its peer, and must then notify it
    /// ([`super::carrier::Carrier::greet`]).
    pub(crate) join: Join<T>,
}

impl<T: 'static> Opening<T> {
    /// The same side, of which `finish` makes something else once it is connected; it is passed the peer's parameters.
    pub(crate) fn then<U>(
        self,
        finish: impl FnOnce(T, &Parameters) -> Result<U, VerbsError> + 'static,
    ) -> Opening<U> {
        let join = self.join;
        Opening {
            address: self.address,
            parameters: self.parameters,
            join: Box::new(move |peer, parameters| finish(join(peer, parameters)?, parameters)),
        }
    }
}
