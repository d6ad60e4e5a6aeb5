//! Starting a server: checks its settings, opens its devices, binds its port, and starts its threads.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use dunlin_bootstrap::{Acceptor, AcceptorConfig, ServerTls, StopHandle};
use dunlin_verbs::process::Owned;
use dunlin_verbs::{Device, VerbsError};

use super::callbacks::{CallableClients, CallbackServer};
use super::connection_ids::ConnectionIds;
use super::handler::Execution;
use super::pacing::{self, Follower};
use super::reports::{self, Reports};
use super::rights::{Has, RightsTable};
use super::service::ServiceSetup;
use super::services::NamedService;
use super::{
    capture, figures, notifications, LocalAcceptor, LocalServer, RunningServer, ServerBuilder,
    ServerObserver, FIGURES,
};
use crate::call::callbacks::CALLBACKS;
use crate::call::captured::CAPTURE;
use crate::call::notify::NOTIFY;
use crate::client::{Client, REPORT};
use crate::devices;
use crate::error::ServeError;
use crate::fabric::{self, DeviceFabric, Fabric, Fabrics};
use crate::identity::Identity;

impl ServerBuilder {
    /// As [`ServerBuilder::serve`], on this address.
    ///
    /// # Errors
    /// As for [`ServerBuilder::serve`], or if the address is malformed.
    pub fn serve_at(mut self, address: &str) -> Result<RunningServer, ServeError> {
        self.address = Some(address.parse()?);
        self.serve()
    }

    /// Binds the port and starts the threads.
    ///
    /// # Errors
    /// If the port is in use, a setting is out of range, or no device can be used.
    pub fn serve(mut self) -> Result<RunningServer, ServeError> {
        self.validate()?;
        let Some(address) = &self.address else {
            let words = "this server has no address: bind one, or call serve_on with a device";
            return Err(ServeError::Setting(words.into()));
        };
        // If it is bound to one address, it serves on the interface with that address; if bound to all, on the
        // interface by which each client arrives.
        let bound = self.address.as_ref();
        let bound = bound.and_then(|address| address.host().parse::<IpAddr>().ok());
        let local = bound.filter(|ip| !ip.is_unspecified() && !ip.is_loopback());
        let route = devices::Route {
            local,
            remote: None,
        };
        let only = self.device.as_deref();
        let fabrics = fabric::fabrics(only, route, devices::Kinds::All).map_err(|available| {
            ServeError::NoDevice {
                asked: self.device.clone().unwrap_or_default(),
                available,
            }
        })?;
        let capabilities = fabric::capabilities(&fabrics)?;
        let config = AcceptorConfig {
            secret: self.secret.clone(),
            tls: self.tls.clone(),
            capabilities,
            device_at: Some(devices::at),
            handshake_timeout: self.handshake_timeout,
            ..AcceptorConfig::default()
        };
        let acceptor = Arc::new(Acceptor::bind(address, config)?);
        let observed = Arc::new(OnceLock::new());
        let reports = Reports::new(self.max_connections);
        if self.shows_figures {
            let asked = figures::handler(Arc::clone(&observed));
            self.handlers.reserve(FIGURES, asked);
            let told = reports::handler(Arc::clone(&reports));
            self.handlers.reserve(REPORT, told);
        }
        let limits = (self.max_connections, self.most_active);
        let follower = match (self.pace.clone(), self.follows.take()) {
            (Some(pace), Some(server)) => Some((pace, server, self.secret.clone())),
            _ => None,
        };
        let rights = self.rights_table();
        let callable = self.callable.clone();
        let setup = self.setup();
        let identity = setup.identity;
        let services = fabrics
            .iter()
            .map(|fabric| {
                let name = fabric.attributes().name.clone();
                let service = fabric.serve(Arc::clone(&setup))?;
                Ok(NamedService::new(name, service))
            })
            .collect::<Result<Vec<_>, ServeError>>()?;
        let local_acceptor = LocalAcceptor::new(identity, services, rights, callable.clone());
        if let Some(callable) = callable {
            let find = move |name: &str| find_fabric(&fabrics, name);
            belong(&callable, identity, find)?;
        }
        let observer = ServerObserver::new(&acceptor, &local_acceptor, reports, limits);
        let observer = observed.get_or_init(|| observer).clone();
        let stop = StopHandle::new()?;
        let thread = std::thread::Builder::new()
            .name("dunlin-accept".into())
            .spawn({
                let (acceptor, local_acceptor, stop) =
                    (Arc::clone(&acceptor), local_acceptor.clone(), stop.clone());
                move || {
                    let opened =
                        acceptor.run(&stop, |request, peer| local_acceptor.open(&request, peer));
                    if let Err(error) = opened {
                        tracing::error!(%error, "the server stopped accepting clients");
                    }
                }
            })?;
        let mut running = RunningServer {
            follower: Owned::new(None),
            acceptor,
            local_acceptor,
            observer,
            stop,
            thread: Owned::new(Some(thread)),
        };
        if let Some((pace, server, secret)) = follower {
            *running.follower = Some(Follower::start(pace, server, secret)?);
        }
        Ok(running)
    }

    /// Serves over a device that the caller has opened, without a port: clients of this process connect through the
    /// server's [`LocalAcceptor`]. This is how servers run on simulated hosts, where pollers and workers are threads of
    /// the simulated cores. Flor over the device is served as well, from its first client on. A server whose
    /// [`ServerBuilder::device`] is one of Flor's (`flor-…`) serves over Flor only, and its regions are there.
    ///
    /// # Errors
    /// If a setting is out of range, or the device fails.
    pub fn serve_on<D: Device>(mut self, device: D) -> Result<LocalServer, ServeError> {
        self.validate()?;
        if self.follows.is_some() {
            let words =
                "follow: a server without a port does not start a thread for it: call Pace::synchronize yourself";
            return Err(ServeError::Setting(words.into()));
        }
        let name = device.attributes().name.clone();
        let of_flor = devices::Kinds::Flor.name(&name);
        let flor_alone = self.device.as_deref().is_some_and(devices::is_flor);
        let over = device.clone();
        let rights = self.rights_table();
        let callable = self.callable.clone();
        let setup = self.setup();
        let identity = setup.identity;
        let mut services = Vec::new();
        if of_flor == name {
            services.push(NamedService::new(name, DeviceFabric(device).serve(setup)?));
        } else if flor_alone {
            let flor = devices::flor_over(&device)?;
            services.push(NamedService::new(of_flor, DeviceFabric(flor).serve(setup)?));
        } else {
            let (below, setup_of_flor) = (device.clone(), Arc::clone(&setup));
            services.push(NamedService::new(name, DeviceFabric(device).serve(setup)?));
            let start = move || DeviceFabric(devices::flor_over(&below)?).serve(setup_of_flor);
            services.push(NamedService::on_demand(of_flor, start));
        }
        let acceptor = LocalAcceptor::new(identity, services, rights, callable.clone());
        if let Some(callable) = callable {
            let find = move |name: &str| fabric::fabric_on(&over, devices::is_flor(name));
            belong(&callable, identity, find)?;
        }
        Ok(LocalServer::new(acceptor))
    }

    /// Serves the server that this client is connected to: from now on that server may call the handlers and attach the
    /// regions of this one, provided that its list of such clients has room ([`ServerBuilder::callable_clients`]). No
    /// port is needed: the client's connections suffice, so this process need not be reachable. Rights apply to the
    /// server that the client is connected to, as far as its certificate, the secret and the kernel have established
    /// its identity. Start with [`crate::Server::unbound`]. A client has one such server at a time.
    ///
    /// # Errors
    /// [`ServeError::Callbacks`] if the server does not call this client, [`ServeError::Setting`] if something is set
    /// that the client's connection has already determined or if the client's
    /// [`max_outstanding`](crate::ChannelConfig::max_outstanding) is below 3, and as for [`ServerBuilder::serve`].
    pub fn serve_to(mut self, client: &Client) -> Result<CallbackServer, ServeError> {
        let settled = [
            ("an address", self.address.is_some()),
            ("a device", self.device.is_some()),
            ("a secret", self.secret.is_some()),
            ("a certificate", self.tls.is_some()),
            ("a time server", self.follows.is_some()),
            ("clients that it calls", self.callable.is_some()),
        ];
        if let Some((what, _)) = settled.into_iter().find(|(_, is_set)| *is_set) {
            let words =
                format!("serve_to: {what} is set, but the client's connection determines it: leave it unset");
            return Err(ServeError::Setting(words));
        }
        let end = client.other_end().map_err(ServeError::Callbacks)?;
        self.validate_for(&Has {
            secret: end.by_secret,
            certificates: end.by_certificate,
        })?;
        let rights = self.rights_table();
        let setup = self.setup();
        let identity = setup.identity;
        let device = end.fabric.attributes().name.clone();
        let services = vec![NamedService::new(device.clone(), end.fabric.serve(setup)?)];
        let acceptor = LocalAcceptor::new(identity, services, rights, None);
        CallbackServer::start(client, acceptor, (device, end.peer))
    }

    fn rights_table(&mut self) -> Option<Arc<RightsTable>> {
        let rights = self.rights.take()?;
        Some(RightsTable::new(rights, self.handlers.clone()))
    }

    fn setup(mut self) -> Arc<ServiceSetup> {
        if self.allows_capture {
            let tap = capture::Tap::new();
            self.handlers
                .wrap(|execution, name| capture::observe(execution, &tap, name));
            self.handlers.reserve(CAPTURE, capture::handler(tap));
        }
        if !self.regions.is_empty() {
            let take = notifications::handler(self.regions.clone());
            self.handlers.reserve(NOTIFY, take);
        }
        if let Some(callable) = self.callable {
            let take = move |request, responder| callable.take(&request, responder);
            let take = Execution::Deferred(Arc::new(take));
            self.handlers.reserve(CALLBACKS, take);
        }
        if let Some(pace) = &self.pace {
            self.handlers
                .reserve(pacing::TIME, pacing::handler(pace.clone()));
        }
        Arc::new(ServiceSetup {
            identity: Identity::new(),
            ids: ConnectionIds::default(),
            handlers: self.handlers,
            channel: self.channel,
            pollers: self.pollers,
            workers: self.workers,
            executor: self.executor,
            tasks: self.tasks,
            max_connections: self.max_connections,
            affinity: self.affinity,
            most_active: self.most_active,
            datagrams: self.datagrams,
            grouping: self.grouping,
            pace: self.pace,
            regions: self.regions,
        })
    }

    fn validate(&mut self) -> Result<(), ServeError> {
        self.validate_for(&Has {
            secret: self.secret.is_some(),
            certificates: self.tls.as_ref().is_some_and(ServerTls::asks_clients),
        })
    }

    fn validate_for(&mut self, has: &Has) -> Result<(), ServeError> {
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        self.channel.validate().map_err(ServeError::Setting)?;
        self.grouping.validate().map_err(ServeError::Setting)?;
        match &self.pace {
            Some(pace) => self.grouping.validate_pace(pace),
            None if self.follows.is_some() => {
                Err("follow: the server has no pace: set one".to_owned())
            }
            None => Ok(()),
        }
        .map_err(ServeError::Setting)?;
        for (name, count) in [("pollers", self.pollers), ("workers", self.workers)] {
            if count == 0 || count > 1024 {
                let words = format!("{name} is {count}: it must be from 1 to 1024");
                return Err(ServeError::Setting(words));
            }
        }
        for (index, region) in self.regions.iter().enumerate() {
            if let Some(error) = region.refuse(&self.regions[..index]) {
                return Err(error);
            }
        }
        if let Some(rights) = &self.rights {
            rights.validate(&self.handlers, &self.regions, has)?;
        }
        if self
            .callable
            .as_ref()
            .is_some_and(CallableClients::is_taken)
        {
            return Err(ServeError::Setting(OTHER_LIST.to_owned()));
        }
        if self.most_active == 0 || self.most_active > 1 << 16 {
            let words = format!(
                "max_active_queue_pairs is {}: it must be from 1 to 65536",
                self.most_active
            );
            return Err(ServeError::Setting(words));
        }
        Ok(())
    }
}

/// Error for a list of clients that belongs to another server.
const OTHER_LIST: &str =
    "callable_clients: the list belongs to another server: each server needs its own";

/// Makes this the server's list of clients that it calls.
fn belong(
    callable: &CallableClients,
    server: Identity,
    devices: impl Fn(&str) -> Result<Arc<dyn Fabric>, VerbsError> + Send + Sync + 'static,
) -> Result<(), ServeError> {
    match callable.belong(server.number(), Box::new(devices)) {
        true => Ok(()),
        false => Err(ServeError::Setting(OTHER_LIST.to_owned())),
    }
}

/// Finds the device of this name among a server's.
fn find_fabric(fabrics: &Fabrics, name: &str) -> Result<Arc<dyn Fabric>, VerbsError> {
    let found = fabrics
        .iter()
        .find(|fabric| fabric.attributes().name == name);
    found
        .cloned()
        .ok_or_else(|| VerbsError::Peer(format!("the server has no device '{name}'")))
}
