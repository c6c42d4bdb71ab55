//! Classes that operators give agents.

use sql::{SqlError, Statement};

use super::Store;

/// What became of a class that was to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// It is given, by the change of this number.
    Given(i64),
    /// It is as it was, by the change of this number; 0: none was ever given.
    Same(i64),
    /// There is no such agent.
    NoAgent,
    /// There is no such class.
    NoClass,
}

impl Store {
    /// Writes the class that an operator gives an agent; none takes it back. Durable when this
    /// returns.
    pub async fn give_class(&self, agent: &str, class: Option<&str>) -> Result<Giving, SqlError> {
        let what = "give an agent a class";
        let (mut tx, seq) = self.begin().await?;
        if let Some(class) = class {
            let known = Statement::new("SELECT name FROM classes WHERE name = ?");
            if tx.row(what, &known.bind(class)).await?.is_none() {
                return Ok(Giving::NoClass);
            }
        }
        let select = Statement::new("SELECT given_class, given_seq FROM agents WHERE id = ?");
        let Some(row) = tx.row(what, &select.bind(agent)).await? else {
            return Ok(Giving::NoAgent);
        };
        let read = || Ok((row.maybe_text("given_class")?, row.number("given_seq")?));
        let (given, given_seq) = read().map_err(|error| tx.error(what, error))?;
        if given.as_deref() == class {
            return Ok(Giving::Same(given_seq));
        }
        let give = Statement::new(
            "UPDATE agents SET class = ?, given_class = ?, given_seq = ?, seq = ?, node = ?
             WHERE id = ?",
        );
        let give = give.bind(class).bind(class);
        let give = give.bind(seq).bind(seq).bind(self.node).bind(agent);
        tx.run(what, &give).await?;
        tx.commit(what).await?;
        Ok(Giving::Given(seq))
    }
}
