//! Puts parameters, assets and opened secrets into properties, before they are checked.

use std::collections::HashMap;

use super::idle::Notes;
use super::read::{RawFlow, RawService};
use super::{Problems, check};
use crate::parameters::provider::{self, PROVIDERS};
use crate::parameters::{Context, Contexts, Surroundings};
use crate::processors::{Dynamic, PropertyKind};

/// What properties may refer to.
pub(super) struct Resolver<'s> {
    contexts: Contexts,
    groups: HashMap<String, String>,
    surroundings: &'s Surroundings,
}

impl<'s> Resolver<'s> {
    /// Gathers the contexts of `raw`, provided ones too.
    pub(super) fn new(
        raw: &mut RawFlow,
        surroundings: &'s Surroundings,
        problems: &mut Problems,
    ) -> Self {
        let mut contexts = std::mem::take(&mut raw.contexts);
        for context in &mut contexts {
            open_secrets(context, surroundings, problems);
            let is_known = |provider: &RawService| {
                provider.id == context.provider || provider.name == context.provider
            };
            if !context.provider.is_empty() && !raw.providers.iter().any(is_known) {
                problems.add(
                    &context.path,
                    format!("there is no parameter provider '{}'", context.provider),
                );
            }
        }
        for provider in std::mem::take(&mut raw.providers) {
            provide(
                &provider,
                &mut contexts,
                surroundings,
                &mut raw.notes,
                problems,
            );
        }
        let (contexts, wrong) = Contexts::new(contexts);
        for (path, message) in wrong {
            problems.add(&path, message);
        }
        let mut groups = HashMap::new();
        for (group, (name, path)) in std::mem::take(&mut raw.group_contexts) {
            if !contexts.contains(&name) {
                problems.add(&path, format!("there is no parameter context '{name}'"));
            }
            groups.insert(group, name);
        }
        Resolver {
            contexts,
            groups,
            surroundings,
        }
    }

    /// Puts into the properties of a component of `group` what they refer to.
    pub(super) fn resolve(
        &self,
        table: &[PropertyKind],
        properties: &mut [(String, String)],
        (group, path): (&str, &str),
        problems: &mut Problems,
    ) {
        let context = self.groups.get(group).map(String::as_str);
        for (name, value) in properties {
            let mut kinds = table.iter();
            let kind = kinds.find(|kind| kind.name == *name);
            let is_sensitive = kind.is_some_and(|kind| kind.is_sensitive);
            let resolved = self
                .contexts
                .substitute(context, value, is_sensitive)
                .and_then(|text| self.surroundings.place_assets(&text))
                .and_then(|text| match is_sensitive {
                    true => self.surroundings.open(&text),
                    false => Ok(text),
                });
            match resolved {
                Ok(text) => *value = text,
                Err(message) => {
                    // What a reference could not give is not checked as if it were the value.
                    value.clear();
                    problems.add(&format!("{path} / Properties / {name}"), message);
                }
            }
        }
    }
}

fn open_secrets(context: &mut Context, surroundings: &Surroundings, problems: &mut Problems) {
    for parameter in &mut context.parameters {
        let Some(value) = &mut parameter.value else {
            continue;
        };
        if parameter.is_sensitive {
            match surroundings.open(value) {
                Ok(text) => *value = text,
                Err(message) => {
                    problems.add(&format!("{} / {}", context.path, parameter.name), message)
                }
            }
        }
    }
}

/// Makes a provider's context, or gives its values to the context that names it.
fn provide(
    provider: &RawService,
    contexts: &mut Vec<Context>,
    surroundings: &Surroundings,
    notes: &mut Notes,
    problems: &mut Problems,
) {
    let class = provider.class.rsplit('.').next().unwrap_or_default();
    let Some(kind) = PROVIDERS.iter().find(|kind| kind.name == class) else {
        if !class.is_empty() {
            let known: Vec<&str> = PROVIDERS.iter().map(|kind| kind.name).collect();
            let message = format!(
                "there is no parameter provider '{class}'; there are: {}",
                known.join(", ")
            );
            problems.add(&provider.path, message);
        }
        return;
    };
    let before = problems.0.len();
    check::check_properties(
        (kind.name, kind.properties, Dynamic::None),
        &provider.properties,
        &provider.path,
        notes,
        problems,
    );
    if problems.0.len() > before {
        return;
    }
    let made = provider::of_environment(
        &provider.id,
        &provider.properties,
        &surroundings.environment,
    );
    let mut made = match made {
        Ok(made) => made,
        Err(message) => return problems.add(&provider.path, message),
    };
    made.path.clone_from(&provider.path);
    let there = contexts
        .iter_mut()
        .find(|context| context.name == made.name);
    match there {
        None => contexts.push(made),
        Some(there) if [&provider.id, &provider.name].contains(&&there.provider) => {
            // What the text kept from an earlier start is given anew.
            there.parameters.retain(|own| {
                !own.is_provided && !made.parameters.iter().any(|new| new.name == own.name)
            });
            there.parameters.append(&mut made.parameters);
        }
        Some(there) => {
            let message = format!(
                "makes the context '{}', which {} is already",
                made.name, there.path
            );
            problems.add(&provider.path, message);
        }
    }
}
