//! Every key, in the order in which people should read them.

use super::Key;
use super::key::{duration, every, flag, kind, number, secret, size, text};

/// Every key of a properties file; each is honoured, or it is said why not.
pub const KEYS: &[Key] = &[
    // The flow.
    text(
        "nifi.flow.configuration.file",
        "flow.file",
        "The flow definition, YAML or JSON.",
    ),
    Key::new(
        kind(
            "nifi.flow.configuration.class.name",
            "How the flow's format is told; both are told by the text itself.",
        )
        .default("adaptiveconfiguration")
        .allowed(&[
            "adaptiveconfiguration",
            "yamlconfiguration",
            "jsonconfiguration",
        ]),
        "flow.class",
    ),
    flag(
        "nifi.flow.configuration.encrypt",
        "flow.encrypt",
        "Whether the flow's file is encrypted as a whole.",
        "false",
    )
    .refused(
        "true",
        "seal the flow's secrets instead: `thalweg-agent encrypt`",
    ),
    flag(
        "nifi.flow.configuration.backup.on.update",
        "flow.backup_on_update",
        "Whether an update keeps the file of before.",
        "false",
    )
    .ignored("the flow's file is never written; an update lies in the data folder"),
    number(
        "nifi.flow.engine.threads",
        "engine.threads",
        "Threads of the pool.",
        "5",
    )
    .ignored("every task has a thread of its own, which sleeps until there is work"),
    duration(
        "nifi.flow.engine.event.driven.time.slice",
        "engine.event_driven_time_slice",
        "How long a session of an event-driven processor may span triggers, where its kind allows \
         it.",
        "500 millis",
    ),
    duration(
        "nifi.flow.engine.alert.period",
        "engine.alert_period",
        "How often long triggers are looked for.",
        "5 sec",
    )
    .ignored("`thalweg-agent status` shows which processors are at work"),
    duration(
        "nifi.administrative.yield.duration",
        "engine.administrative_yield",
        "Rest of a processor that panicked.",
        "30 sec",
    ),
    duration(
        "nifi.bored.yield.duration",
        "engine.bored_yield",
        "Rest of a processor without work.",
        "100 millis",
    )
    .ignored("a processor without work sleeps until work comes, and is rung then"),
    duration(
        "nifi.flowcontroller.drain.timeout",
        "engine.drain_timeout",
        "How long queues may flow out at the agent's end, with the sources stopped.",
        "0 sec",
    ),
    duration(
        "nifi.flowcontroller.graceful.shutdown.period",
        "engine.graceful_shutdown_period",
        "How long processors may go on with what they are doing when they are stopped.",
        "30 sec",
    ),
    text(
        "nifi.default.directory",
        "engine.home",
        "Folder that relative paths are in.",
    )
    .ignored("set the environment's MINIFI_HOME, or write whole paths"),
    text("nifi.version", "", "Version of MiNiFi that wrote the file.").ignored("it says nothing"),
    // Repositories.
    Key::new(
        kind(
            "nifi.flowfile.repository.class.name",
            "Where FlowFiles are kept: FlowFileRepository on the disk, VolatileFlowFileRepository \
             and NoOpRepository in memory alone.",
        )
        .default("FlowFileRepository"),
        "repositories.flow_files",
    ),
    Key::new(
        kind(
            "nifi.content.repository.class.name",
            "Where content is kept: DatabaseContentRepository with the FlowFiles in one journal, \
             FileSystemRepository in a journal of its own, VolatileContentRepository in memory, \
             NoOpRepository nowhere.",
        )
        .default("DatabaseContentRepository"),
        "repositories.content",
    ),
    Key::new(
        kind(
            "nifi.provenance.repository.class.name",
            "Where provenance is kept: ProvenanceRepository on the disk, \
             VolatileProvenanceRepository in memory, NoOpRepository nowhere.",
        )
        .default("NoOpRepository"),
        "repositories.provenance",
    ),
    text(
        "nifi.flowfile.repository.directory.default",
        "repositories.directory",
        "Folder of the repository, FlowFiles, content and provenance together; the data folder's \
         `repository` where it is not set.",
    ),
    text(
        "nifi.database.content.repository.directory.default",
        "repositories.content_directory",
        "Folder of the content.",
    )
    .ignored(TOGETHER),
    text(
        "nifi.provenance.repository.directory.default",
        "repositories.provenance_directory",
        "Folder of the provenance.",
    )
    .ignored(TOGETHER),
    duration(
        "nifi.provenance.repository.max.storage.time",
        "repositories.provenance_age_max",
        "Age at which provenance events go.",
        "1 MIN",
    ),
    size(
        "nifi.provenance.repository.max.storage.size",
        "repositories.provenance_bytes_max",
        "Bytes of provenance events.",
        "1 MB",
    ),
    flag(
        "nifi.content.repository.rocksdb.use.synchronous.writes",
        "repositories.synchronous_writes",
        "Whether commits are synced to the disk; without that they survive the process, not the \
         machine.",
        "true",
    ),
    number(
        "nifi.volatile.repository.options.flowfile.max.count",
        "repositories.volatile_flow_files_count_max",
        "FlowFiles in memory.",
        "10000",
    )
    .ignored("connections bound what is queued: max work queue size"),
    size(
        "nifi.volatile.repository.options.flowfile.max.bytes",
        "repositories.volatile_flow_files_bytes_max",
        "Bytes of FlowFiles in memory.",
        "0 B",
    )
    .ignored("connections bound what is queued: max work queue data size"),
    number(
        "nifi.volatile.repository.options.provenance.max.count",
        "repositories.volatile_provenance_count_max",
        "Blocks of provenance events in memory; a block is what one session did.",
        "10000",
    ),
    size(
        "nifi.volatile.repository.options.provenance.max.bytes",
        "repositories.volatile_provenance_bytes_max",
        "Bytes of provenance events in memory.",
        "10 MB",
    ),
    number(
        "nifi.volatile.repository.options.content.max.count",
        "repositories.volatile_content_count_max",
        "Pieces of content in memory.",
        "10000",
    ),
    size(
        "nifi.volatile.repository.options.content.max.bytes",
        "repositories.volatile_content_bytes_max",
        "Bytes of content in memory; who finds no room waits.",
        "64 MB",
    ),
    flag(
        "nifi.volatile.repository.options.content.minimal.locking",
        "repositories.minimal_locking",
        "Whether volatile content is locked as little as can be; either costs the same here.",
        "true",
    ),
    secret(
        "nifi.flowfile.repository.encryption.key",
        "repositories.encryption_key",
        "Key that seals what the repository writes: 64 hexadecimal digits, `file:PATH` or `env:NAME`.",
    ),
    secret(
        "nifi.flowfile.repository.encryption.keys.old",
        "repositories.encryption_keys_old",
        "Keys of before, with commas: they open what they sealed.",
    ),
    secret(
        "nifi.database.content.repository.encryption.key",
        "repositories.content_encryption_key",
        "Key of the content's encryption; where it is set it must be the repository's.",
    ),
    secret(
        "nifi.state.management.provider.local.encryption.key",
        "repositories.state_encryption_key",
        "Key of the states' encryption; where it is set it must be the repository's.",
    ),
    text(
        "nifi.flowfile.repository.rocksdb.compression",
        "",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    text(
        "nifi.content.repository.rocksdb.compression",
        "",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    text(
        "nifi.flowfile.repository.rocksdb.compaction.period",
        "",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    text(
        "nifi.database.content.repository.rocksdb.compaction.period",
        "",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    text(
        "nifi.flowfile.repository.rocksdb.read.verify.checksums",
        "",
        "RocksDB's.",
    )
    .ignored("every read is checked"),
    text(
        "nifi.content.repository.rocksdb.read.verify.checksums",
        "",
        "RocksDB's.",
    )
    .ignored("every read is checked"),
    text(
        "nifi.provenance.repository.rocksdb.read.verify.checksums",
        "",
        "RocksDB's.",
    )
    .ignored("every read is checked"),
    text(
        "nifi.state.storage.rocksdb.read.verify.checksums",
        "",
        "RocksDB's.",
    )
    .ignored("every read is checked"),
    text(
        "nifi.rocksdb.state.storage.read.verify.checksums",
        "",
        "RocksDB's.",
    )
    .ignored("every read is checked"),
    text(
        "nifi.default.internal.buffer.size",
        "",
        "Bytes that are copied at once.",
    )
    .ignored("content is not copied but shared"),
    text(
        "nifi.database.content.repository.purge.period",
        "",
        "When freed content goes.",
    )
    .ignored("freed content goes at once, never by a timer"),
    text(
        "nifi.database.content.repository.optimize.for.small.db.cache.size",
        "",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    text(
        "nifi.flowfile.repository.check.health",
        "",
        "Whether content is looked for at a start.",
    )
    .ignored("it is always known which content there is"),
    every("nifi.global.rocksdb.options.", "RocksDB's.").ignored(NO_ROCKS_DB),
    every("nifi.flowfile.repository.rocksdb.options.", "RocksDB's.").ignored(NO_ROCKS_DB),
    every("nifi.content.repository.rocksdb.options.", "RocksDB's.").ignored(NO_ROCKS_DB),
    every(
        "nifi.database.content.repository.rocksdb.options.",
        "RocksDB's.",
    )
    .ignored(NO_ROCKS_DB),
    every("nifi.provenance.repository.rocksdb.options.", "RocksDB's.").ignored(NO_ROCKS_DB),
    every("nifi.state.storage.rocksdb.options.", "RocksDB's.").ignored(NO_ROCKS_DB),
    // State.
    every(
        "nifi.state.management.provider.local",
        "Where states are kept.",
    )
    .ignored(STATE),
    every(
        "nifi.state.storage.local",
        "Where states are kept, by an older name.",
    )
    .ignored(STATE),
    // The disk.
    flag(
        "minifi.disk.space.watchdog.enable",
        "watchdog.enable",
        "Whether sources stop when the disk is nearly full.",
        "true",
    ),
    duration(
        "minifi.disk.space.watchdog.interval",
        "watchdog.interval",
        "How often free space is looked at.",
        "15 sec",
    ),
    size(
        "minifi.disk.space.watchdog.stop.threshold",
        "watchdog.stop_threshold",
        "Free bytes below which sources stop.",
        "100 MB",
    ),
    size(
        "minifi.disk.space.watchdog.restart.threshold",
        "watchdog.restart_threshold",
        "Free bytes from which on they start again.",
        "150 MB",
    ),
    // Security.
    number(
        "nifi.remote.input.socket.port",
        "site_to_site.port",
        "Port on which site-to-site peers reach the ports of the root group; 0 listens on none.",
        "0",
    ),
    number(
        "nifi.remote.input.http.port",
        "site_to_site.http_port",
        "Port on which peers reach them over HTTP; 0 listens on none.",
        "0",
    ),
    flag(
        "nifi.remote.input.secure",
        "security.remote_input_secure",
        "Whether these ports speak TLS with the agent's own certificate; with a CA certificate \
         peers must show theirs.",
        "false",
    ),
    text(
        "nifi.security.client.certificate",
        "security.certificate",
        "The agent's own certificate, PEM.",
    ),
    text(
        "nifi.security.client.private.key",
        "security.private_key",
        "Its key, PEM.",
    ),
    secret(
        "nifi.security.client.pass.phrase",
        "security.pass_phrase",
        "The key's passphrase, or a file that holds it.",
    ),
    text(
        "nifi.security.client.ca.certificate",
        "security.ca_certificate",
        "Those whom the agent believes, PEM.",
    ),
    flag(
        "nifi.security.use.system.cert.store",
        "security.use_system_cert_store",
        "Whether the system's certificates are believed too.",
        "false",
    ),
    flag(
        "nifi.security.need.ClientAuth",
        "security.need_client_auth",
        "Whether the agent shows its certificate.",
        "false",
    )
    .ignored("a certificate that is set is shown to whoever asks"),
    every("nifi.security.windows.", "Windows' certificates.").ignored("the agent runs on Linux"),
    flag(
        "nifi.openssl.fips.support.enable",
        "",
        "Whether FIPS is asked for.",
        "false",
    )
    .refused(
        "true",
        "TLS is rustls with ring, which has no FIPS certificate",
    ),
    text(
        "nifi.rest.api.user.name",
        "security.rest_user",
        "User at NiFi's REST API.",
    )
    .ignored("remote process groups are known by certificate"),
    secret(
        "nifi.rest.api.password",
        "security.rest_password",
        "The user's password.",
    )
    .ignored("remote process groups are known by certificate"),
    text(
        "nifi.sensitive.props.additional.keys",
        "security.additional_sensitive_keys",
        "Keys of this file that are secrets besides.",
    )
    .ignored("a value of any key may be sealed, and keys that name secrets are never shown"),
    secret(
        "nifi.bootstrap.sensitive.properties.key",
        "security.sensitive_key",
        "Opens sealed values of flows and settings, 64 hexadecimal digits; also in bootstrap.conf. \
         The data folder's `sensitive.key` where it is not set.",
    ),
    secret(
        "nifi.bootstrap.sensitive.key",
        "",
        "Opened sealed settings of MiNiFi C++; taken where the key above is not set.",
    ),
    // C2.
    flag(
        "nifi.c2.enable",
        "c2.enable",
        "Whether the control plane is called, where there is an address of one.",
        "true",
    ),
    text(
        "nifi.c2.rest.path.base",
        "c2.path_base",
        "What the addresses below begin with, where they name no host.",
    ),
    text("nifi.c2.rest.url", "c2.url", "Where heartbeats go."),
    text(
        "nifi.c2.rest.url.ack",
        "c2.url_ack",
        "Where acknowledgements go.",
    ),
    text(
        "nifi.c2.flow.base.url",
        "c2.flow_base_url",
        "What flows' addresses begin with.",
    ),
    text(
        "nifi.c2.agent.identifier",
        "c2.agent_identifier",
        "The agent's identifier.",
    ),
    text(
        "nifi.c2.agent.identifier.fallback",
        "c2.agent_identifier_fallback",
        "The agent's identifier, where none is set.",
    ),
    text(
        "nifi.c2.agent.class",
        "c2.agent_class",
        "The agent's class.",
    ),
    Key::new(
        kind(
            "nifi.c2.agent.heartbeat.period",
            "Time between heartbeats, a duration or milliseconds.",
        )
        .default("5 sec"),
        "c2.heartbeat_period",
    ),
    flag(
        "nifi.c2.full.heartbeat",
        "c2.full_heartbeat",
        "Whether every heartbeat brings the manifest.",
        "false",
    ),
    text(
        "nifi.c2.root.classes",
        "c2.root_classes",
        "What heartbeats hold: DeviceInfoNode, AgentInformation, FlowInformation, \
         AssetInformation, ConfigurationChecksums.",
    ),
    number(
        "nifi.c2.flow.info.processor.bulletin.limit",
        "c2.bulletins_max",
        "Bulletins in one heartbeat at most, the newest; the agent keeps 200.",
        "1000",
    ),
    Key::new(
        kind("nifi.c2.rest.request.encoding", "How requests are packed.")
            .default("none")
            .allowed(&["none", "gzip"]),
        "c2.request_encoding",
    ),
    flag(
        "nifi.c2.rest.heartbeat.minimize.updates",
        "c2.minimize_updates",
        "Whether what did not change is left out of heartbeats.",
        "false",
    ),
    duration(
        "nifi.c2.asset.download.timeout",
        "c2.asset_download_timeout",
        "Longest download of one asset.",
        "1 hour",
    ),
    Key::new(
        kind(
            "nifi.c2.agent.protocol.class",
            "How the control plane is spoken to.",
        )
        .default("RESTSender")
        .allowed(&["RESTSender"]),
        "",
    )
    .ignored("there is only REST"),
    text(
        "nifi.c2.rest.ssl.context.service",
        "",
        "TLS context of the calls.",
    )
    .refused_always("set nifi.security.client.* instead"),
    text(
        "nifi.c2.agent.heartbeat.reporter.classes",
        "",
        "Further ways of heartbeats.",
    )
    .refused_always("heartbeats go by REST alone"),
    text(
        "nifi.c2.agent.trigger.classes",
        "",
        "Further ways of updates.",
    )
    .refused_always("updates come by heartbeats alone"),
    text(
        "nifi.c2.file.watch",
        "",
        "File that is watched for a new flow.",
    )
    .refused_always("send the agent an update, or start it anew"),
    text(
        "nifi.c2.flow.id",
        "",
        "The flow's id, as MiNiFi C++ keeps it here.",
    )
    .ignored("the agent keeps it in its data folder"),
    text(
        "nifi.c2.flow.url",
        "",
        "The flow's address, as MiNiFi C++ keeps it here.",
    )
    .ignored("the agent keeps it in its data folder"),
    every(
        "nifi.c2.root.class.definitions",
        "Further parts of heartbeats.",
    )
    .ignored("metrics are part of FlowInformation, and of the metrics publisher"),
    every("nifi.c2.agent.coap.", "CoAP.").refused_always("heartbeats go by REST alone"),
    every("nifi.c2.mqtt.", "C2 over MQTT.").refused_always("heartbeats go by REST alone"),
    every("nifi.c2.rest.listener.", "A listener for C2.")
        .refused_always("the agent calls in; nobody calls it"),
    text(
        "nifi.asset.directory",
        "c2.asset_directory",
        "Folder of assets.",
    ),
    // Looking at it.
    flag(
        "controller.socket.enable",
        "controller_socket.enable",
        "Whether the controller's socket is open.",
        "false",
    )
    .refused("true", "ask the agent by `thalweg-agent status --data DIR`"),
    text(
        "controller.socket.host",
        "controller_socket.host",
        "Address of the socket.",
    )
    .ignored(NO_SOCKET),
    number(
        "controller.socket.port",
        "controller_socket.port",
        "Port of the socket.",
        "9998",
    )
    .ignored(NO_SOCKET),
    flag(
        "controller.socket.local.any.interface",
        "controller_socket.local_any_interface",
        "Whether the socket is open to all.",
        "false",
    )
    .ignored(NO_SOCKET),
    text(
        "controller.ssl.context.service",
        "",
        "TLS context of the socket.",
    )
    .ignored(NO_SOCKET),
    text(
        "nifi.metrics.publisher.class",
        "metrics.publisher",
        "Who publishes metrics: PrometheusMetricsPublisher, LogMetricsPublisher, with commas.",
    ),
    text(
        "nifi.metrics.publisher.agent.identifier",
        "metrics.agent_identifier",
        "The agent's name in metrics.",
    ),
    text(
        "nifi.metrics.publisher.metrics",
        "metrics.metrics",
        "Which metrics are published.",
    ),
    number(
        "nifi.metrics.publisher.PrometheusMetricsPublisher.port",
        "metrics.prometheus_port",
        "Where Prometheus asks.",
        "9936",
    ),
    text(
        "nifi.metrics.publisher.PrometheusMetricsPublisher.host",
        "metrics.prometheus_host",
        "Address that Prometheus asks at.",
    ),
    duration(
        "nifi.metrics.publisher.LogMetricsPublisher.logging.interval",
        "metrics.log_interval",
        "How often metrics are logged.",
        "30 sec",
    ),
    every("nifi.metrics.publisher.", "Further settings of publishers.")
        .refused_always("the publishers have no such setting"),
    every(
        "nifi.log.",
        "Where log lines go and which; also in minifi-log.properties.",
    ),
    // Extensions.
    text(
        "nifi.extensions.directory",
        "extensions.directory",
        "Folder of extensions, each in a folder of its own with an extension.json; they are \
         programs that the agent runs.",
    ),
    // What C++ has of its own.
    every("nifi.extension.path", "Libraries of MiNiFi C++.").ignored(NO_EXTENSIONS),
    every("nifi.python.", "Python processors.").ignored(NO_EXTENSIONS),
    every("nifi.framework.dir", "The Java framework.").ignored(NO_EXTENSIONS),
    every("nifi.jvm.options", "The Java machine.").ignored(NO_EXTENSIONS),
    every("nifi.nar.", "Java's archives.").ignored(NO_EXTENSIONS),
    every("nifi.server.", "NiFi's own server.").ignored("the agent has none"),
    every("nifi.https.", "TLS by an old name.")
        .refused_always("use nifi.security.client.*, whose names are the same otherwise"),
];

const TOGETHER: &str =
    "everything of a session is committed together, in the FlowFile repository's folder";

const NO_ROCKS_DB: &str = "the repositories are journals of the agent's own, not RocksDB";

const STATE: &str = "states are in the repository, durable with the FlowFiles they belong to";

const NO_SOCKET: &str = "there is no such socket; use `thalweg-agent status --data DIR`";

const NO_EXTENSIONS: &str = "the agent is one binary and loads nothing of MiNiFi's";
