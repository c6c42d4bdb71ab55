//! A change of settings proves itself, or is taken back.
//!
//! `c2.properties.before` is what the control plane had set before the change; while it lies there,
//! the change is on trial. Each start counts itself in `c2.properties.tried` before it does
//! anything with the settings; a start that ends in order takes itself out again. The trial ends
//! well when the agent is up, and, where the change is about how the control plane is reached, has
//! reached it. It ends badly when starts fail, or when the control plane stays out of reach for
//! [`CHANGE_TRIAL_WAIT`]: then `c2.properties` is as before, and what it was lies in
//! `c2.properties.withdrawn`.
//!
//! Left out: a power cut that comes twice within the trial cannot be told from settings that crash
//! the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{LASTING, Overlay, overlay, parse, remove, write};
use crate::AgentError;
use crate::limits::CHANGE_TRIES_MAX;
use crate::whole_file;

/// A change that is to prove itself.
#[derive(Debug)]
pub(crate) struct Trial {
    dir: PathBuf,
    /// Whether it is about how the control plane is reached.
    is_about_contact: bool,
    is_over: AtomicBool,
}

/// What a start begins with.
pub(crate) struct Beginning {
    /// What the control plane set.
    pub(crate) overlay: Overlay,
    /// The change in it that is to prove itself.
    pub(crate) trial: Option<Trial>,
    /// Whether a change was taken back just now.
    pub(crate) is_withdrawn: bool,
}

/// Begins a start: what was for one start alone is used up by this.
pub(crate) fn begin(dir: &Path) -> Result<Beginning, AgentError> {
    let mut is_withdrawn = false;
    let mut trial = None;
    if dir.join(BEFORE).exists() {
        let found = Trial::of(dir)?;
        let tries = tries(dir);
        if tries >= CHANGE_TRIES_MAX {
            found.withdraw()?;
            is_withdrawn = true;
        } else {
            count(dir, tries + 1)?;
            trial = Some(found);
        }
    }
    Ok(Beginning {
        overlay: overlay(dir)?,
        trial,
        is_withdrawn,
    })
}

/// Keeps what holds now, for a change that comes; a change of a change on trial goes back to what
/// was before both.
pub(super) fn open(dir: &Path) -> Result<(), AgentError> {
    if !dir.join(BEFORE).exists() {
        write(&dir.join(BEFORE), &parse(&dir.join(LASTING))?)?;
    }
    remove(&dir.join(TRIED))
}

impl Trial {
    fn of(dir: &Path) -> Result<Trial, AgentError> {
        let before = parse(&dir.join(BEFORE))?;
        let mut now = parse(&dir.join(LASTING))?;
        now.extend(parse(&dir.join(super::ONCE))?);
        let keys = before.keys().chain(now.keys());
        let mut changed = keys.filter(|key| before.get(*key) != now.get(*key));
        let is_about_contact = |key: &String| CONTACT.iter().any(|part| key.starts_with(part));
        Ok(Trial {
            dir: dir.to_owned(),
            is_about_contact: changed.any(is_about_contact),
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }

    /// The agent is up; the control plane was reached where `is_heard`.
    pub(crate) fn is_up(&self, is_heard: bool) {
        if self.is_about_contact && !is_heard {
            return;
        }
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        // If one of them stays, the next start is one more trial.
        let removed = remove(&self.dir.join(BEFORE)).and_then(|()| remove(&self.dir.join(TRIED)));
        match removed {
            Ok(()) => tracing::info!("the control plane's change of settings has proved itself"),
            Err(error) => tracing::warn!("{}", base::report(&error)),
        }
    }

    /// The start ends in order before the trial did: it does not count.
    pub(crate) fn is_put_off(&self) {
        if self.is_open()
            && let Err(error) = count(&self.dir, tries(&self.dir).saturating_sub(1))
        {
            tracing::warn!("{}", base::report(&error));
        }
    }

    /// Takes the change back; says whether it was still on trial.
    pub(crate) fn withdraw(&self) -> Result<bool, AgentError> {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        // What comes back comes back at once; a crash before that leaves the trial open.
        let (lasting, before) = (self.dir.join(LASTING), self.dir.join(BEFORE));
        write(&self.dir.join(WITHDRAWN), &parse(&lasting)?)?;
        fs::rename(&before, &lasting).map_err(|source| AgentError::File {
            action: "rename",
            path: before,
            source,
        })?;
        remove(&self.dir.join(super::ONCE))?;
        remove(&self.dir.join(TRIED))?;
        Ok(true)
    }
}

fn tries(dir: &Path) -> u32 {
    let text = fs::read_to_string(dir.join(TRIED)).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn count(dir: &Path, tries: u32) -> Result<(), AgentError> {
    let path = dir.join(TRIED);
    whole_file::write(&path, tries.to_string().as_bytes()).map_err(|source| AgentError::File {
        action: "write",
        path,
        source,
    })
}

/// Settings by which the control plane is reached begin so.
const CONTACT: [&str; 2] = ["nifi.c2.", "nifi.security."];

/// What the control plane had set before the change on trial.
const BEFORE: &str = "c2.properties.before";

/// How many starts the trial has had.
const TRIED: &str = "c2.properties.tried";

/// Settings with which the agent did not come up.
const WITHDRAWN: &str = "c2.properties.withdrawn";

#[cfg(test)]
mod tests {
    use super::super::{Change, Told};
    use super::*;

    fn told(dir: &Path) -> Told {
        Told {
            dir: dir.to_owned(),
            ..Told::default()
        }
    }

    fn change(dir: &Path, key: &str, value: &str) {
        let change = Change {
            key: key.to_owned(),
            value: value.to_owned(),
            persists: true,
        };
        told(dir).record(&[change]).unwrap();
    }

    fn value(beginning: &Beginning, key: &str) -> Option<String> {
        beginning.overlay.get(key).cloned()
    }

    #[test]
    fn a_change_that_comes_up_stays() {
        let dir = tempfile::tempdir().unwrap();
        change(dir.path(), "a", "1");
        let first = begin(dir.path()).unwrap();
        assert_eq!(value(&first, "a").as_deref(), Some("1"));
        let trial = first.trial.unwrap();
        assert!(trial.is_open());
        trial.is_up(false);
        assert!(!trial.is_open());
        assert!(!trial.withdraw().unwrap(), "it is over");
        for _ in 0..5 {
            let later = begin(dir.path()).unwrap();
            assert!(later.trial.is_none());
            assert_eq!(value(&later, "a").as_deref(), Some("1"));
        }
    }

    #[test]
    fn a_change_with_which_starts_crash_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        change(dir.path(), "a", "1");
        begin(dir.path()).unwrap().trial.unwrap().is_up(false);
        change(dir.path(), "a", "2");
        // A change of the change goes back to what has proved itself.
        change(dir.path(), "b", "3");
        for _ in 0..CHANGE_TRIES_MAX {
            let crashes = begin(dir.path()).unwrap();
            assert_eq!(value(&crashes, "a").as_deref(), Some("2"));
            assert!(crashes.trial.is_some() && !crashes.is_withdrawn);
        }
        let after = begin(dir.path()).unwrap();
        assert!(after.is_withdrawn && after.trial.is_none());
        assert_eq!(value(&after, "a").as_deref(), Some("1"));
        assert_eq!(value(&after, "b"), None);
        assert!(
            parse(&dir.path().join(WITHDRAWN))
                .unwrap()
                .contains_key("b")
        );
        assert!(!begin(dir.path()).unwrap().is_withdrawn, "it is said once");
    }

    #[test]
    fn starts_that_end_in_order_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        change(dir.path(), "a", "1");
        for _ in 0..10 {
            let start = begin(dir.path()).unwrap();
            assert_eq!(value(&start, "a").as_deref(), Some("1"));
            start.trial.unwrap().is_put_off();
        }
    }

    #[test]
    fn a_change_of_the_way_to_the_control_plane_needs_it_to_be_reached() {
        let dir = tempfile::tempdir().unwrap();
        change(dir.path(), "nifi.c2.rest.url", "http://nowhere");
        let trial = begin(dir.path()).unwrap().trial.unwrap();
        trial.is_up(false);
        assert!(trial.is_open());
        assert!(trial.withdraw().unwrap());
        assert_eq!(begin(dir.path()).unwrap().overlay, Overlay::new());
        change(dir.path(), "nifi.c2.rest.url", "http://there");
        let trial = begin(dir.path()).unwrap().trial.unwrap();
        trial.is_up(true);
        assert!(!trial.is_open());
    }

    #[test]
    fn a_change_for_one_start_is_on_trial_too() {
        let dir = tempfile::tempdir().unwrap();
        let once = Change {
            key: "nifi.c2.rest.url".to_owned(),
            value: "http://nowhere".to_owned(),
            persists: false,
        };
        told(dir.path()).record(&[once]).unwrap();
        let start = begin(dir.path()).unwrap();
        assert_eq!(
            value(&start, "nifi.c2.rest.url").as_deref(),
            Some("http://nowhere")
        );
        let trial = start.trial.unwrap();
        trial.is_up(false);
        assert!(trial.is_open(), "it is about the way to the control plane");
    }
}
