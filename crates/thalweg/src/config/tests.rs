//! Layers over layers, and what is told of mistakes in them.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::layers::{OPEN_TABLES, leaves, overlay};
use super::*;

fn texts(loaded: Result<Config, Vec<Problem>>) -> Vec<String> {
    loaded.map_or_else(
        |p| p.iter().map(ToString::to_string).collect(),
        |_| Vec::new(),
    )
}

#[test]
fn the_defaults_file_says_what_the_code_does() {
    let table: Map<String, Value> = toml::from_str(DEFAULTS).unwrap();
    let known = serde_json::to_value(Config::default()).unwrap();
    let (mut merged, mut unknown) = (known.clone(), Vec::new());
    overlay(&mut merged, &known, Value::Object(table), "", &mut unknown);
    assert_eq!(unknown, Vec::<String>::new());
    assert_eq!(merged, known);
    let mut keys = Vec::new();
    leaves(&known, "", &mut keys);
    for key in keys {
        let last = key.rsplit('.').next().unwrap_or_default();
        assert!(
            DEFAULTS.contains(&format!("{last} =")),
            "defaults.toml does not name {key}"
        );
    }
}

#[test]
fn every_configuration_that_the_docs_show_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shown.toml");
    // What stands beside a block that is a part of a file.
    let beside = [
        "access.management_logins=true",
        "streams.kafka.bootstrap_servers=a:1",
    ];
    let beside = beside.map(str::to_owned);
    let mut shown = 0;
    for (page, text) in pages() {
        for block in text.split("\n```toml\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            std::fs::write(&file, block).unwrap();
            let problems = texts(load(Some(&file), std::iter::empty(), &beside));
            assert_eq!(problems, [""; 0], "{page}: {block}");
            shown += 1;
        }
    }
    assert!(shown >= 10, "only {shown} were found");
}

#[test]
fn every_key_that_the_docs_name_is_one() {
    let known = serde_json::to_value(Config::default()).unwrap();
    let mut keys = Vec::new();
    leaves(&known, "", &mut keys);
    let is_one = |name: &str| {
        // A key, a table, or what the user calls so in one.
        let is_in = |outer: &str, inner: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        let is_open = |table: &&str| *table == name || is_in(table, name);
        OPEN_TABLES.iter().any(is_open) || keys.iter().any(|key| key == name || is_in(name, key))
    };
    let sections: Vec<String> = known.as_object().unwrap().keys().cloned().collect();
    let mut named = 0;
    for (page, text) in pages() {
        for span in text.split('`').skip(1).step_by(2) {
            let is_of_key = |c: char| c.is_ascii_lowercase() || "._0123456789".contains(c);
            let name = span.split(|c| !is_of_key(c)).next().unwrap_or_default();
            let Some((section, rest)) = name.split_once('.') else {
                continue;
            };
            let is_file = FILES.iter().any(|ending| rest.ends_with(ending));
            let is_others = OTHERS.iter().any(|head| name.starts_with(head));
            let is_key = sections.iter().any(|of| of == section) && !rest.is_empty();
            if !is_key || is_file || is_others {
                continue;
            }
            assert!(is_one(name), "{page} names {name}, which is no key");
            named += 1;
        }
    }
    assert!(named > 100, "only {named} keys were found");
}

/// The pages that people read, but for the agent's, whose settings are others.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<_> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    pages.retain(|page| {
        !["agent.md", "processors.md"]
            .iter()
            .any(|of| page.ends_with(of))
    });
    let read = |page: &PathBuf| std::fs::read_to_string(page).unwrap();
    pages
        .iter()
        .map(|page| (page.display().to_string(), read(page)))
        .collect()
}

/// Endings of files that are named as if they were keys.
const FILES: [&str; 5] = ["md", "rs", "db", "txt", "json"];
/// What is called so elsewhere: by MapR's proxy, Kafka and EMQX, and a listener in metrics.
const OTHERS: [&str; 13] = [
    "log.retention.",
    "streams.assignor.offload.",
    "streams.heartbeat.interval.",
    "streams.initial.rebalance.",
    "streams.num.standby.",
    "streams.session.timeout.",
    "streams.local",
    "streams.default.",
    "streams.buffer.",
    "mqtt.max_mqueue_len",
    "mqtt.max_inflight",
    "mqtt.max_packet_size",
    "mqtt.session_expiry_interval",
];

#[test]
fn what_is_wrong_with_an_http_port_is_told_in_its_section() {
    let settings = [
        "rest.tls.certificate=c.pem",
        "fleet.cors.allowed_origins=[\"example.org\"]",
        "access.jwt.jwks=keys.json",
        "rest.rate_limit.requests_per_second=-1",
    ];
    let settings = settings.map(str::to_owned);
    let problems = texts(load(None, std::iter::empty(), &settings[..3]));
    assert_eq!(problems.len(), 3, "{problems:?}");
    for (problem, part) in
        problems
            .iter()
            .zip(["[access]: jwt.jwks", "[rest]: tls.", "[fleet]: cors."])
    {
        assert!(problem.starts_with(part), "{problem}");
    }
    let problems = texts(load(None, std::iter::empty(), &settings[3..]));
    assert!(
        problems.len() == 1 && problems[0].starts_with("rest.rate_limit.requests_per_second: "),
        "{problems:?}"
    );
}

#[test]
fn values_that_do_not_fit_are_told_by_their_keys() {
    let settings = [
        "streams.default_partitions=many",
        "streams.retention=soon",
        "streams.node_id=7",
        "fleet.tls.client_auth=perhaps",
        "imports.listen=1",
    ];
    let problems = texts(load(None, std::iter::empty(), &settings.map(str::to_owned)));
    let told: Vec<&str> = problems
        .iter()
        .filter_map(|p| p.split(": ").next())
        .collect();
    let keys = [
        "--set imports.listen",
        "streams.default_partitions",
        "streams.retention",
        "fleet.tls.client_auth",
    ];
    assert_eq!(told, keys, "{problems:?}");
}

#[test]
fn only_ports_that_ask_everybody_know_their_callers() {
    let tls = "tls.certificate=c\ntls.key=k\ntls.client_ca=a";
    let known = |settings: &str| {
        let settings: Vec<String> = settings.split_whitespace().map(str::to_owned).collect();
        let config = load(None, std::iter::empty(), &settings).unwrap();
        (
            config.knows_callers_of(&config.rest.http),
            config.knows_callers_of_management(),
        )
    };
    let of = |role: &str| tls.replace("tls.", &format!("{role}.tls."));
    let (rest, fleet) = (of("rest"), of("fleet"));
    assert_eq!(known("streams.authorization=acl"), (false, false));
    assert_eq!(known(&rest), (false, false));
    assert_eq!(
        known(&format!("{rest} {fleet} streams.authorization=acl")),
        (true, false)
    );
    // Before a Kafka cluster likewise: who comes by HTTP is asked here.
    let cluster = "streams.kafka.bootstrap_servers=a:1 streams.authorization=acl";
    assert_eq!(known(&format!("{rest} {cluster}")), (true, false));
    let required = "rest.tls.client_auth=required fleet.tls.client_auth=required";
    assert_eq!(known(&format!("{rest} {fleet} {required}")), (true, true));
}

#[test]
fn later_layers_win_and_values_keep_their_types() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thalweg.toml");
    std::fs::write(
        &file,
        "[streams]\nlisten = \"127.0.0.1:1\"\ndefault_partitions = 3\n",
    )
    .unwrap();
    let variables = [
        (
            "THALWEG_STREAMS_LISTEN".to_owned(),
            "127.0.0.1:2".to_owned(),
        ),
        ("THALWEG_DATA".to_owned(), "elsewhere".to_owned()),
    ];
    let settings = ["mqtt.listen=127.0.0.1:0".to_owned()];
    let config = load(Some(&file), variables.into_iter(), &settings).unwrap();
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(value["streams"]["listen"], "127.0.0.1:2");
    assert_eq!(value["streams"]["default_partitions"], 3);
    assert_eq!(value["mqtt"]["listen"], "127.0.0.1:0");
}

#[test]
fn a_database_is_named_by_a_variable() {
    let variables = [(
        "THALWEG_DATABASES_MAIN".to_owned(),
        "postgres://ada@db/x".to_owned(),
    )];
    let config = load(None, variables.into_iter(), &[]).unwrap();
    assert!(config.databases.contains_key("main"));
}

#[test]
fn names_of_the_users_choice_come_by_every_way_and_are_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thalweg.toml");
    let text = "[streams.kafka]\nbootstrap_servers = \"a:1\"\n\
                [streams.kafka.properties]\nsecurity.protocol = \"sasl_ssl\"\n";
    std::fs::write(&file, text).unwrap();
    let variable = "THALWEG_STREAMS_KAFKA_PROPERTIES_SASL_PASSWORD";
    let variables = [(variable.to_owned(), "hush".to_owned())];
    let user = "streams.kafka.properties.sasl.username=u".to_owned();
    let config = load(Some(&file), variables.clone().into_iter(), &[user]).unwrap();
    let kafka = &config.streams.kafka;
    let shown = format!("{kafka:?}");
    for part in ["sasl_ssl", "sasl.username", "sasl.password"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("hush"), "{shown}");
    let wrong = "streams.kafka.properties.no.such=hush".to_owned();
    let problems = texts(load(Some(&file), variables.into_iter(), &[wrong]));
    assert!(
        problems.len() == 1 && problems[0].contains("no.such") && !problems[0].contains("hush"),
        "{problems:?}"
    );
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thalweg.toml");
    std::fs::write(&file, "[streams]\nlisten_on = \"x\"\n[nowhere]\na = 1\n").unwrap();
    let variables = [("THALWEG_NONSENSE".to_owned(), "1".to_owned())];
    let settings = [
        "fleet.lisen=1".to_owned(),
        "streams.default_partitions=many".to_owned(),
    ];
    let problems = texts(load(Some(&file), variables.into_iter(), &settings));
    let path = file.display();
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert!(problems.contains(&format!(
        "{path}: unknown key 'streams.listen_on'; did you mean 'streams.listen'?"
    )));
    assert!(
        problems.iter().any(|p| p.contains("unknown key 'nowhere")),
        "{problems:?}"
    );
    assert!(
        problems.iter().any(|p| p.starts_with("THALWEG_NONSENSE: ")),
        "{problems:?}"
    );
    assert!(
        problems
            .iter()
            .any(|p| p.contains("did you mean 'fleet.listen'?"))
    );
    assert!(
        problems
            .iter()
            .any(|p| p.starts_with("streams.default_partitions: ")),
        "{problems:?}"
    );
}

#[test]
fn a_key_is_suggested_for_one_that_stands_elsewhere_or_is_misspelt() {
    let of_setting = |setting: &str| {
        let problems = texts(load(None, std::iter::empty(), &[setting.to_owned()]));
        problems.join("\n")
    };
    for (setting, told) in [
        ("allow_remote=true", "did you mean 'access.allow_remote'?"),
        (
            "kafka.bootstrap_servers=a:1",
            "did you mean 'streams.kafka.bootstrap_servers'?",
        ),
        (
            "streams.authorisation=acl",
            "did you mean 'streams.authorization'?",
        ),
        (
            "authorization=acl",
            "did you mean one of mqtt.security.authorization, streams.authorization?",
        ),
        ("listen=127.0.0.1:1", "`thalweg config` lists the keys"),
        ("colour=red", "`thalweg config` lists the keys"),
    ] {
        let said = of_setting(setting);
        assert!(said.contains(told), "{said}");
    }
    for (name, told) in [
        (
            "THALWEG_STREAMS_LISEN",
            "did you mean 'THALWEG_STREAMS_LISTEN'?",
        ),
        ("THALWEG_COLOUR", "`thalweg config` lists the keys"),
    ] {
        let variables = [(name.to_owned(), "1".to_owned())];
        let said = texts(load(None, variables.into_iter(), &[])).join("\n");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn a_level_that_would_silence_the_log_is_refused() {
    for (level, told) in [
        ("warning", "'warning' is no level"),
        ("info,streams=debgu", "is no filter"),
        ("info, stremas", "'stremas' is no level"),
    ] {
        let problems = texts(load(
            None,
            std::iter::empty(),
            &[format!("log.level={level}")],
        ));
        assert!(
            problems.len() == 1 && problems[0].starts_with("log.level: "),
            "{problems:?}"
        );
        assert!(problems[0].contains(told), "{problems:?}");
    }
    for level in [
        "warn",
        "INFO",
        "off",
        "info,streams=debug",
        "info,[span]=debug",
    ] {
        let loaded = load(None, std::iter::empty(), &[format!("log.level={level}")]);
        assert_eq!(texts(loaded), [""; 0], "{level}");
    }
}

#[test]
fn roles_and_issuers_need_callers_who_are_asked() {
    let load = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        texts(load(None, std::iter::empty(), &settings))
    };
    let asked = "access.management_logins=true";
    let issuer = "access.jwt.issuer=https://id.example.org";
    let roles = "access.roles.User:ann=operator:edge,viewer";
    for settings in [
        &[asked, roles][..],
        &[asked, issuer, "access.jwt.discover=true"],
        &["streams.authorization=acl", roles],
    ] {
        assert_eq!(load(settings), [""; 0], "{settings:?}");
    }
    for (settings, told) in [
        (&[roles][..], "roles needs management_logins"),
        (
            &[issuer, "access.jwt.discover=true"],
            "jwt.discover needs management_logins",
        ),
        (&[asked, "access.jwt.discover=true"], "needs jwt.issuer"),
        (
            &[
                asked,
                "access.jwt.discover=true",
                "access.jwt.issuer=http://id.example.org",
            ],
            "of https",
        ),
        (
            &[asked, "access.sign_in.client_id=console"],
            "needs jwt.discover",
        ),
        (
            &[
                asked,
                issuer,
                "access.jwt.discover=true",
                "access.sign_in.client_id=console",
            ],
            "needs jwt.audience",
        ),
        (&[asked, "access.sign_in.address=http://fleet"], "of https"),
        (&[asked, "access.roles.User:ann=king"], "write viewer"),
        (&[asked, "access.roles.ann=viewer"], "User:"),
    ] {
        let problems = load(settings);
        assert!(
            problems.len() == 1 && problems[0].contains(told),
            "{problems:?}"
        );
    }
}
