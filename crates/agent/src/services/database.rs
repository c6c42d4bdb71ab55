//! ODBCService: where a database is.

use std::sync::Arc;

use super::ServiceKind;
use crate::database::Place;
use crate::processors::{Dynamic, Expressions, PropertyKind};

/// What properties that want a database ask for; its type is [`Place`].
pub(crate) const ROLE: &str = "DatabaseService";

pub(super) const ODBC: ServiceKind = ServiceKind {
    name: "ODBCService",
    provides: ROLE,
    description: "Where a database is, for the processors of SQL: SQLite, PostgreSQL, MySQL and \
                  MariaDB. Drivers of ODBC are not needed and not used.",
    properties: &[PropertyKind::new(
        "Connection String",
        "As ODBC writes it, with a driver whose name says which database it is: \
         Driver={PostgreSQL};Server=host;Port=5432;Database=name;Uid=user;Pwd=password; or \
         sqlite:FILE, postgres://user:password@host/database, mysql://user:password@host/database.",
    )
    .required()
    .expressions(Expressions::Once)
    .sensitive()],
    dynamic: Dynamic::None,
    make: |settings| {
        let place = Place::read(&settings.needed("Connection String")?);
        Ok(Arc::new(
            place.map_err(|why| format!("Connection String: {why}"))?,
        ))
    },
};
