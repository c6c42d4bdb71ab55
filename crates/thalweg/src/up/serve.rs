//! What is served where once everything is open: each listener gets its protocol, and the
//! management port the routes of all roles, inside of what asks for rights, counts and audits.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use streams::EventStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Parts;
use super::listeners::Listeners;
use crate::config::Config;
use crate::http::{self, Ports};
use crate::tenants;

impl Parts {
    /// Serves every open port; `management` are the process's own routes.
    pub(super) fn serve(
        &self,
        listeners: Listeners,
        management: Router,
        config: &Config,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        self.serve_kafka(
            (listeners.streams, listeners.streams_local),
            config,
            tasks,
            shutdown,
        );
        if let Some(mqtt) = &self.mqtt {
            mqtt.serve(listeners.mqtt, tasks, shutdown);
        }
        if let (Some(listener), Some(store)) = (listeners.rest, &self.store) {
            tasks.spawn(self.serve_rest(listener, store, config, shutdown));
        }
        if let (Some(listener), Some(registry)) = (listeners.schemas, &self.registry) {
            let port = &self.ports.schemas;
            let (logins, rates) = (self.logins.clone(), port.rates.clone());
            let routes = rest::schema_routes(registry.clone(), logins, rates);
            let transport = port.transport();
            tasks.spawn(http::serve(listener, routes, transport, shutdown.clone()));
        }
        self.keep(tasks, shutdown);
        let management = self.guarded(self.managed(management, config), config);
        let port = &self.ports.management;
        // Where rates are kept, heartbeats count too.
        let fleet = self.fleet.clone().filter(|_| port.rates.is_none());
        let straight = fleet.map(|fleet| {
            let naming = config.fleet.http.tls.principal;
            http::Straight::Heartbeats(fleet::http::Straight::new(fleet), naming)
        });
        let routes = http::Routes {
            straight,
            ..management.into()
        };
        let (listener, transport) = (listeners.management, port.transport());
        tasks.spawn(http::serve(listener, routes, transport, shutdown.clone()));
    }

    fn serve_kafka(
        &self,
        (listener, local): (Option<TcpListener>, Option<TcpListener>),
        config: &Config,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        let (Some(streams), Some(security)) = (&self.streams, &self.security) else {
            return;
        };
        let without_logins = Arc::new(security.local(&config.streams));
        for (listener, security) in [(listener, security), (local, &without_logins)] {
            let Some(listener) = listener else { continue };
            tasks.spawn(streams::kafka::serve_secured(
                listener,
                streams.clone(),
                security.clone(),
                shutdown.clone(),
            ));
        }
    }

    /// What is looked after beside serving: tenants, certificates, the keys of issuers.
    fn keep(&self, tasks: &TaskTracker, shutdown: &CancellationToken) {
        if let Some(access) = self.access() {
            if let Some(streams) = &self.streams {
                let streams = Arc::clone(streams);
                tasks.spawn(streams.keep_collections(access.clone(), shutdown.clone()));
            }
            if let Some(cluster) = &self.cluster {
                let cluster = Arc::clone(cluster);
                tasks.spawn(cluster.keep_retentions(access.clone(), shutdown.clone()));
            }
            let (store, imports) = (self.store.clone(), self.imports.clone());
            let kept = tenants::keep(access.clone(), store, imports, shutdown.clone());
            tasks.spawn(kept);
        }
        let kafka_tls = self.security.as_ref().and_then(|s| s.tls.clone());
        let mqtt_tls = self.mqtt.as_ref().and_then(|mqtt| mqtt.tls.clone());
        let listeners_tls: Vec<_> = kafka_tls.into_iter().chain(mqtt_tls).collect();
        if !listeners_tls.is_empty() || self.ports.has_files() {
            let reload = reload_on_hangup(listeners_tls, self.ports.clone(), shutdown.clone());
            tasks.spawn(reload);
        }
        if let Some(jwts) = &self.ports.jwts {
            tasks.spawn(http::keep_keys(jwts.clone(), shutdown.clone()));
        }
        if let Some(fleet) = &self.fleet {
            let ports = self.ports.clone();
            fleet.watch_certificates(Box::new(move || ports.certificates()));
        }
    }

    /// The management APIs of all roles that run.
    fn managed(&self, mut routes: Router, config: &Config) -> Router {
        if let Some(access) = self.access() {
            routes = routes.merge(rest::access_management(access.clone()));
            let (store, clock) = (self.store.clone(), self.clock.clone());
            let imports = self.imports.clone().map(tenants::purge_imports);
            let of_tenants = rest::tenant_management(access.clone(), store, imports, clock);
            routes = routes.merge(of_tenants);
        } else if self.cluster.is_some() {
            routes = routes.merge(rest::access_elsewhere());
        }
        if let Some(mqtt) = &self.mqtt {
            routes = routes.merge(mqtt.routes());
        }
        let logins = self.management.as_ref().map(|(_, logins)| &**logins);
        if let Some(store) = &self.store {
            routes = routes.merge(rest::management(store.clone()));
            let (store, registry) = (store.clone(), self.registry.clone());
            routes = routes.merge(rest::records_management(store, registry, logins));
        }
        if let Some(registry) = &self.registry {
            routes = routes.merge(rest::schema_management(registry.clone(), logins));
        }
        if let Some(fusion) = &self.fusion {
            routes = routes.merge(fusion::http::routes(fusion.fusion().clone()));
            routes = routes.merge(fusion::deploy::routes(fusion.clone()));
        }
        if let Some(rules) = &self.rules {
            routes = routes.merge(fusion::rules::http::routes(rules.clone()));
        }
        if let Some(fleet) = &self.fleet {
            let of_fleet = fleet::http::routes(fleet.clone());
            let tls = &config.fleet.http.tls;
            routes = routes.merge(match tls.is_on() {
                true => http::with_certificates(of_fleet, tls.principal),
                false => of_fleet,
            });
        }
        if let Some(imports) = &self.imports {
            routes = routes.merge(imports::http::routes(imports.clone()));
        }
        routes
    }

    /// The management routes inside of, from the innermost: rights, the audit, rates, logins,
    /// sign-in by browser.
    fn guarded(&self, mut routes: Router, config: &Config) -> Router {
        let logins = self.management.as_ref().map(|(_, logins)| logins);
        let open = || openings(config, self.imports.as_ref());
        if let Some(logins) = logins {
            routes = rest::rights_asked(routes, logins.clone(), open());
        } else {
            routes = rest::nobody_asked(routes);
        }
        if let Some(fleet) = &self.fleet {
            routes = fleet::http::audited(routes, fleet.clone());
        }
        if let Some(rates) = &self.ports.management.rates {
            routes = rest::rate_limited(routes, rates.clone());
        }
        if let Some(logins) = logins {
            routes = rest::callers_known(routes, logins.clone(), open());
        }
        match &self.sign_in {
            Some(sign_in) => sign_in.surround(routes),
            None => routes.merge(http::SignIn::none()),
        }
    }

    /// The REST proxy, until the shutdown is done.
    fn serve_rest(
        &self,
        listener: TcpListener,
        store: &Arc<dyn EventStore>,
        config: &Config,
        shutdown: &CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        let port = &self.ports.rest;
        let settings = rest::RestConfig {
            is_tls: config.rest.http.tls.is_on(),
            peer_identity: own_certificate(config),
            own_name: port.own_name(),
            ..with_peer_address(&config.rest, &listener)
        };
        let (routes, handle) = rest::routes(
            store.clone(),
            settings,
            self.clock.clone(),
            self.logins.clone(),
            self.registry.clone(),
            port.rates.clone(),
        );
        let routes = http::Routes {
            straight: handle.straight().map(http::Straight::Records),
            ..routes.into()
        };
        let transport = port.transport();
        let shutdown = shutdown.clone();
        async move {
            let stopping = async {
                shutdown.cancelled().await;
                handle.end_streams();
            };
            let serving = http::serve(listener, routes, transport, shutdown.clone());
            tokio::join!(serving, stopping);
            handle.close().await;
        }
    }
}

/// The REST proxy's own certificate and its key, where it speaks TLS.
fn own_certificate(config: &Config) -> Option<(PathBuf, PathBuf)> {
    let tls = &config.rest.http.tls;
    tls.certificate.clone().zip(tls.key.clone())
}

/// The proxy's settings with the address at which the proxies on other machines find it.
fn with_peer_address(config: &rest::RestConfig, listener: &TcpListener) -> rest::RestConfig {
    let mut config = config.clone();
    if config.peer_address.is_none()
        && let Ok(bound) = listener.local_addr()
    {
        config.peer_address = Some(match bound.ip().is_unspecified() {
            false => bound.to_string(),
            true => {
                let machine = rustix::system::uname();
                let name = machine.nodename().to_string_lossy();
                format!("{name}:{}", bound.port())
            }
        });
    }
    config
}

/// What of the management port needs no login: what tells that the process lives, what agents
/// call, and the metrics where the configuration says so.
fn openings(config: &Config, imports: Option<&Arc<imports::Imports>>) -> rest::Openings {
    let mut paths = vec!["/health", http::EFM_HEALTH];
    if config.access.sign_in.client_id.is_some() {
        paths.extend(http::SignIn::OPEN);
    }
    if config.access.open_metrics {
        paths.extend(["/metrics", http::EFM_METRICS]);
    }
    rest::Openings {
        paths,
        prefixes: fleet::http::AGENT_PREFIXES.to_vec(),
        pages: vec!["/", "/console.js", "/console.css", "/api/v1/status"],
        judges: fleet::http::judges,
        owner_of_job: imports.cloned().map(tenants::owner_of_job),
    }
}

/// Reads certificates and keys again whenever the process gets SIGHUP.
async fn reload_on_hangup(
    listeners: Vec<Arc<access::Tls>>,
    ports: Arc<Ports>,
    shutdown: CancellationToken,
) {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::warn!(%error, "certificates cannot be read again: there is no SIGHUP");
            return;
        }
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = hangup.recv() => {}
        }
        let (listeners, ports) = (listeners.clone(), ports.clone());
        let reload = move || {
            // All are read, whichever fails.
            let reloaded: Vec<_> = listeners.iter().map(|tls| tls.reload()).collect();
            ports
                .reload()
                .and(reloaded.into_iter().collect::<Result<(), _>>())
        };
        match tokio::task::spawn_blocking(reload).await {
            Ok(Ok(())) => tracing::info!("certificates were read again"),
            Ok(Err(error)) => tracing::error!("an old certificate or key stays: {error}"),
            Err(error) => tracing::error!(%error, "reading certificates again broke off"),
        }
    }
}
