//! Two processes on one database: whom one of them knows, and what they may do, the other knows too.

use std::path::Path;

use serde_json::{Value, json};
use sql::Dialect;
use sql::test_servers::Server;

use crate::fleet_roles::Fleet;
use crate::harness::{Answer, curl, eventually, folder};

/// What a node has of a token's owner: the roles, or the status of the refusal.
fn roles_at(node: &Fleet, token: &str) -> Result<Vec<String>, u16> {
    let me = node.call(token, "GET", "/api/v1/me", "");
    if me.status != 200 {
        return Err(me.status);
    }
    let me = me.json();
    let roles = me["roles"].as_array().unwrap().iter();
    let mut roles: Vec<String> = roles
        .map(|role| role.as_str().unwrap().to_owned())
        .collect();
    roles.sort();
    Ok(roles)
}

/// Waits until a node says this of a token's owner.
fn becomes(node: &Fleet, token: &str, wanted: Result<&[&str], u16>) {
    let wanted = wanted.map(|roles| roles.iter().map(|role| (*role).to_owned()).collect());
    eventually(&format!("the other node says {wanted:?}"), || {
        (roles_at(node, token) == wanted).then_some(())
    });
}

fn by_password(node: &Fleet, login: &str) -> Answer {
    curl(&["--user", login, &node.up.url("management", "/api/v1/me")])
}

async fn two_nodes_know_the_same(dialect: Dialect) {
    let dir = folder();
    let server = Server::start(dialect);
    let url = server.new_database().await;
    let settings = [
        format!("fleet.database={url}"),
        format!("fleet.key_file={}", dir.path().join("key").display()),
    ];
    let data = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let one = Fleet::start(&data("one"), &settings);
    let mut two = Fleet::join(&data("two"), &one, &settings);
    one.beat("e", "edge");
    one.beat("n", "north");

    // A user, its role and its token, made at one node.
    let ann = one.token("ann", &["viewer:edge"]);
    becomes(&two, &ann, Ok(&["viewer:edge"]));
    assert_eq!(by_password(&two, "ann:new-secret").status, 200);
    assert_eq!(by_password(&two, "ann:another").status, 401);
    eventually(
        "the other node lists the agents of the role's class",
        || {
            let agents = two.call(&ann, "GET", "/api/v1/agents", "").json();
            let agents = agents["agents"].as_array().unwrap().clone();
            let ids: Vec<&Value> = agents.iter().map(|agent| &agent["id"]).collect();
            assert!(!ids.contains(&&json!("n")), "{ids:?}");
            (ids == [&json!("e")]).then_some(())
        },
    );

    // Roles that the other node gives and takes back; the strongest of a class is told.
    two.cli(&["roles", "grant", "User:ann", "operator:edge"]);
    becomes(&one, &ann, Ok(&["operator:edge"]));
    two.cli(&["roles", "revoke", "User:ann", "operator:edge"]);
    becomes(&one, &ann, Ok(&["viewer:edge"]));
    let ask = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    let asked = one.call(&ann, "POST", "/api/v1/agents/e/operations", ask);
    assert_eq!(asked.status, 403, "{}", asked.body);

    // A node that was killed and comes back knows what happened meanwhile.
    two.up.kill();
    let ben = one.token("ben", &["viewer"]);
    one.cli(&["roles", "grant", "User:ann", "designer:edge"]);
    let arguments = Fleet::arguments(&settings);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    two.up = two.up.start_again(&arguments);
    assert_eq!(roles_at(&two, &ben), Ok(vec!["viewer".to_owned()]));
    becomes(&two, &ann, Ok(&["designer:edge"]));

    // Who is removed at the other node is nobody here, by token and by password.
    two.cli(&["users", "remove", "ann"]);
    becomes(&one, &ann, Err(401));
    assert_eq!(by_password(&one, "ann:new-secret").status, 401);
    let users = one.cli(&["users", "list"]);
    assert!(!users.to_string().contains("\"ann\""), "{users}");
    assert_eq!(roles_at(&one, &ben), Ok(vec!["viewer".to_owned()]));
    one_copy_of_secrets(dir.path());
}

/// What the nodes share lies in the database: no folder has a user's keys any more.
fn one_copy_of_secrets(dir: &Path) {
    for node in ["one", "two"] {
        let users = dir.join(node).join("data/access/access.json");
        let text = std::fs::read_to_string(&users).unwrap_or_default();
        assert!(!text.contains("ben"), "{node}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_roles_and_tokens_of_one_node_are_the_other_ones_on_postgres() {
    two_nodes_know_the_same(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_roles_and_tokens_of_one_node_are_the_other_ones_on_mariadb() {
    two_nodes_know_the_same(Dialect::MySql).await;
}
