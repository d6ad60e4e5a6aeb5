//! Requests to other machines, and their answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dunlin_rpc::{Client, ClientBuilder};
use dunlin_verbs::thread;

use super::member::Member;
use super::notes::Note;
use super::PEER;
use crate::host::Host;
use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::types::MachineId;

/// Connections to other machines, and the machines with outstanding requests: at most one of each kind per machine,
/// each on a thread of its own, since a machine that was stopped does not answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    clients: Arc<Mutex<BTreeMap<(MachineId, u64), Client>>>,
    asked: Arc<Mutex<Vec<(MachineId, u64, PeerRequest)>>>,
}

impl Asking {
    pub(super) fn ask(
        &self,
        member: &Arc<Member>,
        client: &ClientBuilder,
        (machine, incarnation, address): (MachineId, u64, String),
        request: PeerRequest,
    ) {
        let question = (machine, incarnation, request);
        {
            let mut asked = thread::lock(&self.asked);
            if asked.contains(&question) {
                return;
            }
            asked.push(question.clone());
        }
        let host = Arc::clone(&member.host);
        let (asking, member, client) = (self.clone(), Arc::clone(member), client.clone());
        let ask = move || {
            let (machine, incarnation, request) = question.clone();
            let whom = (machine, incarnation, address.as_str());
            let answer = asking.call((&client, &*member.host), whom, &request);
            let mut asked = thread::lock(&asking.asked);
            asked.retain(|other| *other != question);
            drop(asked);
            if let Some(answer) = answer {
                member.notes.push(Note::Answer(machine, request, answer));
            }
        };
        // If no thread can be started, the request is repeated later.
        let _ = host.start("dunlin-ask", Box::new(ask));
    }

    fn call(
        &self,
        (client, host): (&ClientBuilder, &dyn Host),
        (machine, incarnation, address): (MachineId, u64, &str),
        request: &PeerRequest,
    ) -> Option<PeerAnswer> {
        let clients = || thread::lock(&self.clients);
        let known = clients().get(&(machine, incarnation)).cloned();
        let client = match known {
            Some(client) => client,
            None => {
                let made = host.connect(client.clone(), address).ok()?;
                clients().insert((machine, incarnation), made.clone());
                made
            }
        };
        let mut bytes = incarnation.to_le_bytes().to_vec();
        request.encode(&mut bytes);
        match client.call(PEER, &bytes) {
            Ok(answer) => PeerAnswer::decode(&answer).ok(),
            Err(error) => {
                tracing::debug!(%machine, %error, "no response");
                clients().remove(&(machine, incarnation));
                None
            }
        }
    }
}
