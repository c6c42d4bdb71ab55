//! What must be the same of all statements of a group, as its log holds it.
//!
//! Forms are compared by what they say and not by how they are written: what a log does not say, since
//! an earlier version wrote it, is as it is without being said.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::formats::Format;
use crate::lane::Lane;
use crate::plan::Policies;
use crate::sinks::OutputForm;
use crate::statement::Language;

/// A statement's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    text: String,
    language: Language,
    lateness_ms: i64,
    format: Option<Format>,
    output: OutputForm,
    targets: Vec<String>,
    policies: Option<Policies>,
    /// The modules whose functions it calls, with what tells their contents apart.
    modules: BTreeMap<String, String>,
}

impl Form {
    /// The form of a lane's statement.
    pub(super) fn of(lane: &Lane) -> Form {
        let definition = &lane.definition;
        let calls = lane.plan.calls.as_ref();
        Form {
            text: definition.text.clone(),
            language: definition.language,
            lateness_ms: definition.lateness_ms,
            format: definition.format,
            output: definition.output,
            targets: definition.targets.clone(),
            policies: definition.policies.clone(),
            modules: calls.map_or_else(BTreeMap::new, |calls| calls.modules()),
        }
    }

    /// As a log holds it.
    pub(super) fn bytes(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// What differs of the form that a log holds; none where it is the same.
    pub(super) fn difference(&self, kept: &[u8]) -> Option<String> {
        match serde_json::from_slice::<Form>(kept) {
            Ok(kept) if kept == *self => None,
            Ok(kept) if kept.text == self.text && kept.modules != self.modules => {
                Some("calls modules of functions of other content".to_owned())
            }
            Ok(kept) => Some(format!(
                "runs another statement or policies (its text: {})",
                kept.text
            )),
            Err(error) => Some(format!("is in a form of another version ({error})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_what_it_says_however_it_is_written() {
        let form = Form {
            text: "SELECT 1".to_owned(),
            policies: Some(Policies {
                group: Some("g".to_owned()),
                ..Policies::default()
            }),
            ..Form::default()
        };
        assert_eq!(form.difference(&form.bytes()), None);
        // An earlier version knew less to say.
        let earlier = br#"{"policies":{"group":"g"},"lateness_ms":0,"text":"SELECT 1"}"#;
        assert_eq!(form.difference(earlier), None);
        for (other, why) in [
            (
                r#"{"text":"SELECT 2","policies":{"group":"g"}}"#,
                "SELECT 2",
            ),
            (
                r#"{"text":"SELECT 1","policies":{"group":"h"}}"#,
                "policies",
            ),
            (
                r#"{"text":"SELECT 1","policies":{"group":"g"},"modules":{"m":"1"}}"#,
                "modules of functions",
            ),
            (
                r#"{"text":"SELECT 1","policies":{"newer":1}}"#,
                "another version",
            ),
        ] {
            let told = form.difference(other.as_bytes()).unwrap();
            assert!(told.contains(why), "{told}");
        }
    }
}
