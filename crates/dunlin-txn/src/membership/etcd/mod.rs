//! The membership of machines on any hosts, in etcd (version 3.4 or later), through the JSON gateway of its members.
//! Plain HTTP: make etcd reachable only for clients that may change the membership.
//!
//! The configuration is one key, and its revision that of the key's last change. A machine is a key attached to a lease
//! of etcd, with which it is deleted; it is only put where there was none, so a life whose lease has ended gets no
//! other. Everything is read in one range request, which is an atomic snapshot and linearizable. To replace the
//! configuration, one transaction compares its revision, checks that the machines to be left out have no key, and puts
//! the next one.
//!
//! etcd counts a lease, in whole seconds, from when it receives the request, and never ends one early: the machine
//! counts from before the request, so it stops first, whichever member leads etcd meanwhile.

mod gateway;

use std::time::Duration;

use serde_json::{json, Value as Json};

use self::gateway::{bytes_of, encoded, number_of, Gateway, GatewayError, NOT_FOUND};
use super::{Configuration, Membership, MembershipError, Observed, Registration};
use crate::types::MachineId;

/// Time that one member of etcd may take to answer before another is asked.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// A membership in etcd.
#[derive(Debug)]
pub struct EtcdMembership {
    gateway: Gateway,
    /// Prefix of all keys.
    prefix: String,
    lease: Option<Lease>,
}

/// The lease of this machine.
#[derive(Debug)]
struct Lease {
    id: u64,
    /// etcd's record of the machine; `None` until its key exists.
    known: Option<Registration>,
}

impl EtcdMembership {
    /// Opens the membership of the database of this name, in the etcd cluster with these members (`HOST:PORT`).
    ///
    /// # Errors
    /// When no member is given, or the name is empty or contains a slash.
    pub fn open<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        name: &str,
    ) -> Result<Self, MembershipError> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if endpoints.is_empty() || endpoints.iter().any(String::is_empty) {
            return Err(failed("specify the members of etcd, each as HOST:PORT"));
        }
        if name.is_empty() || name.contains('/') {
            return Err(failed("specify a name without a slash for the database"));
        }
        Ok(Self {
            gateway: Gateway::new(endpoints, ANSWER_WITHIN),
            prefix: format!("dunlin/{name}/"),
            lease: None,
        })
    }

    fn configuration_key(&self) -> String {
        format!("{}configuration", self.prefix)
    }

    fn machine_key(&self, machine: MachineId, incarnation: u64) -> String {
        format!("{}machine/{}/{incarnation:016x}", self.prefix, machine.0)
    }

    /// Begins the machine's lease.
    fn grant(&mut self, lease: Duration) -> Result<u64, MembershipError> {
        let seconds = lease.as_secs_f64().ceil() as u64;
        let granted = self
            .gateway
            .ask("lease/grant", &json!({ "TTL": seconds.to_string() }));
        let granted = granted.map_err(|error| failed(&error))?;
        match number_of(&granted, "ID") {
            Some(id) if id > 0 => Ok(id),
            _ => Err(failed("etcd returned a lease without an id")),
        }
    }

    fn keep_alive(&mut self, id: u64) -> Result<(), MembershipError> {
        let asked = self
            .gateway
            .ask("lease/keepalive", &json!({ "ID": id.to_string() }));
        let kept = asked.map_err(|error| failed(&error))?;
        let left = kept
            .get("result")
            .and_then(|result| number_of(result, "TTL"));
        match left {
            Some(1..) => Ok(()),
            _ => Err(ended("the lease has expired in etcd")),
        }
    }

    /// Puts the machine's key if it does not exist or belongs to this lease.
    fn put(&mut self, registration: &Registration, id: u64) -> Result<(), MembershipError> {
        let key = self.machine_key(registration.machine, registration.incarnation);
        let key = encoded(key.as_bytes());
        let (whole, succeeds) = (registration.whole, registration.succeeds);
        let mut value = vec![u8::from(whole), u8::from(succeeds.is_some())];
        value.extend_from_slice(&succeeds.unwrap_or_default().to_le_bytes());
        value.extend(registration.address.as_bytes());
        let value = encoded(&value);
        let put = json!({ "request_put": { "key": key, "value": value, "lease": id.to_string() } });
        let fresh = json!({ "key": key, "target": "CREATE", "create_revision": "0" });
        let mine = json!({ "key": key, "target": "LEASE", "lease": id.to_string() });
        for compare in [fresh, mine] {
            if self.transact(&[compare], &put)? {
                return Ok(());
            }
        }
        Err(ended(
            "the machine's place in etcd is taken by another process",
        ))
    }

    /// Executes a transaction with one change. Returns whether all comparisons succeeded, and so the change was made.
    fn transact(&mut self, compare: &[Json], change: &Json) -> Result<bool, MembershipError> {
        let request = json!({ "compare": compare, "success": [change] });
        match self.gateway.ask("kv/txn", &request) {
            Ok(answer) => Ok(answer.get("succeeded").and_then(Json::as_bool) == Some(true)),
            // The lease has ended.
            Err(GatewayError::Refused {
                code: NOT_FOUND,
                why,
            }) => Err(ended(&why)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Reads all keys, at one moment.
    fn observe(&mut self) -> Result<Observed, MembershipError> {
        let mut end = self.prefix.clone().into_bytes();
        // The end of the range: the character after the final slash.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let key = encoded(self.prefix.as_bytes());
        let request = json!({ "key": key, "range_end": encoded(&end) });
        let found = self.gateway.ask("kv/range", &request);
        let found = found.map_err(|error| failed(&error))?;
        let mut observed = Observed::default();
        for one in found
            .get("kvs")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
        {
            let unknown = || failed("malformed key of the database");
            let key = bytes_of(one, "key").ok_or_else(unknown)?;
            let value = bytes_of(one, "value").unwrap_or_default();
            let key = String::from_utf8_lossy(&key);
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            if name == "configuration" {
                let of = Configuration::decode(&value).map_err(|error| failed(&error))?;
                let revision = number_of(one, "mod_revision").ok_or_else(unknown)?;
                observed.configuration = Some((revision, of));
            } else {
                observed
                    .alive
                    .push(machine(name, &value).ok_or_else(unknown)?);
            }
        }
        observed
            .alive
            .sort_by_key(|one| (one.machine, one.incarnation));
        Ok(observed)
    }
}

impl Membership for EtcdMembership {
    fn beat(
        &mut self,
        registration: &Registration,
        lease: Duration,
    ) -> Result<Observed, MembershipError> {
        let id = match &self.lease {
            Some(lease) => {
                let id = lease.id;
                self.keep_alive(id)?;
                id
            }
            None => {
                let id = self.grant(lease)?;
                self.lease = Some(Lease { id, known: None });
                id
            }
        };
        let known = self.lease.as_ref().and_then(|lease| lease.known.as_ref());
        if known != Some(registration) {
            self.put(registration, id)?;
            self.lease = Some(Lease {
                id,
                known: Some(registration.clone()),
            });
        }
        self.observe()
    }

    fn look(&mut self) -> Result<Observed, MembershipError> {
        self.observe()
    }

    fn replace(
        &mut self,
        revision: u64,
        next: &Configuration,
        absent: &[(MachineId, u64)],
    ) -> Result<bool, MembershipError> {
        let key = encoded(self.configuration_key().as_bytes());
        let mut compare = vec![json!({
            "key": key, "target": "MOD", "mod_revision": revision.to_string(),
        })];
        for (machine, incarnation) in absent {
            let key = self.machine_key(*machine, *incarnation);
            let key = encoded(key.as_bytes());
            compare.push(json!({ "key": key, "target": "CREATE", "create_revision": "0" }));
        }
        let value = encoded(&next.encode());
        let put = json!({ "request_put": { "key": key, "value": value } });
        self.transact(&compare, &put)
    }
}

/// Decodes the machine in a key and its value.
fn machine(name: &str, value: &[u8]) -> Option<Registration> {
    let (number, incarnation) = name.strip_prefix("machine/")?.split_once('/')?;
    let ([whole, succeeds], value) = value.split_first_chunk::<2>()?;
    let (life, address) = value.split_first_chunk::<8>()?;
    Some(Registration {
        machine: MachineId(number.parse().ok()?),
        incarnation: u64::from_str_radix(incarnation, 16).ok()?,
        address: String::from_utf8_lossy(address).into_owned(),
        whole: *whole == 1,
        succeeds: (*succeeds == 1).then_some(u64::from_le_bytes(*life)),
    })
}

fn failed(why: &(impl std::fmt::Display + ?Sized)) -> MembershipError {
    MembershipError {
        why: why.to_string(),
        is_final: false,
    }
}

/// The error of a lease that has ended and cannot be renewed.
fn ended(why: &str) -> MembershipError {
    MembershipError {
        is_final: true,
        ..failed(why)
    }
}
