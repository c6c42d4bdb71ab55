//! An upgrade that rolls from node to node: the next version's migrations come under running nodes.
//!
//! What the next version adds is made up here: a table, and in every table that there is a column
//! with a default, one without, and an index. No statement of today's may stumble over any of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sql::upgrade_rules::tables;
use sql::{Database, Migration, Options, Place, Schema, Statement};

use super::*;
use crate::history::OperationFilter;
use crate::schemas;

/// The schemas of the version after this one.
fn tomorrow() -> Vec<Schema> {
    let next = |schema: &Schema| {
        let mut text = format!(
            "CREATE TABLE tomorrow_{} (id VARCHAR(36) NOT NULL PRIMARY KEY, body BLOB);\n",
            schema.name
        );
        for table in tables(schema) {
            let table = table.to_lowercase();
            text += &format!(
                "ALTER TABLE {table} ADD COLUMN tomorrow BIGINT NOT NULL DEFAULT 7;\n\
                 ALTER TABLE {table} ADD COLUMN after_that VARCHAR(64);\n\
                 CREATE INDEX {table}_tomorrow ON {table} (tomorrow);\n"
            );
        }
        let mut migrations = schema.migrations.to_vec();
        migrations.push(Migration {
            number: migrations.len() as i64 + 1,
            name: "tomorrow",
            text: text.leak(),
        });
        Schema {
            migrations: migrations.leak(),
            ..*schema
        }
    };
    schemas::ALL.iter().map(next).collect()
}

async fn upgrade(place: &Place) -> Database {
    let schemas = tomorrow();
    let mut opened = Database::open(place, Options::default(), &schemas[0]).await;
    for _ in 0..10 {
        // A machine that stands still lets nobody in for a moment.
        if opened.is_ok() {
            break;
        }
        opened = Database::open(place, Options::default(), &schemas[0]).await;
    }
    let database = opened.unwrap_or_else(|error| panic!("{}", report(&error)));
    for schema in &schemas[1..] {
        let applied = database.migrate(schema).await;
        let applied = applied.unwrap_or_else(|error| panic!("{}", report(&error)));
        assert!(applied >= 1, "{}", schema.name);
    }
    database
}

/// Every kind of read that operators cause, on every node.
async fn read_all(nodes: &[Arc<Fleet>], flow: &str) {
    use crate::parameter::Level;
    for node in nodes {
        let said = async {
            node.parameters(Level::Flow, flow).await?;
            node.parameters(Level::Class, "edge").await?;
            node.bundles(None).await?;
            node.operations(&OperationFilter::default())?;
            node.events(&EventFilter {
                limit: 10,
                ..EventFilter::default()
            })
            .await?;
            let filter = crate::audit::Filter {
                limit: 10,
                ..crate::audit::Filter::default()
            };
            node.inner.audit.list(&filter).await?;
            node.inner.read_feed(true).await?;
            node.inner.read_feed(false).await
        };
        said.await
            .unwrap_or_else(|error| panic!("{}", report(&error)));
    }
}

/// A roll-out in batches is half-way when the next version's schema comes; no beat goes without its
/// answer, and a node of today that is started again on that schema carries on with the others.
async fn a_rollout_goes_on_under_tomorrows_schema(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::read(Some(&url), Path::new("unused")).unwrap();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(node(folder.path(), Some(&url)).await);
    }
    let mut rng = Rng::from_seed(21);
    let mut agents: Vec<Simulated> = (0..60).map(Simulated::new).collect();
    let text = |turn: u32| Bytes::from(format!("{FLOW}# {turn}\n"));
    let old = nodes[0]
        .publish("edge", text(0), true)
        .await
        .unwrap()
        .flow_id;
    converge(&mut agents, &nodes, &old, &mut rng).await;
    // All connections have prepared what they read.
    for _ in 0..4 {
        read_all(&nodes, &old).await;
    }
    let new = nodes[1]
        .publish("edge", text(1), false)
        .await
        .unwrap()
        .flow_id;
    let plan = Plan {
        batch_agents: 4,
        batch_interval: Duration::ZERO,
        canary_percent: 5,
        failures_percent: 50,
    };
    let rollout = nodes[0].begin_rollout("edge", &new, plan).await.unwrap();
    let running = |agents: &[Simulated]| {
        agents
            .iter()
            .filter(|a| a.flow.as_ref() == Some(&new))
            .count()
    };

    // Nobody is told to come again: what stands in an agent's way here is the upgrade.
    let mut beats = 0;
    let is_upgraded = AtomicBool::new(false);
    let (begun, half_way) = tokio::sync::oneshot::channel();
    let mut begun = Some(begun);
    let beating = async {
        let until = Instant::now() + Duration::from_secs(90);
        while !is_upgraded.load(Ordering::Relaxed) {
            for agent in &mut agents {
                let (one, other) = (rng.below(2) as usize, rng.below(2) as usize);
                let mut said = agent.beat(&nodes[one], &nodes[other]).await;
                // This machine itself may stand still; the next try decides.
                if matches!(said, Err(FleetError::NotStored)) {
                    said = agent.beat(&nodes[other], &nodes[one]).await;
                }
                said.unwrap_or_else(|error| panic!("a beat is missed: {}", report(&error)));
                beats += 1;
            }
            if running(&agents) > 0
                && let Some(begun) = begun.take()
            {
                begun.send(()).unwrap();
            }
            assert!(Instant::now() < until, "{} run the flow", running(&agents));
            tokio::task::yield_now().await;
        }
    };
    let upgrading = async {
        half_way.await.unwrap();
        let database = upgrade(&place).await;
        is_upgraded.store(true, Ordering::Relaxed);
        database
    };
    let ((), database) = tokio::join!(beating, upgrading);
    assert!(
        running(&agents) < agents.len(),
        "the roll-out was over before the upgrade"
    );

    // What a node of tomorrow writes into its columns stays there whatever today's write.
    let mark = Statement::new("UPDATE agents SET after_that = 'kept', tomorrow = 9");
    database.run("mark", &mark).await.unwrap();
    nodes.push(node(folder.path(), Some(&url)).await);
    beat_until(&mut agents, &nodes, "all get it", |agents| {
        running(agents) == agents.len() && agents.iter().all(|agent| agent.answers.is_empty())
    })
    .await;
    for node in &nodes {
        let state = || node.rollout(&rollout.id).unwrap().state;
        beat_until(
            &mut agents,
            std::slice::from_ref(node),
            "it is done",
            |_| state() == "done",
        )
        .await;
    }
    for agent in &agents {
        for (flow, ids) in &agent.ids {
            assert_eq!(ids.len(), 1, "{} got {flow} under {ids:?}", agent.id);
        }
    }
    agree(&nodes, agents.len()).await;
    read_all(&nodes, &new).await;
    let kept = Statement::new(
        "SELECT COUNT(*) AS n FROM agents WHERE after_that = 'kept' AND tomorrow = 9",
    );
    let kept = database.row("look", &kept).await.unwrap().unwrap();
    assert_eq!(kept.number("n").unwrap(), agents.len() as i64);
    assert!(beats > agents.len());

    // One after the other is started again, as an upgrade does it, and knows everything.
    for index in 0..nodes.len() {
        nodes[index].close().await;
        nodes[index] = node(folder.path(), Some(&url)).await;
        agree(&nodes[index..=index], agents.len()).await;
    }
    for node in &nodes {
        node.close().await;
    }
    database.close().await;
}

#[tokio::test]
async fn a_rollout_goes_on_under_tomorrows_schema_on_postgres() {
    let url = postgres().new_database().await;
    Box::pin(a_rollout_goes_on_under_tomorrows_schema(url)).await;
}

#[tokio::test]
async fn a_rollout_goes_on_under_tomorrows_schema_on_mariadb() {
    let url = mariadb().new_database().await;
    Box::pin(a_rollout_goes_on_under_tomorrows_schema(url)).await;
}

#[tokio::test]
async fn a_node_of_today_starts_on_tomorrows_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng::from_seed(22);
    let mut agents: Vec<Simulated> = (0..20).map(Simulated::new).collect();
    let first = [node(folder.path(), None).await];
    let text = |turn: u32| Bytes::from(format!("{FLOW}# {turn}\n"));
    let flow = first[0]
        .publish("edge", text(0), true)
        .await
        .unwrap()
        .flow_id;
    converge(&mut agents, &first, &flow, &mut rng).await;
    first[0].close().await;
    let database = upgrade(&Place::File(folder.path().join("fleet.db"))).await;
    database.close().await;
    let again = [node(folder.path(), None).await];
    let flow = again[0]
        .publish("edge", text(1), true)
        .await
        .unwrap()
        .flow_id;
    converge(&mut agents, &again, &flow, &mut rng).await;
    agree(&again, agents.len()).await;
    read_all(&again, &flow).await;
    again[0].close().await;
}

/// Nodes that the next version has left behind are not started on its schema, and say so.
#[tokio::test]
async fn a_node_that_is_declared_too_old_is_not_started_and_a_running_one_writes_no_more() {
    for url in [
        postgres().new_database().await,
        mariadb().new_database().await,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let running = node(folder.path(), Some(&url)).await;
        let mut known = Simulated::new(1);
        let flow = running.publish("edge", Bytes::from(FLOW), true).await;
        let flow = flow.unwrap().flow_id;
        let (nodes, agents) = (
            std::slice::from_ref(&running),
            std::slice::from_mut(&mut known),
        );
        converge(agents, nodes, &flow, &mut Rng::from_seed(23)).await;
        let place = Place::read(Some(&url), Path::new("unused")).unwrap();
        let next = tomorrow().remove(0);
        let last = next.migrations.last().unwrap().number;
        let next = Schema {
            oldest: last,
            ..next
        };
        let database = Database::open(&place, Options::default(), &next)
            .await
            .unwrap();
        database.close().await;
        let config = FleetConfig {
            database: Some(url.clone().into()),
            ..FleetConfig::default()
        };
        let refused = Fleet::open(folder.path(), config, Arc::new(SystemClock)).await;
        let told = report(&refused.expect_err("it is not started"));
        assert!(told.contains("run the newer binary"), "{told}");
        // The one that runs finds out by itself: it answers what needs nothing stored.
        let until = Instant::now() + Duration::from_secs(30);
        while running
            .publish("edge", Bytes::from(FLOW), false)
            .await
            .is_ok()
        {
            assert!(Instant::now() < until, "it goes on writing");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(running.inner.lease.held(), None, "it does nothing for all");
        known.beat(&running, &running).await.unwrap();
        let refused = Simulated::new(2).beat(&running, &running).await;
        assert!(matches!(refused, Err(FleetError::NotStored)), "{refused:?}");
        running.close().await;
    }
}
