//! Opening what the roles keep, each after what it builds on: the event store, users, ports, MQTT,
//! the fleet, and then all that reads and writes the store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::{Clock, SystemClock};
use streams::EventStore;
use streams::kafka::Security;

use super::{Parts, Role};
use crate::cli::Failure;
use crate::config::Config;
use crate::forward;
use crate::http::{self, Ports};
use crate::mqtt_role::MqttRole;
use crate::tables::SqlTables;

/// Users and roles of the data folder, and who calls the management port.
type Management = (Arc<access::Access>, Arc<rest::Logins>);

/// What everything is opened by.
struct Opening<'a> {
    folder: &'a Path,
    config: &'a Config,
    roles: &'a BTreeSet<Role>,
    clock: Arc<dyn Clock>,
    logins: Option<Arc<rest::Logins>>,
}

impl Parts {
    pub(super) async fn open(
        folder: &Path,
        config: &Config,
        roles: &BTreeSet<Role>,
    ) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut opening = Opening {
            folder,
            config,
            roles,
            clock: clock.clone(),
            logins: None,
        };
        let streams = opening.streams().await?;
        let cluster = opening.cluster().await?;
        let security = opening.security().await?;
        let ports = {
            let (config, clock) = (config.clone(), clock.clone());
            let opened = blocking(move || Ports::open(&config, &clock)).await?;
            Arc::new(opened.map_err(cannot_open("the HTTP ports"))?)
        };
        let checked = config.rest.check_peers();
        checked.map_err(cannot_open("the way to other proxies"))?;
        let store = match (&streams, &cluster) {
            (Some(streams), _) => Some(streams.store()),
            (None, Some(cluster)) => Some(cluster.store()),
            (None, None) => None,
        };
        let policy = config.streams.access_policy().filter(|_| store.is_some());
        let access = opening.users(security.as_deref(), policy.is_some()).await?;
        if let Some(access) = &access {
            // Rights on it let tenants' members use the registry, which shows each its own alone.
            let topic = config.schemas.role.topic.parse::<streams::TopicName>();
            let topic = topic.map(|topic| topic.wire_name().to_owned());
            access.close_to_members(topic);
        }
        let management = opening.management(access.as_ref(), policy.as_ref(), &ports);
        let sign_in = http::SignIn::open(
            config.access.sign_in.clone(),
            config.fleet.http.tls.is_on(),
            ports.jwts.as_ref(),
            clock.clone(),
        );
        let sign_in = sign_in.map_err(|error| Failure(format!("cannot open sign-ins: {error}")))?;
        opening.logins = access.clone().zip(policy).map(|(access, policy)| {
            let jwts = ports.jwts.clone();
            rest::Logins::new(access, policy, jwts, clock.clone())
        });
        let mqtt = opening.mqtt(access, &ports).await?;
        let fleet = opening.fleet(store.as_ref(), management.as_ref()).await?;
        let mut parts = Parts {
            streams,
            cluster,
            security,
            store,
            registry: None,
            mqtt,
            fusion: None,
            rules: None,
            fleet,
            imports: None,
            logins: opening.logins.clone(),
            management,
            sign_in,
            ports,
            clock,
        };
        if let Some(store) = &parts.store {
            parts.registry = opening.registry(store)?;
            let mqtt = parts.mqtt.as_ref();
            parts.fusion = opening.fusion(store, mqtt).await?;
            parts.rules = opening.rules(store, mqtt)?;
            parts.imports = opening.imports(store).await?;
        }
        Ok(parts)
    }
}

impl Opening<'_> {
    fn runs(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether the event store is this process's own, not a cluster's.
    fn is_store_here(&self) -> bool {
        self.config.streams.kafka.servers().is_none()
    }

    /// The store as a part of the process sees it: under a name of its own, so that ACLs can keep
    /// it off.
    fn as_service(&self, store: &Arc<dyn EventStore>, name: &str) -> Arc<dyn EventStore> {
        match &self.logins {
            Some(logins) => streams::as_caller(store.clone(), logins.service(name)),
            None => store.clone(),
        }
    }

    async fn streams(&self) -> Result<Option<Arc<streams::Streams>>, Failure> {
        if !(self.runs(Role::Streams) && self.is_store_here()) {
            return Ok(None);
        }
        let dir = self.folder.join("streams");
        let (config, clock) = (self.config.streams.clone(), self.clock.clone());
        let (streams, recovery) = blocking(move || streams::Streams::open(&dir, config, clock))
            .await?
            .map_err(cannot_open("the event store"))?;
        if recovery.cut_bytes > 0 {
            let bytes = recovery.cut_bytes;
            tracing::info!(bytes, "cut a torn, unacknowledged end off");
        }
        if recovery.damaged_bytes > 0 {
            tracing::error!(
                bytes = recovery.damaged_bytes,
                "the event store's files have gone bad in the middle; what lay there is lost"
            );
        }
        Ok(Some(streams))
    }

    /// The Kafka cluster that holds the topics, where one is configured and a role needs it.
    async fn cluster(&self) -> Result<Option<Arc<streams::Cluster>>, Failure> {
        let with_store = [
            Role::Streams,
            Role::Rest,
            Role::Schemas,
            Role::Fusion,
            Role::Imports,
        ];
        let forwards = self.runs(Role::Fleet) && self.config.fleet.role.forward.is_on();
        let is_needed = forwards || with_store.into_iter().any(|role| self.runs(role));
        let Some(servers) = self.config.streams.kafka.servers().filter(|_| is_needed) else {
            return Ok(None);
        };
        let (dir, config) = (self.folder.join("streams"), self.config.streams.clone());
        let cluster = blocking(move || streams::Cluster::open(&dir, config))
            .await?
            .map_err(cannot_open("the event store"))?;
        look_for(&cluster, servers).await;
        Ok(Some(cluster))
    }

    /// Users and ACLs of the Kafka listener, and its certificates.
    async fn security(&self) -> Result<Option<Arc<Security>>, Failure> {
        if !(self.runs(Role::Streams) && self.is_store_here()) {
            return Ok(None);
        }
        let (dir, config) = (self.folder.join("access"), self.config.streams.clone());
        let opened = blocking(move || {
            let access = Arc::new(opened_access(&dir)?);
            Security::of(&config, access)
        });
        let opened = opened.await?;
        let security = opened.map_err(cannot_open("the Kafka listener's security"))?;
        Ok(Some(Arc::new(security)))
    }

    async fn access(&self) -> Result<Arc<access::Access>, Failure> {
        let dir = self.folder.join("access");
        let opened = blocking(move || opened_access(&dir)).await?;
        opened.map(Arc::new).map_err(cannot_open("users and ACLs"))
    }

    /// The folder's users and ACLs, opened once for all who ask callers who they are: the Kafka
    /// listener, the proxies where ACLs are followed (before a Kafka cluster too), and the
    /// management port. None where nobody does.
    async fn users(
        &self,
        security: Option<&Security>,
        follows_acls: bool,
    ) -> Result<Option<Arc<access::Access>>, Failure> {
        match security.and_then(|security| security.access.clone()) {
            Some(access) => Ok(Some(access)),
            None if follows_acls || self.config.access.management_logins => {
                self.access().await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Users, roles and logins of the management port, where its callers are asked who they are.
    fn management(
        &self,
        access: Option<&Arc<access::Access>>,
        policy: Option<&access::Policy>,
        ports: &Ports,
    ) -> Option<Management> {
        let config = &self.config.access;
        let access = access.filter(|_| policy.is_some() || config.management_logins)?;
        let (roles, jwts) = (config.roles.clone(), ports.jwts.clone());
        let (access, clock) = (access.clone(), self.clock.clone());
        let policy = policy.cloned();
        let logins = rest::Logins::with_roles(access.clone(), policy, roles, jwts, clock);
        Some((access, logins))
    }

    /// `known`: the users that another role opened already.
    async fn mqtt(
        &self,
        known: Option<Arc<access::Access>>,
        ports: &Ports,
    ) -> Result<Option<MqttRole>, Failure> {
        if !self.runs(Role::Mqtt) {
            return Ok(None);
        }
        let access = match known {
            Some(access) => access,
            None => self.access().await?,
        };
        let (dir, jwts) = (self.folder.to_owned(), ports.jwts.clone());
        let (config, clock) = (self.config.mqtt.clone(), self.clock.clone());
        let allows_remote = self.config.access.allow_remote;
        let open = move || MqttRole::open(&dir, &config, (access, jwts), allows_remote, &clock);
        blocking(open).await?.map(Some)
    }

    async fn fleet(
        &self,
        store: Option<&Arc<dyn EventStore>>,
        management: Option<&Management>,
    ) -> Result<Option<Arc<fleet::Fleet>>, Failure> {
        if !self.runs(Role::Fleet) {
            return Ok(None);
        }
        let config = &self.config.fleet;
        let settings = fleet::FleetConfig {
            is_tls: config.http.tls.is_on(),
            ..config.role.clone()
        };
        let dir = self.folder.join("fleet");
        let opened = fleet::Fleet::open(&dir, settings, self.clock.clone());
        let fleet = opened.await.map_err(cannot_open("the fleet"))?;
        if config.role.forward.is_on() {
            let store = store.ok_or_else(|| Failure(NOWHERE_TO_FORWARD.to_owned()))?;
            let topics = forward::StoreTopics::new(self.as_service(store, "fleet"));
            fleet.forward_to(Arc::new(topics));
        }
        if let Some((access, _)) = management {
            let shared = fleet.share_operators(access.clone()).await;
            shared.map_err(cannot_open("the users that the fleet's nodes share"))?;
        }
        Ok(Some(fleet))
    }

    /// The proxy looks schemas up by itself, on whatever port they are served.
    fn registry(
        &self,
        store: &Arc<dyn EventStore>,
    ) -> Result<Option<Arc<rest::SchemaRegistry>>, Failure> {
        if !(self.runs(Role::Schemas) || self.runs(Role::Rest)) {
            return Ok(None);
        }
        let store = self.as_service(store, "schemas");
        let opened = rest::SchemaRegistry::new(store, self.config.schemas.role.clone());
        opened.map(Some).map_err(cannot_open("the schema registry"))
    }

    async fn fusion(
        &self,
        store: &Arc<dyn EventStore>,
        mqtt: Option<&MqttRole>,
    ) -> Result<Option<Arc<fusion::deploy::Node>>, Failure> {
        if !self.runs(Role::Fusion) {
            return Ok(None);
        }
        let server = mqtt.map(|role| role.server.clone());
        let tables = SqlTables::open(&self.config.databases, self.folder);
        let around = fusion::Around {
            mqtt: server.clone(),
            bridges: mqtt.map(|role| role.bridges.clone()),
            tables: tables.map_err(cannot_open("the databases of statements"))?,
        };
        let dir = self.folder.join("fusion");
        let opened = fusion::Fusion::open_with(
            &dir,
            self.config.fusion.clone(),
            self.as_service(store, "statements"),
            around,
            self.clock.clone(),
        );
        let opened = opened.await.map_err(cannot_open("the statements"))?;
        let marks = self.folder.join("fusion-desired.json");
        let node = fusion::deploy::Node::open(opened, server, &marks);
        node.map(Some).map_err(cannot_open("the statements"))
    }

    fn rules(
        &self,
        store: &Arc<dyn EventStore>,
        mqtt: Option<&MqttRole>,
    ) -> Result<Option<Arc<fusion::rules::Rules>>, Failure> {
        if !self.runs(Role::Fusion) {
            return Ok(None);
        }
        let configured = &self.config.fusion.rules;
        let Some(role) = mqtt else {
            if !configured.is_empty() {
                tracing::warn!("fusion.rules need the role mqtt in the same process");
            }
            return Ok(None);
        };
        let opened = fusion::rules::Rules::open(
            &self.folder.join("fusion-rules.json"),
            role.bridges.installation(),
            configured,
            self.as_service(store, "rules"),
            role.server.clone(),
            self.clock.clone(),
        );
        opened.map(Some).map_err(cannot_open("the topic rules"))
    }

    async fn imports(
        &self,
        store: &Arc<dyn EventStore>,
    ) -> Result<Option<Arc<imports::Imports>>, Failure> {
        if !self.runs(Role::Imports) {
            return Ok(None);
        }
        let dir = self.folder.join("imports");
        let opened = imports::Imports::open(
            &dir,
            self.config.imports.clone(),
            self.as_service(store, "imports"),
            self.clock.clone(),
        );
        opened.await.map(Some).map_err(cannot_open("the imports"))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::because("opening a store failed", &error))
}

fn opened_access(dir: &Path) -> Result<access::Access, access::AccessError> {
    let access = access::Access::open(dir)?;
    streams::keep_acls(&access)?;
    Ok(access)
}

fn cannot_open<E: std::error::Error + 'static>(what: &str) -> impl FnOnce(E) -> Failure {
    let what = format!("cannot open {what}");
    move |error| Failure::because(&what, &error)
}

/// Waits a while for the cluster, which may be starting too: statements that are kept look for their
/// topics when they are opened. Then goes on without it.
async fn look_for(cluster: &streams::Cluster, servers: &str) {
    for _ in 0..CLUSTER_TRIES {
        match cluster.ping().await {
            Ok(brokers) => {
                tracing::info!(servers, brokers, "the Kafka cluster answers");
                return;
            }
            Err(error) => {
                let error = base::report(&error);
                tracing::warn!(servers, error, "the Kafka cluster does not answer yet");
            }
        }
    }
}

const NOWHERE_TO_FORWARD: &str = "\
fleet.forward names topics, and there is no event store: add the role streams to --role, or set
streams.kafka.bootstrap_servers to use a Kafka cluster";
/// Calls to a cluster before `up` goes on without it, each as long as `request_timeout`.
const CLUSTER_TRIES: u32 = 3;
