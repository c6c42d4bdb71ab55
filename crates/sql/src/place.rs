//! Where a database is: a file, or a server by its URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::dialect::Dialect;
use crate::error::SqlError;

/// Where a database is. Shown without its password.
#[derive(Clone)]
pub enum Place {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL server.
    Postgres(Box<PgConnectOptions>, String),
    /// A MySQL or MariaDB server.
    MySql(Box<MySqlConnectOptions>, String),
}

impl Place {
    /// Reads `postgres://…`, `mysql://…` or `mariadb://…`; without an address the database is the
    /// file at `default`.
    pub fn read(address: Option<&str>, default: &Path) -> Result<Place, SqlError> {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Ok(Place::File(default.to_owned()));
        };
        let shown = without_password(address);
        let bad = |reason: String| SqlError::BadAddress {
            place: shown.clone(),
            reason,
        };
        match address.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let options = PgConnectOptions::from_str(address).map_err(|e| bad(reason(&e)))?;
                Ok(Place::Postgres(Box::new(options), shown))
            }
            Some(scheme @ ("mysql" | "mariadb")) => {
                let address = format!("mysql{}", &address[scheme.len()..]);
                let options =
                    MySqlConnectOptions::from_str(&address).map_err(|e| bad(reason(&e)))?;
                Ok(Place::MySql(Box::new(options), shown))
            }
            _ => Err(bad(
                "use postgres://user:password@host/database or mysql://user:password@host/database"
                    .to_owned(),
            )),
        }
    }

    /// Which database it is.
    pub fn dialect(&self) -> Dialect {
        match self {
            Place::File(_) => Dialect::Sqlite,
            Place::Postgres(..) => Dialect::Postgres,
            Place::MySql(..) => Dialect::MySql,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(f),
            Place::Postgres(_, shown) | Place::MySql(_, shown) => f.write_str(shown),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address without what stands between the first `:` of its user and the `@`, and without its
/// parameters, which may hold a password too.
pub fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return "…".to_owned();
    };
    // A password may hold anything, an @ and what begins parameters too; so may parameters.
    let bare = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
    match rest.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split([':', '?', '#']).next().unwrap_or_default();
            format!("{scheme}://{user}@{}", bare(host))
        }
        None => format!("{scheme}://{}", bare(rest)),
    }
}

/// An error of the address, which never repeats the address itself.
fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(source) => source.to_string(),
        _ => "it cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str) -> String {
        let place = Place::read(Some(address), Path::new("fleet.db")).unwrap();
        format!("{place} {place:?}")
    }

    #[test]
    fn no_password_is_ever_shown() {
        for address in [
            "postgres://ada:s3cret@db.example.org:5433/fleet?sslmode=verify-full",
            "mysql://ada:s3cret@db.example.org/fleet",
            "mariadb://ada:s3cret@db.example.org/fleet",
            "postgres://ada@db.example.org/fleet?password=s3cret",
            "postgres://ada:s3cret%23@db.example.org/fleet",
        ] {
            let shown = shown(address);
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("ada@db.example.org"), "{shown}");
        }
        assert_eq!(without_password("nonsense:s3cret"), "…");
        // Signs that ought to be written as %23, %3F and %40.
        for odd in ["s3c#ret", "s3c?ret", "s3c@ret", "s3c#r@t"] {
            let shown = without_password(&format!("postgres://ada:{odd}@db.example.org/x"));
            assert_eq!(shown, "postgres://ada@db.example.org/x");
        }
        let odd = "redis://ada:s3cret@db.example.org";
        let error = Place::read(Some(odd), Path::new("x")).unwrap_err();
        assert!(!base::report(&error).contains("s3cret"), "{error}");
    }

    #[test]
    fn without_an_address_it_is_a_file() {
        for address in [None, Some("")] {
            let place = Place::read(address, Path::new("a/fleet.db")).unwrap();
            assert_eq!(place.dialect(), Dialect::Sqlite);
            assert_eq!(place.to_string(), "a/fleet.db");
        }
    }
}
