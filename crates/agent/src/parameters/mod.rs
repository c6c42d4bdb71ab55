//! Parameters: values that flows name as `#{name}` and that contexts hold, inherit and are given.
//!
//! - A context's own parameter goes before an inherited one, and an earlier inherited context
//!   before a later. Contexts that inherit from each other in a ring are refused.
//! - A process group sees its own context alone, as in NiFi.
//! - A sensitive parameter may only feed a sensitive property, and a sensitive property takes
//!   sensitive parameters only, so that no secret shows by way of a plain name.
//! - Sensitive values may be written sealed, `enc{…}` ([`secret`]).
//! - Providers make contexts ([`provider`]); `@{asset-id:…}` stands for an asset's path.

pub mod provider;
pub mod secret;
mod text;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::AgentError;

pub use secret::SecretKey;

/// What a flow may look at outside of its own text.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The environment's variables, for providers.
    pub environment: BTreeMap<String, String>,
    /// Assets' files by id.
    pub assets: BTreeMap<String, PathBuf>,
    /// Opens sealed values.
    pub key: Option<SecretKey>,
}

/// Where what flows may look at is found.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Folder of assets.
    pub assets: PathBuf,
    /// Opens sealed values.
    pub key: Option<SecretKey>,
}

impl Outside {
    /// What is there now.
    ///
    /// Errors: the asset folder's list cannot be read.
    pub fn surroundings(&self) -> Result<Surroundings, AgentError> {
        Surroundings::of_process(&self.assets, self.key.clone())
    }
}

/// The list of assets in their folder.
pub(crate) const ASSET_LIST: &str = ".state";

/// One parameter of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// None, where a provider or an inherited context is to give it.
    pub(crate) value: Option<String>,
    pub(crate) is_sensitive: bool,
    pub(crate) is_provided: bool,
}

/// A context as written or as a provider made it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) name: String,
    /// Where it stands in the text.
    pub(crate) path: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) inherited: Vec<String>,
    /// Id of the provider that gives values, empty where none does.
    pub(crate) provider: String,
}

/// All contexts of a flow, by name.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    by_name: HashMap<String, Context>,
}

impl Surroundings {
    /// What is around this process: its environment, and what lies in `assets` and opens by `key`.
    ///
    /// Errors: the asset folder's list cannot be read.
    pub fn of_process(assets: &Path, key: Option<SecretKey>) -> Result<Self, AgentError> {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Ok(Surroundings {
            environment: environment.collect(),
            assets: assets_in(assets)?,
            key,
        })
    }
}

/// Assets' files by id, from the list `.state` that asset synchronization keeps in its folder:
/// `{"assets": {ID: {"path": FILE}}}`, paths relative to the folder.
fn assets_in(folder: &Path) -> Result<BTreeMap<String, PathBuf>, AgentError> {
    let path = folder.join(ASSET_LIST);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = crate::supervisor::read(&path)?;
    let state: Value = serde_json::from_str(&text).map_err(|source| AgentError::File {
        action: "read",
        path: path.clone(),
        source: source.into(),
    })?;
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let assets = state["assets"].as_object().into_iter().flatten();
    let files = assets.filter_map(|(id, asset)| {
        let file = asset["path"].as_str()?;
        Some((id.clone(), folder.join(file)))
    });
    Ok(files.collect())
}

impl Contexts {
    /// Takes contexts; says what is wrong among them, each with its place.
    pub(crate) fn new(contexts: Vec<Context>) -> (Self, Vec<(String, String)>) {
        let mut wrong = Vec::new();
        let mut by_name: HashMap<String, Context> = HashMap::new();
        let paths: Vec<(String, String)> = contexts
            .iter()
            .map(|context| (context.name.clone(), context.path.clone()))
            .collect();
        for context in contexts {
            let mut seen = HashSet::new();
            for parameter in &context.parameters {
                if !seen.insert(parameter.name.clone()) {
                    let message = format!("has the parameter '{}' twice", parameter.name);
                    wrong.push((context.path.clone(), message));
                }
            }
            if let Some(before) = by_name.get(&context.name) {
                let message = format!("the name is that of {} too; give each its own", before.path);
                wrong.push((context.path.clone(), message));
                continue;
            }
            by_name.insert(context.name.clone(), context);
        }
        let contexts = Contexts { by_name };
        for (name, path) in paths {
            for inherited in contexts.inherited(&name) {
                if !contexts.by_name.contains_key(inherited) {
                    let message = format!("inherits from '{inherited}', which is no context");
                    wrong.push((path.clone(), message));
                } else if contexts.reaches(inherited, &name) {
                    let message = format!("inherits from itself, by way of '{inherited}'");
                    wrong.push((path.clone(), message));
                }
            }
        }
        (contexts, wrong)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Puts parameters into `text`; the error says why it cannot be done.
    pub(crate) fn substitute(
        &self,
        context: Option<&str>,
        text: &str,
        is_sensitive: bool,
    ) -> Result<String, String> {
        text::substitute(text, &mut |name| {
            let Some(context) = context else {
                return Err(format!(
                    "'#{{{name}}}' is a parameter, and the process group has no parameter context"
                ));
            };
            let Some(parameter) = self.find(context, name) else {
                return Err(format!("the context '{context}' has no parameter '{name}'"));
            };
            match (parameter.is_sensitive, is_sensitive) {
                (true, false) => Err(format!(
                    "the parameter '{name}' is sensitive, and this property is not"
                )),
                (false, true) => Err(format!(
                    "this property is sensitive, and the parameter '{name}' is not: mark it \
                     sensitive"
                )),
                _ => parameter
                    .value
                    .clone()
                    .ok_or_else(|| format!("the parameter '{name}' has no value")),
            }
        })
    }

    /// The parameter as `context` sees it: its own, else the first inherited one.
    fn find(&self, context: &str, name: &str) -> Option<&Parameter> {
        let mut seen = HashSet::new();
        let mut open = vec![context];
        let mut without_value = None;
        while let Some(at) = open.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(context) = self.by_name.get(at) else {
                continue;
            };
            match context.parameters.iter().find(|own| own.name == name) {
                Some(own) if own.value.is_some() => return Some(own),
                Some(own) => without_value = without_value.or(Some(own)),
                None => {}
            }
            open.extend(context.inherited.iter().rev().map(String::as_str));
        }
        without_value
    }

    fn inherited(&self, name: &str) -> &[String] {
        self.by_name
            .get(name)
            .map_or(&[], |context| context.inherited.as_slice())
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        let mut seen = HashSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if at == to {
                return true;
            }
            if seen.insert(at) {
                open.extend(self.inherited(at).iter().map(String::as_str));
            }
        }
        false
    }
}

impl Surroundings {
    /// Puts assets' paths into `text`.
    pub(crate) fn place_assets(&self, text: &str) -> Result<String, String> {
        text::place_assets(text, &mut |id| {
            let file = self.assets.get(id).ok_or_else(|| {
                format!("there is no asset '{id}' here yet; the control plane's sync brings it")
            })?;
            Ok(file.display().to_string())
        })
    }

    /// Opens a sealed value; others stay as they are.
    pub(crate) fn open(&self, text: &str) -> Result<String, String> {
        if !secret::is_sealed(text) {
            return Ok(text.to_owned());
        }
        match &self.key {
            Some(key) => key.open(text),
            None => Err(format!(
                "the value is sealed, and there is no key: put {} into the data folder or set \
                 nifi.bootstrap.sensitive.properties.key",
                secret::KEY_FILE
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(name: &str, value: Option<&str>, is_sensitive: bool) -> Parameter {
        Parameter {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            is_sensitive,
            is_provided: false,
        }
    }

    fn context(name: &str, parameters: Vec<Parameter>, inherited: &[&str]) -> Context {
        Context {
            name: name.to_owned(),
            path: format!("Parameter Contexts '{name}'"),
            parameters,
            inherited: inherited.iter().map(|name| (*name).to_owned()).collect(),
            provider: String::new(),
        }
    }

    #[test]
    fn own_parameters_go_before_inherited_and_earlier_before_later() {
        let (contexts, wrong) = Contexts::new(vec![
            context("a", vec![parameter("x", Some("own"), false)], &["b", "c"]),
            context(
                "b",
                vec![
                    parameter("x", Some("b's"), false),
                    parameter("y", Some("b's"), false),
                ],
                &["d"],
            ),
            context(
                "c",
                vec![
                    parameter("y", Some("c's"), false),
                    parameter("z", Some("c's"), false),
                ],
                &[],
            ),
            context("d", vec![parameter("z", Some("d's"), false)], &[]),
        ]);
        assert_eq!(wrong, []);
        let all = contexts.substitute(Some("a"), "#{x} #{y} #{z}", false);
        assert_eq!(all.as_deref(), Ok("own b's d's"));
        let error = contexts.substitute(Some("c"), "#{x}", false).unwrap_err();
        assert!(error.contains("'c' has no parameter 'x'"), "{error}");
        let error = contexts.substitute(None, "#{x}", false).unwrap_err();
        assert!(error.contains("has no parameter context"), "{error}");
    }

    #[test]
    fn secrets_feed_secrets_only() {
        let (contexts, _) = Contexts::new(vec![context(
            "a",
            vec![
                parameter("plain", Some("1"), false),
                parameter("secret", Some("2"), true),
                parameter("void", None, false),
            ],
            &[],
        )]);
        let of = |text: &str, sensitive| contexts.substitute(Some("a"), text, sensitive);
        assert_eq!(of("#{secret}", true).as_deref(), Ok("2"));
        for (text, sensitive, message) in [
            ("#{secret}", false, "is sensitive, and this property is not"),
            ("#{plain}", true, "mark it sensitive"),
            ("#{void}", false, "has no value"),
        ] {
            let error = of(text, sensitive).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn rings_strangers_and_doubles_are_named() {
        let (_, wrong) = Contexts::new(vec![
            context("a", vec![], &["b"]),
            context("b", vec![], &["a", "nobody"]),
            context("b", vec![], &[]),
        ]);
        let all = format!("{wrong:?}");
        for message in [
            "'a' inherits from itself, by way of 'b'",
            "which is no context",
            "the name is that of",
        ] {
            let flat = all.replace("\", \"", " ");
            assert!(flat.contains(message), "{flat}");
        }
    }

    #[test]
    fn assets_are_known_by_the_list_in_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(assets_in(dir.path()).unwrap().is_empty());
        let list = r#"{"digest": "d", "assets": {"a-1": {"path": "models/m.bin", "url": "u"}}}"#;
        std::fs::write(dir.path().join(".state"), list).unwrap();
        let surroundings = Surroundings {
            assets: assets_in(dir.path()).unwrap(),
            ..Surroundings::default()
        };
        let file = dir.path().join("models/m.bin").display().to_string();
        assert_eq!(
            surroundings.place_assets("-f @{asset-id:a-1}"),
            Ok(format!("-f {file}"))
        );
        let error = surroundings.place_assets("@{asset-id:b}").unwrap_err();
        assert!(error.contains("no asset 'b'"), "{error}");
    }
}
