//! What operators and the control plane ask of the flow while it stays the same: processors that
//! rest, queues and states that are cleared.

use std::time::{Duration, Instant};

use super::{Supervisor, Updated};
use crate::AgentError;
use crate::engine::Engine;

impl Supervisor {
    /// Stops the processors of this id or name, or lets them go on.
    pub(crate) fn set_processor(&self, name: &str, runs: bool) -> Result<Updated, AgentError> {
        let _changing = self.changing.lock();
        let ids = self.with_engine(|engine| engine.find(name))?;
        if ids.is_empty() {
            let reason = format!("the flow has no processor '{name}'");
            return Err(AgentError::Refused(reason));
        }
        let changed = {
            let held = &mut self.running.lock().held;
            let change = |id: String| match runs {
                true => held.remove(&id),
                false => held.insert(id),
            };
            ids.into_iter()
                .map(change)
                .filter(|changed| *changed)
                .count()
        };
        if changed == 0 {
            return Ok(Updated::Same);
        }
        self.hold()?;
        Ok(Updated::Applied)
    }

    /// Holds all processors, or lets those go on that were not stopped by themselves.
    pub(crate) fn pause(&self, is_paused: bool) -> Result<Updated, AgentError> {
        let _changing = self.changing.lock();
        let before = std::mem::replace(&mut self.running.lock().is_paused, is_paused);
        if before == is_paused {
            return Ok(Updated::Same);
        }
        self.hold()?;
        Ok(Updated::Applied)
    }

    /// Drops what is queued in the connections of these ids or names; how many FlowFiles.
    pub(crate) fn clear(&self, connections: &[String]) -> Result<u64, AgentError> {
        let _changing = self.changing.lock();
        let mut ids = Vec::new();
        for name in connections {
            let found = self.with_engine(|engine| engine.find_connections(name))?;
            if found.is_empty() {
                let reason = format!("the flow has no connection '{name}'");
                return Err(AgentError::Refused(reason));
            }
            ids.extend(found);
        }
        self.with_engine(|engine| engine.clear(&ids))?
    }

    /// Drops everything queued, of parked connections as well; how many FlowFiles.
    pub(crate) fn clear_all(&self) -> Result<u64, AgentError> {
        let _changing = self.changing.lock();
        // What sessions hold would come back or go on: nobody may hold anything.
        let before = self.stop_engine();
        let now = self.ground.clock.now();
        let cleared = self.ground.repository.discard(now, &|_| true);
        self.resume_after_failure(before, true);
        cleared
    }

    /// Forgets what these processors remember (positions, sequences) and starts the flow anew.
    pub(crate) fn clear_state(&self, components: &[String]) -> Result<(), AgentError> {
        let _changing = self.changing.lock();
        let mut ids = Vec::new();
        for name in components {
            let found = self.with_engine(|engine| engine.find(name))?;
            if found.is_empty() {
                let reason = format!("the flow has no processor '{name}'");
                return Err(AgentError::Refused(reason));
            }
            ids.extend(found);
        }
        let before = self.stop_engine();
        let forget = |id: &String| self.ground.repository.save_state(id, bytes::Bytes::new());
        let forgotten = ids.iter().try_for_each(forget);
        self.resume_after_failure(before, true);
        forgotten
    }

    fn with_engine<T>(&self, work: impl FnOnce(&Engine) -> T) -> Result<T, AgentError> {
        match &self.running.lock().engine {
            Some(engine) => Ok(work(engine)),
            None => Err(AgentError::Refused("no flow is running".to_owned())),
        }
    }

    /// Has the engine hold what should be held, and waits until that is so.
    fn hold(&self) -> Result<(), AgentError> {
        let deadline = Instant::now() + self.times.grace;
        loop {
            let busy = {
                let running = self.running.lock();
                let Some(engine) = &running.engine else {
                    return Ok(());
                };
                engine.hold(|node| running.rests(node));
                engine.settle(Duration::ZERO)
            };
            match busy {
                None => return Ok(()),
                Some(name) if Instant::now() >= deadline => {
                    return Err(AgentError::Refused(format!(
                        "processor '{name}' is still at work; it stops when that is done"
                    )));
                }
                // Others may look meanwhile.
                Some(_) => std::thread::sleep(SETTLE_PAUSE),
            }
        }
    }
}

/// Pause between two looks at a processor that should come to rest.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);
