//! Files of settings, and what they come to.

use std::time::Duration;

use super::*;
use crate::limits::CONFIGURATION_BYTES_MAX;
use crate::repository::{ContentKind, FlowFileKind, ProvenanceKind};

/// Settings of one properties file.
fn read(text: &str) -> Result<Configuration, String> {
    let dir = tempfile::tempdir().unwrap();
    let properties = dir.path().join("minifi.properties");
    std::fs::write(&properties, text).unwrap();
    let sources = Sources {
        properties: Some(properties),
        ..Sources::default()
    };
    Configuration::read(&sources, dir.path()).map_err(|error| error.to_string())
}

#[test]
fn the_table_has_each_key_once_and_its_defaults_can_be() {
    let mut names: Vec<&str> = KEYS.iter().map(|key| key.kind.name).collect();
    names.extend(
        KEYS.iter()
            .map(|key| key.toml)
            .filter(|toml| !toml.is_empty()),
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands twice");
    for key in KEYS {
        assert!(!key.kind.description.is_empty());
        if let Some(default) = key.kind.default {
            let checked = key.kind.check(default);
            checked.unwrap_or_else(|error| panic!("{}: {error}", key.kind.name));
        }
    }
}

#[test]
fn every_documented_key_is_in_the_table() {
    let keys = include_str!("../../tests/properties/documented.txt");
    let missing: Vec<&str> = keys
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && find(line).is_none())
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn class_names_choose_repositories_in_any_case() {
    let all = |text: &str| {
        let made = read(text).unwrap_or_else(|error| panic!("{error}"));
        made.repository().unwrap()
    };
    let default = all("");
    assert_eq!(default.flow_files, FlowFileKind::Disk);
    assert_eq!(default.content, ContentKind::Database);
    assert_eq!(default.provenance, ProvenanceKind::None);
    assert!(default.is_synced);
    let other = all(
        "nifi.flowfile.repository.class.name=volatileflowfilerepository
nifi.content.repository.class.name=VOLATILEcontentRepository
nifi.volatile.repository.options.content.max.count=500000
nifi.volatile.repository.options.content.max.bytes=1023999999
nifi.volatile.repository.options.content.minimal.locking=false
nifi.provenance.repository.class.name=org.apache.nifi.ProvenanceRepository
nifi.provenance.repository.max.storage.time=2 days
nifi.provenance.repository.max.storage.size=10 GB
nifi.content.repository.rocksdb.use.synchronous.writes=false",
    );
    assert_eq!(other.flow_files, FlowFileKind::Volatile);
    let (bytes_max, count_max) = (1_023_999_999, 500_000);
    assert_eq!(
        other.content,
        ContentKind::Volatile {
            bytes_max,
            count_max
        }
    );
    let (bytes_max, age_max) = (10 << 30, Duration::from_secs(2 * 86_400));
    assert_eq!(
        other.provenance,
        ProvenanceKind::Disk { bytes_max, age_max }
    );
    assert!(!other.is_synced);
    for (text, kind) in [
        ("FileSystemRepository", ContentKind::FileSystem),
        ("DatabaseContentRepository", ContentKind::Database),
        ("NoOpRepository", ContentKind::None),
    ] {
        let text = format!("nifi.content.repository.class.name={text}");
        assert_eq!(all(&text).content, kind);
    }
    let memory = all(
        "nifi.provenance.repository.class.name=VolatileProvenanceRepository
nifi.volatile.repository.options.provenance.max.bytes=1 MB
nifi.volatile.repository.options.provenance.max.count=7",
    );
    let (bytes_max, count_max) = (1 << 20, 7);
    assert_eq!(
        memory.provenance,
        ProvenanceKind::Volatile {
            bytes_max,
            count_max
        }
    );
}

#[test]
fn every_mistake_is_told_with_file_and_line() {
    let error = read(
        "# a comment
nifi.flow.configuration.fiel=x
nifi.administrative.yield.duration=soon
nonsense
nifi.content.repository.rocksdb.use.synchronous.writes=maybe
nifi.c2.file.watch=flow.yml
controller.socket.enable=true
nifi.c2.mqtt.heartbeat.topic=x",
    )
    .unwrap_err();
    for part in [
        "line 2: there is no key 'nifi.flow.configuration.fiel'; did you mean 'nifi.flow.configuration.file'?",
        "line 3: nifi.administrative.yield.duration: 'soon' is no duration",
        "line 4: this is no key=value",
        "line 5: nifi.content.repository.rocksdb.use.synchronous.writes: 'maybe' is no true or",
        "line 6: nifi.c2.file.watch is not supported",
        "line 7: controller.socket.enable=true is not supported: ask the agent by",
        "line 8: nifi.c2.mqtt.heartbeat.topic is not supported: heartbeats go by REST",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    let error = read("nifi.content.repository.class.name=CloudRepository").unwrap_err();
    assert!(
        error.contains("there is no repository 'CloudRepository'"),
        "{error}"
    );
    let long = "#".repeat(CONFIGURATION_BYTES_MAX + 1);
    assert!(read(&long).unwrap_err().contains("is longer than"));
}

#[test]
fn keys_and_values_are_taken_as_old_files_spell_them() {
    let made = read(
        "c2.rest.url=http://c2/heartbeat
c2.agent.heartbeat.period=3000
nifi.c2.full.heartbeat=TRUE
nifi.volatile.repository.options.content.max.bytes=1M",
    )
    .unwrap();
    for (key, value) in [
        ("nifi.c2.rest.url", "http://c2/heartbeat"),
        ("nifi.c2.agent.heartbeat.period", "3000"),
        ("nifi.c2.full.heartbeat", "true"),
    ] {
        assert_eq!(made.get(key).as_deref(), Some(value));
    }
    let error = read("controller.socket.enable=True").unwrap_err();
    assert!(error.contains("is not supported"), "{error}");
}

#[test]
fn what_has_no_effect_is_noted_with_its_reason_and_empty_values_are_none() {
    let made = read(
        "nifi.bored.yield.duration=10 millis
nifi.flow.engine.threads=5
nifi.global.rocksdb.options.db.x=1
nifi.c2.agent.class=
nifi.administrative.yield.duration=7 sec
nifi.flow.engine.event.driven.time.slice=20 millis",
    )
    .unwrap();
    assert_eq!(made.notes.len(), 3);
    assert!(
        made.notes
            .iter()
            .any(|note| note.contains("sleeps until work comes"))
    );
    assert_eq!(made.get("nifi.bored.yield.duration"), None);
    assert_eq!(made.get("nifi.c2.agent.class"), None);
    let engine = made.engine();
    assert_eq!(engine.administrative_yield, Duration::from_secs(7));
    assert_eq!(engine.event_driven_slice, Duration::from_millis(20));
}

#[test]
fn overlays_toml_and_single_values_go_over_each_other_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("conf");
    let overlays = conf.join("minifi.properties.d");
    std::fs::create_dir_all(&overlays).unwrap();
    let properties = conf.join("minifi.properties");
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    write(
        &properties,
        "nifi.c2.agent.class=file\nnifi.c2.rest.url=file\nnifi.c2.agent.identifier=file
nifi.asset.directory=${MINIFI_HOME}/assets\nnifi.flow.configuration.file=conf/config.yml",
    );
    write(&conf.join("config.yml"), "");
    write(
        &overlays.join("10.properties"),
        "nifi.c2.agent.class=ten\nnifi.c2.rest.url=ten",
    );
    write(
        &overlays.join("20.properties"),
        "nifi.c2.agent.class=twenty",
    );
    write(
        &overlays.join("30.txt"),
        "nifi.c2.agent.class=no properties",
    );
    let key = "0a".repeat(32);
    write(
        &conf.join("bootstrap.conf"),
        &format!("java.arg=-Xmx1g\nnifi.bootstrap.sensitive.properties.key={key}"),
    );
    write(
        &conf.join("minifi-log.properties"),
        "logger.root=WARN,stderr",
    );
    let toml = conf.join("agent.toml");
    write(
        &toml,
        "[c2]\nurl = \"toml\"\n[repositories]\ncontent = \"FileSystemRepository\"
volatile_content_count_max = 5\n[metrics]\nmetrics = [\"a\", \"b\"]\n",
    );
    let sources = |set: &[&str]| Sources {
        properties: Some(properties.clone()),
        toml: Some(toml.clone()),
        set: set.iter().map(|set| (*set).to_owned()).collect(),
    };
    let set = ["c2.agent_identifier=set", "nifi.c2.full.heartbeat=true"];
    let made = Configuration::read(&sources(&set), dir.path()).unwrap();
    let get = |name: &str| made.get(name).unwrap_or_default();
    assert_eq!(get("nifi.c2.agent.class"), "twenty");
    assert_eq!(get("nifi.c2.rest.url"), "toml");
    assert_eq!(get("nifi.c2.agent.identifier"), "set");
    assert_eq!(get("nifi.c2.full.heartbeat"), "true");
    assert_eq!(get("nifi.metrics.publisher.metrics"), "a,b");
    assert_eq!(made.repository().unwrap().content, ContentKind::FileSystem);
    let home = std::path::absolute(dir.path()).unwrap();
    if std::env::var_os("MINIFI_HOME").is_none() {
        let assets = home.join("assets").display().to_string();
        assert_eq!(get("nifi.asset.directory"), assets);
        let flow = made.path("nifi.flow.configuration.file");
        assert_eq!(flow, Some(home.join("conf/config.yml")));
    }
    assert_eq!(get("nifi.log.logger.root"), "WARN,stderr");
    assert_eq!(made.files.len(), 6);
    let error = Configuration::read(&sources(&["c2.url", "c2.ulr=x"]), dir.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("write it as KEY=VALUE"), "{error}");
    assert!(
        error.contains("there is no key 'c2.ulr'; did you mean 'c2.url'?"),
        "{error}"
    );
}

#[test]
fn settings_go_over_others_only_if_they_can_be() {
    let made = read("nifi.c2.agent.class=file").unwrap();
    let over = |name: &str, value: &str| {
        let others = [(name.to_owned(), value.to_owned())].into();
        made.with(&others).map_err(|error| error.to_string())
    };
    let other = over("nifi.c2.agent.class", "other").unwrap();
    assert_eq!(other.get("nifi.c2.agent.class").as_deref(), Some("other"));
    assert!(
        over("no.such.key", "1")
            .unwrap_err()
            .contains("no key 'no.such.key'")
    );
    let error = over("nifi.content.repository.class.name", "x").unwrap_err();
    assert!(error.contains("there is no repository 'x'"), "{error}");
}

#[test]
fn sealed_values_open_by_the_key_of_the_data_folder() {
    let dir = tempfile::tempdir().unwrap();
    let key = SecretKey::make_in_folder(dir.path()).unwrap();
    let sealed = key.seal("hush").unwrap();
    let sources = Sources {
        set: vec![format!("nifi.security.client.pass.phrase={sealed}")],
        ..Sources::default()
    };
    let made = Configuration::read(&sources, dir.path()).unwrap();
    assert_eq!(
        made.get("nifi.security.client.pass.phrase").as_deref(),
        Some("hush")
    );
    let other = tempfile::tempdir().unwrap();
    let error = Configuration::read(&sources, other.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("there is no key to open it"), "{error}");
}

/// `docs/agent.md` shows the table; `UPDATE_EXPECT=1` writes it anew.
#[test]
fn the_docs_show_every_key() {
    const START: &str = "<!-- keys: written by a test -->\n";
    const END: &str = "<!-- end of keys -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agent.md");
    let text = std::fs::read_to_string(path).unwrap();
    let start = text.find(START).expect("the start is marked") + START.len();
    let end = text.find(END).expect("the end is marked");
    let mut table =
        String::from("| key | in TOML | default | what it does |\n| --- | --- | --- | --- |\n");
    for key in KEYS {
        let star = if key.is_prefix { "*" } else { "" };
        let code = |text: &str| match text {
            "" => String::new(),
            _ => format!("`{text}`"),
        };
        let allowed = match key.kind.allowed {
            [] => String::new(),
            allowed => format!(" One of {}.", allowed.join(", ")),
        };
        let effect = match key.effect {
            Effect::Honoured => String::new(),
            Effect::Ignored(why) => format!(" *Has no effect: {why}.*"),
            Effect::Refused(None, instead) => format!(" **Refused: {instead}.**"),
            Effect::Refused(Some(value), instead) => {
                format!(" **`{value}` is refused: {instead}.**")
            }
        };
        table.push_str(&format!(
            "| `{}{star}` | {} | {} | {}{allowed}{effect} |\n",
            key.kind.name,
            code(key.toml),
            code(key.kind.default.unwrap_or_default()),
            key.kind.description,
        ));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let new = format!("{}{table}{}", &text[..start], &text[end..]);
        std::fs::write(path, new).unwrap();
        return;
    }
    assert_eq!(&text[start..end], table, "run with UPDATE_EXPECT=1");
}
