//! The method to be called, as the caller knows it: by its type, or only by its name.

use std::marker::PhantomData;

use dunlin::HandlerId;

use super::Routes;
use crate::method::{check, Kind, Method};

/// A method to be called. Its number is looked up with [`super::Channel::find`].
pub(super) trait Callee: Sync {
    /// The method's name: `/helloworld.Greeter/SayHello`.
    fn path(&self) -> &str;

    /// Which side sends one message, and which a stream.
    fn kind(&self) -> Kind;

    /// The check of the name, which is sent with each request.
    fn check(&self) -> u32;

    /// The method's number at the server, as far as the caller knows it.
    fn number(&self) -> Option<HandlerId>;

    /// Stores the method's number; `None` if the known number was wrong.
    fn learn(&self, number: Option<HandlerId>);
}

/// A method that is known at compile time.
pub(super) struct ByType<'a, M> {
    routes: &'a Routes,
    method: PhantomData<fn() -> M>,
}

impl<'a, M: Method> ByType<'a, M> {
    pub(super) fn new(routes: &'a Routes) -> Self {
        Self {
            routes,
            method: PhantomData,
        }
    }
}

impl<M: Method> Callee for ByType<'_, M> {
    #[inline]
    fn path(&self) -> &str {
        M::PATH
    }

    #[inline]
    fn kind(&self) -> Kind {
        M::KIND
    }

    #[inline]
    fn check(&self) -> u32 {
        M::CHECK
    }

    #[inline]
    fn number(&self) -> Option<HandlerId> {
        self.routes.get(M::INDEX)
    }

    fn learn(&self, number: Option<HandlerId>) {
        self.routes.set(M::INDEX, number.unwrap_or(0));
    }
}

/// A method that is known only at run time; its number is looked up for each call.
pub(super) struct ByName<'a> {
    pub(super) path: &'a str,
    pub(super) kind: Kind,
}

impl Callee for ByName<'_> {
    fn path(&self) -> &str {
        self.path
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn check(&self) -> u32 {
        check(self.path)
    }

    fn number(&self) -> Option<HandlerId> {
        None
    }

    fn learn(&self, _: Option<HandlerId>) {}
}
