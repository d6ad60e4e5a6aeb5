//! Access control: a list of rules that a server is configured with, and the rights of one client that follow from it.
//!
//! A rule says for some clients ([`Who`]) what they may do ([`Grant`]). A client may do what any of the rules that
//! apply to it allows, and nothing else: a server with [`Rights`] refuses what no rule allows. The rules are evaluated
//! once, when a connection is made; a call only tests a bit.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use dunlin_bootstrap::Peer;
use dunlin_verbs::Access;

use super::handler::HandlerTable;
use super::region::Region;
use crate::call::callbacks::CALLBACKS;
use crate::call::captured::CAPTURE;
use crate::error::ServeError;
use crate::server::FIGURES;
use crate::HandlerId;

/// Means all methods, or all regions.
const ANY: &str = "*";

/// The clients that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Who {
    /// Every client that passed the handshake. Written `anyone`.
    Anyone,
    /// Clients that have proved to know the server's secret. Written `secret`.
    Secret,
    /// Clients with a certificate, whatever its names. Written `certificate`.
    Certificate,
    /// Clients whose certificate has this name, as its subject's common name or among the alternative names. Case is
    /// ignored. Written `name:app.example`.
    Name(String),
    /// Clients whose process runs as this user according to the kernel, which is known only over shared memory. Written
    /// `user:1000`.
    User(u32),
}

impl Who {
    fn is(&self, peer: &Peer) -> bool {
        match self {
            Self::Anyone => true,
            Self::Secret => peer.knows_secret(),
            Self::Certificate => peer.has_certificate(),
            Self::Name(name) => peer
                .names()
                .iter()
                .any(|one| one.eq_ignore_ascii_case(name)),
            Self::User(user) => peer.user() == Some(*user),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Secret => f.write_str("secret"),
            Self::Certificate => f.write_str("certificate"),
            Self::Name(name) => write!(f, "name:{name}"),
            Self::User(user) => write!(f, "user:{user}"),
        }
    }
}

/// A string that is not a [`Who`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown client `{0}`: write anyone, secret, certificate, name:NAME (of a certificate) or user:NUMBER"
)]
pub struct UnknownWho(String);

impl FromStr for Who {
    type Err = UnknownWho;

    fn from_str(words: &str) -> Result<Self, UnknownWho> {
        let unknown = || UnknownWho(words.to_owned());
        match words.split_once(':') {
            None => match words {
                "anyone" => Ok(Self::Anyone),
                "secret" => Ok(Self::Secret),
                "certificate" => Ok(Self::Certificate),
                _ => Err(unknown()),
            },
            Some(("name", name)) if !name.is_empty() => Ok(Self::Name(name.to_owned())),
            Some(("user", number)) => number.parse().map(Self::User).map_err(|_| unknown()),
            Some(_) => Err(unknown()),
        }
    }
}

/// The handlers that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Callable {
    Any,
    Id(HandlerId),
    /// The name of one, as in gRPC (`/helloworld.Greeter/SayHello`), or a prefix (`/helloworld.Greeter/*`).
    Name(String),
}

impl Callable {
    fn covers(&self, id: HandlerId, name: Option<&str>) -> bool {
        match self {
            // The calls of other clients are shown only to clients with an explicit grant of it.
            Self::Any => id != CAPTURE,
            Self::Id(one) => *one == id,
            Self::Name(pattern) => name.is_some_and(|name| match pattern.strip_suffix(ANY) {
                Some(begin) => name.starts_with(begin),
                None => name == pattern,
            }),
        }
    }
}

/// What a rule lets clients do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    calls: Vec<Callable>,
    regions: Vec<(String, Access)>,
    origin: Option<String>,
}

impl Grant {
    /// An empty grant.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows calling the handler of this id. This includes [`FIGURES`], the server's live figures, [`CAPTURE`], the
    /// calls of other clients, and [`CALLBACKS`], being called by the server.
    #[must_use]
    pub fn call(mut self, id: HandlerId) -> Self {
        self.calls.push(Callable::Id(id));
        self
    }

    /// Allows calling a handler by its name ([`crate::ServerBuilder::name_handler`]; methods of typed services have
    /// names): `/helloworld.Greeter/SayHello`, `/helloworld.Greeter/*` for all of a service, `*` for all handlers.
    #[must_use]
    pub fn call_named(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.calls.push(match name == ANY {
            true => Callable::Any,
            false => Callable::Name(name),
        });
        self
    }

    /// Allows reading a region, or all of them (`*`).
    #[must_use]
    pub fn read(self, region: impl Into<String>) -> Self {
        self.reach(region, Access::REMOTE_READ)
    }

    /// Allows writing a region, or all of them (`*`). Where a grant is a mapping (over shared memory), a client that
    /// may write can also read.
    #[must_use]
    pub fn write(self, region: impl Into<String>) -> Self {
        self.reach(region, Access::REMOTE_WRITE)
    }

    /// Allows atomics on a region, or on all of them (`*`).
    #[must_use]
    pub fn atomic(self, region: impl Into<String>) -> Self {
        self.reach(region, Access::REMOTE_ATOMIC)
    }

    fn reach(mut self, region: impl Into<String>, access: Access) -> Self {
        self.regions.push((region.into(), access));
        self
    }

    /// Sets where the grant was written, such as a file and a line, for error messages about it.
    #[must_use]
    pub fn written_at(mut self, place: impl Into<String>) -> Self {
        self.origin = Some(place.into());
        self
    }
}

/// What the clients of a server may do; see the module. Without a rule no client may do anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    rules: Vec<(Who, Grant)>,
}

impl Rights {
    /// Rights without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule.
    #[must_use]
    pub fn allow(mut self, who: Who, grant: Grant) -> Self {
        self.rules.push((who, grant));
        self
    }

    /// Returns what is wrong with the rules at a server with these handlers and regions: a name that the server does
    /// not have is taken for a mistake.
    pub(super) fn validate(
        &self,
        handlers: &HandlerTable,
        regions: &[Region],
        has: &Has,
    ) -> Result<(), ServeError> {
        for (who, grant) in &self.rules {
            let wrong = |words: String| {
                let place = grant.origin.as_deref().map(|place| format!("{place}: "));
                let place = place.unwrap_or_default();
                Err(ServeError::Setting(format!(
                    "{place}rights of `{who}`: {words}"
                )))
            };
            match who {
                Who::Secret if !has.secret => {
                    return wrong("the server has no secret, so no client can know it".to_owned());
                }
                Who::Name(_) | Who::Certificate if !has.certificates => {
                    let words = "the server does not ask clients for certificates (TLS)";
                    return wrong(words.to_owned());
                }
                _ => {}
            }
            for callable in &grant.calls {
                let is_known = |id| callable.covers(id, handlers.name(id));
                match callable {
                    Callable::Any | Callable::Id(FIGURES | CAPTURE | CALLBACKS) => {}
                    Callable::Id(id) if !handlers.ids().any(is_known) => {
                        return wrong(format!("the server has no handler {id}"));
                    }
                    Callable::Name(name) if !handlers.ids().any(is_known) => {
                        return wrong(format!(
                            "the server has no method `{name}`; it has: {}",
                            handlers.names_in_words()
                        ));
                    }
                    _ => {}
                }
            }
            for (name, access) in &grant.regions {
                if name == ANY {
                    continue;
                }
                let Some(region) = regions.iter().find(|region| region.name() == name) else {
                    return wrong(format!("the server has no region `{name}`"));
                };
                if !region.access().contains(*access) {
                    let right = in_words(*access);
                    return wrong(format!(
                        "the region `{name}` does not allow {right} to anybody"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The means by which a server can identify its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has {
    pub(super) secret: bool,
    pub(super) certificates: bool,
}

fn in_words(access: Access) -> &'static str {
    if access == Access::REMOTE_READ {
        "reading"
    } else if access == Access::REMOTE_WRITE {
        "writing"
    } else {
        "atomics"
    }
}

/// The rights of a server together with the handlers and regions that they are about.
pub(super) struct RightsTable {
    rights: Rights,
    handlers: HandlerTable,
}

impl RightsTable {
    pub(super) fn new(rights: Rights, handlers: HandlerTable) -> Arc<Self> {
        Arc::new(Self { rights, handlers })
    }

    /// What a client may do.
    pub(super) fn of(&self, peer: &Peer) -> Granted {
        let grants = || {
            let rules = self.rights.rules.iter();
            rules
                .filter(|(who, _)| who.is(peer))
                .map(|(_, grant)| grant)
        };
        let may = |id: HandlerId| {
            let name = self.handlers.name(id);
            let mut callables = grants().flat_map(|grant| &grant.calls);
            self.handlers.checks_itself(id) || callables.any(|one| one.covers(id, name))
        };
        let last = self.handlers.ids().max().map_or(0, usize::from);
        let mut calls = vec![0_u64; last / 64 + 1].into_boxed_slice();
        for id in self.handlers.ids().filter(|id| may(*id)) {
            let id = usize::from(id);
            calls[id / 64] |= 1 << (id % 64);
        }
        Granted {
            calls,
            shown: [FIGURES, CAPTURE, CALLBACKS].map(may),
            regions: grants().flat_map(|grant| grant.regions.clone()).collect(),
        }
    }

    /// The name of a handler, for an error.
    pub(super) fn name(&self, id: HandlerId) -> String {
        match (id, self.handlers.name(id)) {
            (FIGURES, _) => "the server's figures".to_owned(),
            (CAPTURE, _) => "capture (what others call)".to_owned(),
            (CALLBACKS, _) => "callbacks (to be called by the server)".to_owned(),
            (_, Some(name)) => format!("{name} (handler {id})"),
            (_, None) => format!("handler {id}"),
        }
    }
}

/// What one client may do.
#[derive(Debug)]
pub(super) struct Granted {
    /// A bit for each id.
    calls: Box<[u64]>,
    /// Whether [`FIGURES`], [`CAPTURE`] and [`CALLBACKS`] may be called.
    shown: [bool; 3],
    regions: Vec<(String, Access)>,
}

impl Granted {
    #[inline]
    pub(super) fn may_call(&self, id: HandlerId) -> bool {
        match self.calls.get(usize::from(id) / 64) {
            Some(word) if id < FIRST_RESERVED => word >> (id % 64) & 1 != 0,
            _ => self.may_call_reserved(id),
        }
    }

    /// Decides for ids without a handler and for those of the built-in handlers, some of which need rights.
    #[cold]
    fn may_call_reserved(&self, id: HandlerId) -> bool {
        let [figures, capture, callbacks] = self.shown;
        match id {
            FIGURES => figures,
            CAPTURE => capture,
            CALLBACKS => callbacks,
            _ => id >= FIRST_RESERVED,
        }
    }

    /// The access that the client has to a region.
    pub(super) fn access(&self, region: &[u8]) -> Access {
        let covers = |name: &str| name == ANY || name.as_bytes() == region;
        let all = self.regions.iter().filter(|(name, _)| covers(name));
        all.fold(Access::LOCAL_WRITE, |sum, (_, access)| sum | *access)
    }
}

/// Ids from here on are those of the built-in handlers.
const FIRST_RESERVED: HandlerId = HandlerId::MAX - 6;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::server::handler::Execution;

    fn table() -> HandlerTable {
        let mut table = HandlerTable::default();
        for id in [1, 63, 64, 1032, 1033, FIRST_RESERVED - 1] {
            table.insert(id, Execution::Inline(Arc::new(|_, _| Ok(()))));
        }
        table.set_name(1032, "/a.B/C");
        table.set_name(1033, "/a.B/D");
        table.set_name(2000, "/a.B/Stream");
        table.exempt(63);
        table
    }

    fn granted(grant: Grant, peer: &Peer) -> Granted {
        let who = Who::Name("app".into());
        RightsTable::new(Rights::new().allow(who, grant), table()).of(peer)
    }

    #[test]
    fn a_client_has_what_its_rules_have_and_no_more() {
        let app = Peer::local().with_names(&["x", "App"]);
        let grant = Grant::new().call(64).call_named("/a.B/C").read("table");
        let may = granted(grant.clone(), &app);
        let all = 0..=HandlerId::MAX;
        let allowed: Vec<_> = all.filter(|id| may.may_call(*id)).collect();
        let reserved = [FIGURES - 6, FIGURES - 3, FIGURES - 2, FIGURES - 1];
        assert_eq!(allowed, [&[63, 64, 1032][..], &reserved].concat());
        let read = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert_eq!(may.access(b"table"), read);
        assert_eq!(may.access(b"tables"), Access::LOCAL_WRITE);

        let stranger = granted(grant, &Peer::local().with_names(&["other"]));
        assert!(!stranger.may_call(64) && stranger.may_call(63));
        assert_eq!(stranger.access(b"table"), Access::LOCAL_WRITE);

        let service = granted(Grant::new().call_named("/a.B/*"), &app);
        assert!([1032, 1033, 2000].iter().all(|id| service.may_call(*id)));
        assert!(!service.may_call(1) && !service.may_call(FIGURES));
        let everything = granted(Grant::new().call_named("*").write("*"), &app);
        assert!([1, 64, 2000, FIRST_RESERVED - 1, FIGURES]
            .iter()
            .all(|id| everything.may_call(*id)));
        assert!(!everything.may_call(CAPTURE));
        assert!(granted(Grant::new().call(CAPTURE), &app).may_call(CAPTURE));
        assert!(everything.access(b"x").contains(Access::REMOTE_WRITE));
    }

    #[test]
    fn rules_of_several_kinds_add_up() {
        let rights = Rights::new()
            .allow(Who::Anyone, Grant::new().call(1))
            .allow(Who::Secret, Grant::new().call(64).read("t"))
            .allow(Who::User(7), Grant::new().atomic("t"))
            .allow(Who::Certificate, Grant::new().call(1032));
        let table = RightsTable::new(rights, table());
        let peer = Peer::local().with_secret().with_user(Some(7));
        let may = table.of(&peer);
        assert!(may.may_call(1) && may.may_call(64) && !may.may_call(1032));
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        assert_eq!(may.access(b"t"), access);
        assert!(table.of(&Peer::local().with_names(&[])).may_call(1032));
    }

    #[test]
    fn slips_are_named_with_their_place() {
        let regions = [Region::new("table", 8)];
        let has = Has {
            secret: false,
            certificates: true,
        };
        let wrong = |who: &str, grant: Grant| {
            let rights = Rights::new().allow(who.parse().unwrap(), grant);
            match rights.validate(&table(), &regions, &has) {
                Err(ServeError::Setting(words)) => words,
                other => panic!("{other:?}"),
            }
        };
        let grant = Grant::new().call_named("/a.B/X").written_at("f.toml:7");
        let words = wrong("anyone", grant);
        assert_eq!(
            words,
            "f.toml:7: rights of `anyone`: the server has no method `/a.B/X`; it has: /a.B/C, /a.B/D, /a.B/Stream"
        );
        let words = wrong("name:x", Grant::new().call(5));
        assert!(words.ends_with("no handler 5"), "{words}");
        let words = wrong("user:5", Grant::new().write("table"));
        assert!(words.contains("`table` does not allow writing"), "{words}");
        assert!(wrong("anyone", Grant::new().read("t")).contains("no region `t`"));
        assert!(wrong("secret", Grant::new()).contains("no secret"));
    }

    #[test]
    fn words_for_who_come_back() {
        for words in ["anyone", "secret", "certificate", "name:a:b", "user:1000"] {
            assert_eq!(words.parse::<Who>().unwrap().to_string(), words);
        }
        for words in ["", "name:", "user:x", "nobody", "host:a"] {
            assert!(words.parse::<Who>().is_err(), "{words}");
        }
    }
}
