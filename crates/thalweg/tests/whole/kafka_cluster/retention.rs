//! How long tenants keep records, where their topics lie in a Kafka cluster.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{
    Up, add_offline, eventually, folder, kafka_tool, succeed, text, thalweg_command,
};
use crate::kafka_broker::{Broker, PLAIN, kafka};

/// An installation on a cluster, whose callers log in.
struct House {
    up: Up,
    broker: String,
    password: String,
}

impl House {
    fn start(dir: &Path, broker: &str) -> House {
        let data = dir.join("data");
        if !data.exists() {
            add_offline(&data, "admin", "secret");
            let mut grant = thalweg_command();
            grant.args(["roles", "grant", "User:admin", "administrator", "--data"]);
            succeed(grant.arg(&data));
        }
        let password = dir.join("password");
        std::fs::write(&password, "secret\n").unwrap();
        let servers = format!("streams.kafka.bootstrap_servers={broker}");
        let up = Up::start_with(
            &data,
            &["--set", &servers, "--set", "access.management_logins=true"],
        );
        House {
            up,
            broker: broker.to_owned(),
            password: password.display().to_string(),
        }
    }

    fn with_login<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let login = ["--login", "admin", "--login-password-file", &self.password];
        [&login, arguments].concat()
    }

    fn admin(&self, arguments: &[&str]) -> Value {
        self.up.cli_json(&self.with_login(arguments))
    }

    /// What the command line says of a call that fails.
    fn refused(&self, arguments: &[&str]) -> String {
        let refused = self.up.cli(&self.with_login(arguments));
        assert!(!refused.status.success(), "{}", text(&refused.stdout));
        text(&refused.stderr).to_owned()
    }

    /// Has Kafka's own tool make a topic.
    fn create_there(&self, topic: &str, settings: &[&str]) {
        let mut tool = kafka_tool("org.apache.kafka.tools.TopicCommand");
        tool.args(["--bootstrap-server", &self.broker]);
        tool.args(["--create", "--topic", topic]);
        tool.args(settings.iter().flat_map(|set| ["--config", set]));
        succeed(&mut tool);
    }

    /// The topic's own `retention.ms` as Kafka's tool tells it, if it has one.
    fn set_there(&self, topic: &str) -> Option<i64> {
        let mut tool = kafka_tool("org.apache.kafka.tools.TopicCommand");
        tool.args(["--bootstrap-server", &self.broker]);
        let told = succeed(tool.args(["--describe", "--topic", topic]));
        let (_, value) = told.split_once("retention.ms=")?;
        let digits = value.split([',', '\t', '\n', ' ']).next()?;
        Some(digits.trim().parse().unwrap())
    }

    fn holds(&self, topic: &str, expected: Option<i64>) {
        // A broker tells of a change before it follows it.
        eventually("the topic's retention", || {
            (self.set_there(topic) == expected).then_some(())
        });
    }
}

#[test]
fn a_tenants_retention_stands_in_its_own_topics_when_they_are_made_and_when_it_changes() {
    let dir = folder();
    let house = House::start(dir.path(), kafka());
    let topic = |event: &str| format!("ret.ns.diku.{event}");
    let [plain, short, made, shared] = [
        topic("PLAIN"),
        topic("SHORT"),
        topic("MADE"),
        "ret.ns.else.PLAIN".to_owned(),
    ];
    house.create_there(&plain, &[]);
    house.create_there(&short, &["retention.ms=5000", "max.message.bytes=2000"]);
    house.create_there(&shared, &[]);
    let retention = |age: &str| house.admin(&["tenants", "set", "diku", "--retention", age]);
    assert_eq!(retention("1h")["retention_ms"], 3_600_000);
    // What is there is shortened, and nothing is made longer; others' topics are as they were.
    house.holds(&plain, Some(3_600_000));
    house.holds(&short, Some(5_000));
    house.holds(&shared, None);
    // What is made later has it, unless a shorter one is asked for.
    house.admin(&["topics", "create", &made]);
    house.holds(&made, Some(3_600_000));
    let asked = topic("ASKED");
    house.admin(&["topics", "create", &asked, "--config", "retention.ms=7000"]);
    house.holds(&asked, Some(7_000));
    // One event's own is as short as one likes, and no longer than the tenant's.
    house.admin(&["topics", "alter", &made, "--config", "retention.ms=9000"]);
    house.holds(&made, Some(9_000));
    house.admin(&["topics", "alter", &made, "--config", "retention.ms=-1"]);
    house.holds(&made, Some(3_600_000));
    // A change is followed in both directions, and its end too.
    retention("2h");
    house.holds(&plain, Some(7_200_000));
    house.holds(&made, Some(7_200_000));
    house.holds(&short, Some(5_000));
    retention("1m");
    house.holds(&plain, Some(60_000));
    retention("none");
    house.holds(&plain, None);
    house.holds(&short, Some(5_000));
    // What the cluster's own clients made meanwhile is found.
    retention("1h");
    assert!(house.up.stop().success());
    let found = topic("FOUND");
    let mut tool = kafka_tool("org.apache.kafka.tools.TopicCommand");
    tool.args(["--bootstrap-server", kafka(), "--create", "--topic", &found]);
    succeed(&mut tool);
    let house = House::start(dir.path(), kafka());
    house.holds(&found, Some(3_600_000));
    // A tenant that is not kept any more keeps nobody's records short.
    house.admin(&["tenants", "remove", "diku"]);
    house.holds(&found, None);
    house.holds(&plain, None);
    house.holds(&short, Some(5_000));
}

#[test]
fn a_cluster_that_refuses_a_retention_is_told_and_the_tenants_is_as_it_was() {
    let dir = folder();
    let security = [PLAIN, AUTHORIZER].concat();
    let broker = Broker::start(&security, &[]);
    let house = House::start(dir.path(), &broker.address);
    let [open, closed] = ["ret.ns.diku.A", "ret.ns.diku.B"];
    house.create_there(open, &[]);
    house.create_there(closed, &[]);
    let set = |age: &'static str| ["tenants", "set", "diku", "--retention", age];
    house.admin(&set("1h"));
    house.holds(closed, Some(3_600_000));
    let acl = |rule: &[&str]| {
        let mut tool = kafka_tool("org.apache.kafka.tools.AclCommand");
        tool.args(["--bootstrap-server", &broker.address, "--add"]);
        tool.args(["--topic", closed]).args(rule);
        succeed(&mut tool);
    };
    acl(&["--allow-principal", "User:*", "--operation", "All"]);
    let nobody = ["--deny-principal", "User:*", "--operation", "AlterConfigs"];
    acl(&nobody);
    // The one that may be changed is as it was, too.
    let told = house.refused(&set("2h"));
    assert!(
        told.contains("the Kafka cluster does not allow this: retention.ms of 'ret.ns.diku.B'"),
        "{told}"
    );
    let kept = || house.admin(&["tenants", "show", "diku"])["retention_ms"].clone();
    assert_eq!(kept(), json!(3_600_000));
    house.holds(open, Some(3_600_000));
    house.refused(&["tenants", "remove", "diku"]);
    assert_eq!(kept(), json!(3_600_000));
}

/// Rights by ACLs, where there are any.
const AUTHORIZER: &str = "\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
";
