//! The operators whom all nodes know: users, roles and API tokens, in one row of the fleet's database.
//!
//! The row is sealed under the fleet's key, so that the database alone lets nobody in and tells no
//! hash. Each node keeps what it read last and looks for a newer one at
//! [`limits::OPERATORS_INTERVAL`]; while the database does not answer, what is known holds.

use std::sync::Arc;

use access::{Access, AccessError, SharedError, SharedText, SharedUsers};
use sql::{Database, Migration, Schema, SqlError, Statement};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::limits;
use crate::seal::Sealer;

/// The row, for [`Access`]. Calls block, from a thread that may.
pub(crate) struct Operators {
    database: Database,
    sealer: Arc<Sealer>,
    runtime: Handle,
}

impl Operators {
    /// Brings the table up to date.
    ///
    /// # Errors
    /// The database's.
    pub(crate) async fn open(
        database: Database,
        sealer: Arc<Sealer>,
    ) -> Result<Operators, SqlError> {
        database.migrate(&SCHEMA).await?;
        Ok(Operators {
            database,
            sealer,
            runtime: Handle::current(),
        })
    }

    async fn newest(&self, known: i64) -> Result<Option<SharedText>, FleetError> {
        let what = "read the operators";
        let select = Statement::new("SELECT number, body FROM operators WHERE number <> ?");
        let Some(row) = self.database.row(what, &select.bind(known)).await? else {
            return Ok(None);
        };
        let failed = |error| self.database.error(what, error);
        let number = row.number("number").map_err(failed)?;
        let text = match number {
            0 => Vec::new(),
            _ => {
                let body = row.bytes("body").map_err(failed)?;
                self.sealer.open_sealed(OWNER, &body)?
            }
        };
        Ok(Some(SharedText { number, text }))
    }

    async fn put(&self, known: i64, text: &[u8]) -> Result<bool, FleetError> {
        let body = self.sealer.seal(OWNER, text)?;
        let update = Statement::new("UPDATE operators SET number = ?, body = ? WHERE number = ?");
        let update = update.bind(known + 1).bind(body).bind(known);
        let changed = self.database.run("write the operators", &update).await?;
        Ok(changed > 0)
    }
}

impl SharedUsers for Operators {
    fn read(&self, known: i64) -> Result<Option<SharedText>, SharedError> {
        Ok(self.runtime.block_on(self.newest(known))?)
    }

    fn replace(&self, known: i64, text: &[u8]) -> Result<bool, SharedError> {
        Ok(self.runtime.block_on(self.put(known, text))?)
    }
}

impl Fleet {
    /// Has the users, roles and tokens of `access` be those of all nodes, where nodes share the
    /// database; those that lie in its folder move there. Elsewhere nothing changes.
    ///
    /// # Errors
    /// [`AccessError::Shared`], [`AccessError::Limit`], [`AccessError::File`].
    pub async fn share_operators(&self, access: Arc<Access>) -> Result<(), AccessError> {
        let store = &self.inner.store;
        if !store.is_shared() {
            return Ok(());
        }
        let opened = Operators::open(store.database().clone(), self.inner.sealer.clone()).await;
        let operators = opened.map_err(|error| AccessError::Shared(error.into()))?;
        blocking(access.clone(), move |access| {
            access.share(Arc::new(operators))
        })
        .await?;
        self.keep(run(access, self.stopped()));
        Ok(())
    }
}

/// Looks for changes of other nodes until `stop`.
async fn run(access: Arc<Access>, stop: CancellationToken) {
    let mut is_away = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(limits::OPERATORS_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        match blocking(access.clone(), |access| access.refresh().map(drop)).await {
            Ok(()) => {
                if std::mem::take(&mut is_away) {
                    tracing::info!("users and roles are read from the database again");
                }
            }
            Err(error) if !is_away => {
                tracing::warn!(
                    error = %base::report(&error),
                    "cannot read users and roles: those that are known hold"
                );
                is_away = true;
            }
            Err(_) => {}
        }
    }
}

async fn blocking(
    access: Arc<Access>,
    work: impl FnOnce(&Access) -> Result<(), AccessError> + Send + 'static,
) -> Result<(), AccessError> {
    let done = tokio::task::spawn_blocking(move || work(&access)).await;
    done.unwrap_or_else(|error| Err(AccessError::Shared(error.into())))
}

/// Whom the row is sealed for.
const OWNER: &str = "operators";

pub const SCHEMA: Schema = Schema {
    name: "fleet_operators",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "the operators whom all nodes know",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE operators (
    id BIGINT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL,
    body BLOB
);
INSERT INTO operators (id, number) VALUES (1, 0);
";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use access::{Grant, PasswordForm, Passwords, Principal, Token, UserChange};
    use base::{SystemClock, UnixMillis};
    use sql::test_servers::{mariadb, postgres};

    use super::*;
    use crate::FleetConfig;

    async fn node(folder: &Path, database: Option<&str>) -> Arc<Fleet> {
        let config = FleetConfig {
            database: database.map(|url| url.to_owned().into()),
            // As all nodes of a fleet have it.
            key_file: Some(folder.join("../key")),
            ..FleetConfig::default()
        };
        let opened = Fleet::open(folder, config, Arc::new(SystemClock)).await;
        opened.unwrap_or_else(|error| panic!("{}", base::report(&error)))
    }

    async fn change(
        access: &Arc<Access>,
        work: impl FnOnce(&Access) -> Result<(), AccessError> + Send + 'static,
    ) {
        blocking(access.clone(), work).await.unwrap();
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn password(
        password: &str,
    ) -> impl FnOnce(&Access) -> Result<(), AccessError> + Send + 'static {
        let forms = [PasswordForm::Argon2id];
        let changes = PasswordForm::changes(&forms, "ann", password, 4_096).unwrap();
        move |access| access.alter_users(&changes)
    }

    async fn two_nodes_know_the_same_operators(url: &str) {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| folder.path().join(name));
        let mut nodes = Vec::new();
        let mut known = Vec::new();
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
            let fleet = node(folder, Some(url)).await;
            let access = Arc::new(Access::open(&folder.join("access")).unwrap());
            fleet.share_operators(access.clone()).await.unwrap();
            nodes.push(fleet);
            known.push(access);
        }
        let (a, b) = (&known[0], &known[1]);
        let now = UnixMillis(1_000);
        let (token, text) = Token::issue("ann", "", now, None).unwrap();
        change(a, password("first")).await;
        change(a, move |access| access.add_token(token)).await;
        let ann = Principal::user("ann");
        let operator: Grant = "operator:edge".parse().unwrap();
        let (holder, granted) = (ann.clone(), operator.clone());
        change(a, move |access| access.grant(holder, granted)).await;
        until("the other node knows her", || {
            let snapshot = b.snapshot();
            let roles: Vec<&Grant> = snapshot.grants_of(&ann).collect();
            snapshot.token_of(&text).is_some() && roles == [&operator]
        })
        .await;
        let passwords = Arc::new(Passwords::new(b.clone()));
        let check = |password: &'static str| {
            let passwords = passwords.clone();
            tokio::task::spawn_blocking(move || passwords.check(now, "ann", password))
        };
        assert_eq!(check("first").await.unwrap(), Some(ann.clone()));
        // A password that is changed at one node opens nothing at the other, remembered or not.
        change(a, password("second")).await;
        until("the other node forgot the password before", || {
            passwords.known(now, "ann", "first").is_none()
        })
        .await;
        assert_eq!(check("first").await.unwrap(), None);
        assert_eq!(check("second").await.unwrap(), Some(ann.clone()));
        // What lies in the database is sealed.
        let database = nodes[0].inner.store.database();
        let select = Statement::new("SELECT number, body FROM operators");
        let row = database.row("look", &select).await.unwrap().unwrap();
        let body = String::from_utf8_lossy(&row.bytes("body").unwrap()).into_owned();
        assert!(!body.contains("ann") && !body.contains("argon2"), "{body}");
        // Both change it at once, several times; no change is lost.
        let grants = |access: &Arc<Access>, class: &'static str| {
            let (access, ann) = (access.clone(), Principal::user("ann"));
            tokio::task::spawn_blocking(move || {
                for n in 0..10 {
                    let grant = format!("viewer:{class}{n}").parse().unwrap();
                    access.grant(ann.clone(), grant).unwrap();
                }
            })
        };
        let (one, other) = tokio::join!(grants(a, "x"), grants(b, "y"));
        one.unwrap();
        other.unwrap();
        for access in [a, b] {
            until("both know all roles", || {
                access.snapshot().grants_of(&ann).count() == 21
            })
            .await;
        }
        let remove = UserChange::Remove("ann".to_owned(), None);
        change(b, move |access| access.alter_users(&[remove])).await;
        until(
            "she is gone at the first node, with token and roles",
            || {
                let snapshot = a.snapshot();
                snapshot.token_of(&text).is_none() && snapshot.grants_of(&ann).next().is_none()
            },
        )
        .await;
        for fleet in nodes {
            fleet.close().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_nodes_know_the_same_operators_on_postgres() {
        two_nodes_know_the_same_operators(&postgres().new_database().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_nodes_know_the_same_operators_on_mariadb() {
        two_nodes_know_the_same_operators(&mariadb().new_database().await).await;
    }

    /// The row itself is the same on SQLite, where nobody shares it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_of_its_own_keeps_its_operators_at_home() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("a");
        std::fs::create_dir(&own).unwrap();
        let fleet = node(&own, None).await;
        let access = Arc::new(Access::open(&own.join("access")).unwrap());
        fleet.share_operators(access.clone()).await.unwrap();
        change(&access, password("first")).await;
        let again = Access::open(&own.join("access")).unwrap();
        assert!(again.snapshot().password_hash("ann").is_some());
        let database = fleet.inner.store.database().clone();
        let operators = Operators::open(database, fleet.inner.sealer.clone());
        let operators = operators.await.unwrap();
        assert_eq!(operators.newest(-1).await.unwrap().unwrap().number, 0);
        assert!(operators.put(0, b"one").await.unwrap());
        assert!(!operators.put(0, b"late").await.unwrap());
        let newest = operators.newest(0).await.unwrap().unwrap();
        assert_eq!((newest.number, &*newest.text), (1, &b"one"[..]));
        assert!(operators.newest(1).await.unwrap().is_none());
        fleet.close().await;
    }
}
