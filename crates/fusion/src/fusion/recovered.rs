//! Statements that were there when the engine opened: started at once, or when their event store is
//! back.

use std::sync::{Arc, Weak};

use streams::StreamsError;

use super::Fusion;
use super::prepare::{compile, effective_sinks};
use super::sources::Prepared;
use crate::error::FusionError;
use crate::limits::RETRY_WAIT;
use crate::plan::{Plan, Sink};
use crate::statement::{Definition, Language};
use crate::store::Recovered;

impl Fusion {
    /// Starts statements with their state, and sees to those that cannot be started yet.
    pub(super) async fn start_again(self: &Arc<Self>, recovered: Vec<Recovered>) {
        let away = self.start_recovered(recovered, false).await;
        self.sweep_inputs();
        if !away.is_empty() {
            self.readers.spawn(start_later(Arc::downgrade(self), away));
        }
    }

    /// Starts statements with their state; answers those whose event store is away. `again` when
    /// it was tried before: then one that is not listed was removed meanwhile.
    async fn start_recovered(&self, recovered: Vec<Recovered>, again: bool) -> Vec<Recovered> {
        let mut sources = self.sources.lock().await;
        let (mut prepared, mut away) = (Vec::with_capacity(recovered.len()), Vec::new());
        if sources.is_closed {
            return away;
        }
        // Why the event store is away: the first to wait for it has waited for all.
        let mut reason = None;
        // What others read comes first.
        let (mut created, mut others) = (Vec::new(), Vec::new());
        for recovered in recovered {
            match may_create(&recovered.definition) {
                true => created.push(recovered),
                false => others.push(recovered),
            }
        }
        for recovered in created {
            let plan = compile(&recovered.definition, &self.catalog());
            let ready = match plan {
                Ok(plan) => self.prepare_recovered(&recovered, plan).await,
                Err(error) => Err(error),
            };
            let started = match ready {
                Ok(ready) => self.start(&mut sources, vec![ready]),
                Err(error) => Err(error),
            };
            if let Err(error) = started {
                self.list_failed(recovered.definition.clone(), &error);
            }
        }
        let catalog = self.catalog();
        for mut recovered in others {
            if again {
                // It may have been paused meanwhile, or removed.
                let Some(definition) = self.waiting(&recovered) else {
                    continue;
                };
                recovered.definition = definition;
            }
            let started = match (&reason, compile(&recovered.definition, &catalog)) {
                (Some(reason), Ok(plan)) if needs_store(&recovered.definition, &plan) => {
                    Err(FusionError::Streams {
                        doing: "start the statement".to_owned(),
                        source: Arc::clone(reason),
                    })
                }
                (_, Ok(plan)) => self.prepare_recovered(&recovered, plan).await,
                (_, Err(error)) => Err(error),
            };
            match started {
                Ok(ready) => prepared.push(ready),
                Err(error) => {
                    self.list_failed(recovered.definition.clone(), &error);
                    self.hold_publishers(&mut sources, &recovered.definition);
                    if let Some(why) = away_by(&error) {
                        reason = Some(why);
                        away.push(recovered);
                    }
                }
            }
        }
        // All of a source's statements join before it is opened: none misses what another sees.
        if let Err(error) = self.start(&mut sources, prepared) {
            tracing::error!(error = %base::report(&error), "statements could not be started");
        }
        away
    }

    async fn prepare_recovered(
        &self,
        recovered: &Recovered,
        plan: Plan,
    ) -> Result<Prepared, FusionError> {
        let checkpoint = recovered.checkpoint.as_ref();
        let definition = recovered.definition.clone();
        self.prepare(definition, Arc::new(plan), checkpoint).await
    }

    /// Whether the event store is still away, by a statement that needs it.
    async fn is_still_away(&self, recovered: &Recovered) -> bool {
        let Ok(plan) = compile(&recovered.definition, &self.catalog()) else {
            return false;
        };
        // Prepared for nothing: adding and removing must not wait for a store that is away.
        let tried = self.prepare_recovered(recovered, plan).await;
        tried.is_err_and(|error| away_by(&error).is_some())
    }

    /// A statement as it is listed, where it is listed as one that could not be started.
    fn waiting(&self, recovered: &Recovered) -> Option<Definition> {
        let statements = self.statements.read();
        let listed = statements.get(&recovered.definition.id)?;
        listed.run.is_err().then(|| listed.definition.clone())
    }
}

/// Starts the statements when their event store is back, unless they are removed before.
async fn start_later(fusion: Weak<Fusion>, mut away: Vec<Recovered>) {
    let mut wait = RETRY_WAIT.0;
    while let Some(stop) = fusion.upgrade().map(|fusion| fusion.reading.clone()) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(RETRY_WAIT.1);
        let Some(fusion) = fusion.upgrade() else {
            return;
        };
        let Some(first) = away
            .iter()
            .find(|recovered| fusion.waiting(recovered).is_some())
        else {
            return;
        };
        let is_still_away = tokio::select! {
            () = stop.cancelled() => return,
            is_still_away = fusion.is_still_away(first) => is_still_away,
        };
        if !is_still_away {
            tracing::info!("the event store is back: its statements are started");
            away = fusion.start_recovered(away, true).await;
        }
    }
}

/// Whether a statement may create a named window or table; its text is not read closely.
fn may_create(definition: &Definition) -> bool {
    let text = definition.text.to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    let creates = |pair: &[&str]| {
        pair[0] == "create" && (pair[1].starts_with("window") || pair[1].starts_with("table"))
    };
    definition.language == Language::Epl && words.windows(2).any(creates)
}

fn needs_store(definition: &Definition, plan: &Plan) -> bool {
    let sinks = effective_sinks(definition, plan).unwrap_or_default();
    let writes = sinks.iter().any(|sink| matches!(sink, Sink::Kafka(_)));
    writes || plan.kafka_topics().next().is_some()
}

/// Why the event store is away, if that is the error.
fn away_by(error: &FusionError) -> Option<Arc<StreamsError>> {
    match error {
        FusionError::Streams { source, .. } if matches!(**source, StreamsError::Unavailable(_)) => {
            Some(Arc::clone(source))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::tests::house::{House, new};

    #[tokio::test(flavor = "multi_thread")]
    async fn who_is_paused_while_the_store_is_away_stays_so_when_it_is_back() {
        let house = House::open().await;
        let fusion = &house.fusion;
        let text = "INSERT INTO kafka.out SELECT v FROM mqtt.\"in\"";
        let made = fusion.definition("m".to_owned(), "m".to_owned(), new("m", text));
        let definition = made.unwrap();
        let away = FusionError::Streams {
            doing: "start the statement".to_owned(),
            source: Arc::new(StreamsError::Unavailable("away".to_owned())),
        };
        fusion.list_failed(definition.clone(), &away);
        fusion.pause("m").await.unwrap();
        let recovered = Recovered {
            definition,
            checkpoint: None,
        };
        let left = fusion.start_recovered(vec![recovered], true).await;
        assert!(left.is_empty());
        assert_eq!(fusion.statement("m").unwrap().status, Status::Paused);
        house.close().await;
    }
}
