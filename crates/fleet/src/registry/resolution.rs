//! Which manifest stands for a class: what flows are checked against, when its agents have several.

use std::sync::Arc;

use base::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{Class, Registry};
use crate::limits;

/// How a class's manifest is found among its agents'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// By a rule.
    Rule(ManifestRule),
    /// It is this one, and only whoever set it that way sets another one.
    Pinned(Arc<str>),
    /// It is this one until another one is named.
    Named(Arc<str>),
}

/// A rule by which a class's manifest is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestRule {
    /// The first that an agent of the class had.
    First,
    /// The one that an agent of the class came with last.
    Last,
    /// The one that most of the class's agents have.
    Most,
}

/// A manifest that agents of a class had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenManifest {
    /// Its key.
    pub hash: Arc<str>,
    /// When an agent first came with it.
    pub first: UnixMillis,
    /// When an agent last came with it, that had none or another one before.
    pub last: UnixMillis,
}

impl ManifestRule {
    /// The word in the API, the configuration and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ManifestRule::First => "first",
            ManifestRule::Last => "last",
            ManifestRule::Most => "most",
        }
    }

    /// The rule of this word.
    pub fn named(word: &str) -> Option<ManifestRule> {
        let all = [ManifestRule::First, ManifestRule::Last, ManifestRule::Most];
        all.into_iter().find(|rule| rule.as_str() == word)
    }
}

impl Resolution {
    /// As the API and the database have it: a word, and the manifest where it is one alone.
    pub fn parts(&self) -> (&'static str, Option<&Arc<str>>) {
        match self {
            Resolution::Rule(rule) => (rule.as_str(), None),
            Resolution::Pinned(hash) => ("pinned", Some(hash)),
            Resolution::Named(hash) => ("named", Some(hash)),
        }
    }

    /// What its parts say; none where they do not go together.
    pub fn of_parts(word: &str, hash: Option<&str>) -> Option<Resolution> {
        match (ManifestRule::named(word), hash) {
            (Some(rule), None) => Some(Resolution::Rule(rule)),
            (None, Some(hash)) if word == "pinned" => Some(Resolution::Pinned(Arc::from(hash))),
            (None, Some(hash)) if word == "named" => Some(Resolution::Named(Arc::from(hash))),
            _ => None,
        }
    }
}

impl Class {
    /// Notes that an agent of the class came with this manifest; tells whether that is to be
    /// written.
    pub(super) fn see_manifest(&mut self, hash: &Arc<str>, now: UnixMillis) -> bool {
        let newest = self.seen.iter().max_by_key(|seen| seen.last);
        if newest.is_some_and(|newest| newest.hash == *hash) {
            return false;
        }
        if let Some(known) = self.seen.iter_mut().find(|seen| seen.hash == *hash) {
            known.last = known.last.max(now);
            return true;
        }
        if self.seen.len() >= limits::CLASS_MANIFESTS_MAX {
            // The first one stays, whatever the rule is.
            let oldest = self.seen.iter().enumerate().skip(1);
            if let Some((index, _)) = oldest.min_by_key(|(_, seen)| seen.last) {
                self.seen.remove(index);
            }
        }
        self.seen.push(SeenManifest {
            hash: hash.clone(),
            first: now,
            last: now,
        });
        true
    }

    /// Takes over what another node saw, or what was stored.
    pub(super) fn adopt_seen(&mut self, seen: SeenManifest) {
        match self.seen.iter_mut().find(|known| known.hash == seen.hash) {
            Some(known) => {
                known.first = known.first.min(seen.first);
                known.last = known.last.max(seen.last);
            }
            None => self.seen.push(seen),
        }
        self.seen.sort_by_key(|seen| seen.first);
    }
}

impl Registry {
    /// Notes with which manifest an agent came.
    pub(super) fn see_manifest(&mut self, agent: &str, now: UnixMillis) {
        let Some(agent) = self.agents.get(agent) else {
            return;
        };
        let (Some(class), Some(hash)) = (agent.class.clone(), agent.manifest.clone()) else {
            return;
        };
        let Some(found) = self.classes.get_mut(&class) else {
            return;
        };
        if found.see_manifest(&hash, now) {
            let seen = found.seen.iter().find(|seen| seen.hash == hash).cloned();
            self.seen.extend(seen.map(|seen| (class, seen)));
        }
    }

    /// The class's manifest by its own way or, without one, by this rule; `most` is the one that
    /// most of its agents have. One that has not been described yet is passed over.
    pub fn resolve_manifest(
        &self,
        class: &str,
        rule: ManifestRule,
        most: impl FnOnce() -> Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let class = self.classes.get(class)?;
        let rule = match &class.resolution {
            Some(Resolution::Pinned(hash) | Resolution::Named(hash)) => return Some(hash.clone()),
            Some(Resolution::Rule(rule)) => *rule,
            None => rule,
        };
        let known = class
            .seen
            .iter()
            .filter(|seen| self.knows_manifest(&seen.hash));
        match rule {
            ManifestRule::First => known.min_by_key(|seen| seen.first),
            ManifestRule::Last => known.max_by_key(|seen| seen.last),
            ManifestRule::Most => return most(),
        }
        .map(|seen| seen.hash.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(seen: &[(&str, i64)]) -> Class {
        let mut class = Class::new(UnixMillis(0));
        for (hash, at) in seen {
            class.see_manifest(&Arc::from(*hash), UnixMillis(*at));
        }
        class
    }

    fn registry(class: Class, known: &[&str]) -> Registry {
        let mut registry = Registry::default();
        for hash in known {
            let head = Arc::new(c2::AgentManifest::default());
            registry.manifests.insert(Arc::from(*hash), head);
        }
        registry.classes.insert(Arc::from("edge"), class);
        registry
    }

    fn found(registry: &Registry, rule: ManifestRule) -> Option<String> {
        let most = || Some(Arc::from("most"));
        let found = registry.resolve_manifest("edge", rule, most);
        found.map(|hash| hash.to_string())
    }

    #[test]
    fn the_rule_decides_and_what_is_not_described_is_passed_over() {
        let class = class(&[("a", 1), ("b", 2), ("c", 3), ("b", 4)]);
        let all = registry(class.clone(), &["a", "b", "c"]);
        assert_eq!(found(&all, ManifestRule::First).as_deref(), Some("a"));
        assert_eq!(found(&all, ManifestRule::Last).as_deref(), Some("b"));
        assert_eq!(found(&all, ManifestRule::Most).as_deref(), Some("most"));
        let some = registry(class, &["c"]);
        assert_eq!(found(&some, ManifestRule::First).as_deref(), Some("c"));
        assert_eq!(found(&some, ManifestRule::Last).as_deref(), Some("c"));
    }

    #[test]
    fn a_class_has_its_own_way() {
        let mut class = class(&[("a", 1), ("b", 2)]);
        class.resolution = Some(Resolution::Rule(ManifestRule::Last));
        let all = registry(class.clone(), &["a", "b"]);
        assert_eq!(found(&all, ManifestRule::First).as_deref(), Some("b"));
        class.resolution = Some(Resolution::Pinned(Arc::from("x")));
        let pinned = registry(class.clone(), &["a", "b"]);
        assert_eq!(found(&pinned, ManifestRule::First).as_deref(), Some("x"));
        class.resolution = Some(Resolution::Named(Arc::from("y")));
        let named = registry(class, &["a", "b"]);
        assert_eq!(found(&named, ManifestRule::First).as_deref(), Some("y"));
    }

    #[test]
    fn many_agents_with_one_manifest_write_it_once_and_many_manifests_are_bounded() {
        let mut class = class(&[]);
        let hash = Arc::from("a");
        let written = (0..1_000).filter(|at| class.see_manifest(&hash, UnixMillis(*at)));
        assert_eq!(written.count(), 1);
        for at in 0..2 * limits::CLASS_MANIFESTS_MAX {
            class.see_manifest(&Arc::from(format!("{at}")), UnixMillis(at as i64));
        }
        assert_eq!(class.seen.len(), limits::CLASS_MANIFESTS_MAX);
        assert_eq!(&*class.seen[0].hash, "a", "the first one stays");
    }
}
