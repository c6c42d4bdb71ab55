//! Parameter providers: where contexts come from that no text holds.

use std::collections::BTreeMap;

use super::{Context, Parameter};
use crate::processors::{PropertyKind, Shape};

/// What a parameter provider is.
#[derive(Debug)]
pub struct ProviderKind {
    /// As flows write it.
    pub name: &'static str,
    /// What it does, for people.
    pub description: &'static str,
    /// Its properties, in the order in which people should read them.
    pub properties: &'static [PropertyKind],
}

/// Every parameter provider.
pub const PROVIDERS: &[&ProviderKind] = &[&ENVIRONMENT];

/// Makes a context of environment variables.
pub const ENVIRONMENT: ProviderKind = ProviderKind {
    name: "EnvironmentVariableParameterProvider",
    description: "Makes a parameter context of environment variables.",
    properties: &[
        PropertyKind::new(STRATEGY, "Which variables are taken.")
            .default("Include All")
            .required()
            .allowed(&["Include All", "Comma-Separated", "Regular Expression"]),
        PropertyKind::new(
            INCLUDE,
            "Names of variables with commas between them, or a regular expression over whole names.",
        ),
        PropertyKind::new(GROUP, "Name of the context.").required(),
        PropertyKind::new(SCOPE, "Which parameters are sensitive.")
            .default("none")
            .required()
            .allowed(&["none", "all", "selected"]),
        PropertyKind::new(
            SELECTED,
            "Names of sensitive parameters with commas between them.",
        ),
        PropertyKind::new(
            RELOAD,
            "Whether values come anew at each start; they always do, since none are stored.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
};

/// The context that an [`ENVIRONMENT`] provider with this id and these properties makes.
pub(crate) fn of_environment(
    id: &str,
    properties: &[(String, String)],
    environment: &BTreeMap<String, String>,
) -> Result<Context, String> {
    let value = |name: &str| {
        let set = properties.iter().find(|(known, _)| known == name);
        let kind = ENVIRONMENT.properties.iter().find(|kind| kind.name == name);
        let default = kind.and_then(|kind| kind.default);
        set.map(|(_, value)| value.as_str())
            .or(default)
            .unwrap_or_default()
    };
    let include = value(INCLUDE);
    let is_included: Box<dyn Fn(&str) -> bool> = match value(STRATEGY) {
        "Comma-Separated" if include.is_empty() => return Err(format!("{INCLUDE} is empty")),
        "Comma-Separated" => Box::new(move |name| names(include).any(|wanted| wanted == name)),
        "Regular Expression" => {
            let pattern = regex::Regex::new(&format!("^(?:{include})$"))
                .map_err(|_| format!("{INCLUDE}: '{include}' is no regular expression"))?;
            Box::new(move |name| pattern.is_match(name))
        }
        _ => Box::new(|_| true),
    };
    let is_sensitive = |name: &str| match value(SCOPE) {
        "all" => true,
        "selected" => names(value(SELECTED)).any(|selected| selected == name),
        _ => false,
    };
    let parameters = environment
        .iter()
        .filter(|(name, _)| is_included(name))
        .map(|(name, value)| Parameter {
            name: name.clone(),
            value: Some(value.clone()),
            is_sensitive: is_sensitive(name),
            is_provided: true,
        });
    Ok(Context {
        name: value(GROUP).to_owned(),
        path: String::new(),
        parameters: parameters.collect(),
        inherited: Vec::new(),
        provider: id.to_owned(),
    })
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

const STRATEGY: &str = "Environment Variable Inclusion Strategy";
const INCLUDE: &str = "Include Environment Variables";
const GROUP: &str = "Parameter Group Name";
const SCOPE: &str = "Sensitive Parameter Scope";
const SELECTED: &str = "Sensitive Parameter List";
const RELOAD: &str = "Reload Values On Restart";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_chosen_as_the_strategy_says() {
        let environment = [("HOME", "/root"), ("LINE_1", "a"), ("LINE_2", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let chosen = |strategy: &str, include: &str| {
            let properties = [
                (STRATEGY, strategy),
                (INCLUDE, include),
                (GROUP, "env"),
                (SCOPE, "selected"),
                (SELECTED, "LINE_2, HOME"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
            of_environment("p", &properties, &environment).map(|context| {
                let parameters = context.parameters.into_iter();
                let name = |p: Parameter| p.name + if p.is_sensitive { "!" } else { "" };
                parameters.map(name).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(
            chosen("Include All", "").as_deref(),
            Ok("HOME! LINE_1 LINE_2!")
        );
        assert_eq!(
            chosen("Comma-Separated", "LINE_1, NO").as_deref(),
            Ok("LINE_1")
        );
        assert_eq!(
            chosen("Regular Expression", "LINE_.").as_deref(),
            Ok("LINE_1 LINE_2!")
        );
        assert_eq!(chosen("Regular Expression", "INE_1").as_deref(), Ok(""));
        assert!(chosen("Regular Expression", "(").is_err());
        assert!(chosen("Comma-Separated", "").is_err());
    }
}
