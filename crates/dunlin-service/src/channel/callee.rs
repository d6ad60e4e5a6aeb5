//! The method that is called, as its caller knows it: by its type, or by its name alone.

use std::marker::PhantomData;

use dunlin::HandlerId;

use super::Routes;
use crate::method::{check, Kind, Method};

/// See the module. What the server has is asked by way of it ([`super::Channel::find`]).
pub(super) trait Callee: Sync {
    /// The name: `/helloworld.Greeter/SayHello`.
    fn path(&self) -> &str;

    /// What is sent in which direction.
    fn kind(&self) -> Kind;

    /// What each request repeats of the name.
    fn check(&self) -> u32;

    /// Its number at the server, as far as the caller knows.
    fn number(&self) -> Option<HandlerId>;

    /// The number is this; `None`: what was known is wrong.
    fn learn(&self, number: Option<HandlerId>);
}

/// A method that was known when the program was compiled.
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

/// A method of which the program learns when it runs; its number is looked up with each call.
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
