//! Where a database is: an address, or the words of an ODBC connection string.

use std::fmt;
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::sqlite::SqliteConnectOptions;

/// Where a database is and who the agent is to it. Shown without its secrets.
#[derive(Clone)]
pub(crate) struct Place(pub(super) Options);

#[derive(Clone)]
pub(super) enum Options {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
    MySql(Box<MySqlConnectOptions>),
}

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MySql,
}

impl Place {
    /// Reads `sqlite:FILE`, `postgres://…`, `mysql://…`, `mariadb://…`, or what ODBC writes:
    /// `Driver={PostgreSQL};Server=host;Port=5432;Database=name;Uid=user;Pwd=password`.
    ///
    /// Errors: it is none of these; the text never repeats what was given, which may hold a secret.
    pub(crate) fn read(text: &str) -> Result<Place, String> {
        let text = text.trim();
        let scheme = text.split(':').next().unwrap_or_default();
        let wrong = |error: sqlx::Error| match error {
            sqlx::Error::Configuration(source) => format!("the address cannot be read: {source}"),
            _ => "the address cannot be read".to_owned(),
        };
        Ok(Place(match scheme {
            "sqlite" => {
                let options = SqliteConnectOptions::from_str(text).map_err(wrong)?;
                Options::Sqlite(Box::new(options))
            }
            "postgres" | "postgresql" => {
                let options = PgConnectOptions::from_str(text).map_err(wrong)?;
                Options::Postgres(Box::new(options))
            }
            "mysql" | "mariadb" => {
                let address = format!("mysql{}", &text[scheme.len()..]);
                let options = MySqlConnectOptions::from_str(&address).map_err(wrong)?;
                Options::MySql(Box::new(options))
            }
            _ => Words::read(text)?.options()?,
        }))
    }

    /// Which database it is.
    pub(crate) fn kind(&self) -> Kind {
        match self.0 {
            Options::Sqlite(_) => Kind::Sqlite,
            Options::Postgres(_) => Kind::Postgres,
            Options::MySql(_) => Kind::MySql,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind(), f)
    }
}

/// The words of an ODBC connection string, names in small letters.
struct Words(Vec<(String, String)>);

impl Words {
    fn read(text: &str) -> Result<Words, String> {
        let mut words = Vec::new();
        let mut rest = text;
        while !rest.trim_start_matches([';', ' ']).is_empty() {
            rest = rest.trim_start_matches([';', ' ']);
            let (name, behind) = rest.split_once('=').ok_or(NO_PLACE)?;
            let value;
            // A value in braces may have semicolons, and a closing brace as two.
            (value, rest) = match behind.trim_start().strip_prefix('{') {
                Some(braced) => {
                    let mut value = String::new();
                    let mut left = braced;
                    loop {
                        let (piece, behind) = left.split_once('}').ok_or(NO_PLACE)?;
                        value.push_str(piece);
                        match behind.strip_prefix('}') {
                            Some(further) => {
                                value.push('}');
                                left = further;
                            }
                            None => break (value, behind),
                        }
                    }
                }
                None => {
                    let (value, behind) = behind.split_once(';').unwrap_or((behind, ""));
                    (value.trim().to_owned(), behind)
                }
            };
            words.push((name.trim().to_ascii_lowercase(), value));
        }
        Ok(Words(words))
    }

    fn get(&self, names: &[&str]) -> Option<&str> {
        let mut words = self.0.iter();
        let found = words.find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    }

    fn options(&self) -> Result<Options, String> {
        let driver = self.get(&["driver"]).ok_or(NO_PLACE)?.to_ascii_lowercase();
        let host = self
            .get(&["server", "host", "servername"])
            .unwrap_or("localhost");
        let port = match self.get(&["port"]) {
            None => None,
            Some(port) => Some(port.parse().map_err(|_| format!("'{port}' is no port"))?),
        };
        let database = self.get(&["database", "db"]);
        let user = self.get(&["uid", "user", "username"]);
        let password = self.get(&["pwd", "password"]);
        if driver.contains("sqlite") {
            let file = database.ok_or("SQLite needs Database=FILE")?;
            let options = SqliteConnectOptions::new().filename(file);
            return Ok(Options::Sqlite(Box::new(options.create_if_missing(true))));
        }
        if driver.contains("postgres") || driver.contains("psql") {
            let mut options = PgConnectOptions::new_without_pgpass().host(host);
            options = port.map_or(options.clone(), |port| options.port(port));
            options = database.map_or(options.clone(), |name| options.database(name));
            options = user.map_or(options.clone(), |user| options.username(user));
            options = password.map_or(options.clone(), |password| options.password(password));
            if let Some(mode) = self.get(&["sslmode"]) {
                let mode = PgSslMode::from_str(mode);
                options = options.ssl_mode(mode.map_err(|_| "the SSLmode is not known")?);
            }
            return Ok(Options::Postgres(Box::new(options)));
        }
        if driver.contains("mysql") || driver.contains("mariadb") {
            let mut options = MySqlConnectOptions::new().host(host);
            options = port.map_or(options.clone(), |port| options.port(port));
            options = database.map_or(options.clone(), |name| options.database(name));
            options = user.map_or(options.clone(), |user| options.username(user));
            options = password.map_or(options.clone(), |password| options.password(password));
            return Ok(Options::MySql(Box::new(options)));
        }
        Err(NO_PLACE.to_owned())
    }
}

const NO_PLACE: &str = "it names no database that is known: write sqlite:FILE, \
                        postgres://user:password@host/database, \
                        mysql://user:password@host/database, or \
                        Driver={…};Server=…;Database=…;Uid=…;Pwd=… with a driver of SQLite, \
                        PostgreSQL, MySQL or MariaDB";
