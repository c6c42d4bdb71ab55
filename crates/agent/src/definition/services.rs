//! Controller services of a flow: what they are, and which one a property means.

use std::collections::HashMap;

use super::idle::Notes;
use super::read::RawService;
use super::resolve::Resolver;
use super::{Problems, ServiceDefinition};
use crate::processors::{PropertyKind, Shape};
use crate::services::{self, ServiceKind};

/// Services by id and by name, for the properties that name them.
pub(super) struct Known {
    ids: HashMap<String, (String, &'static ServiceKind)>,
    names: HashMap<String, Vec<(String, &'static ServiceKind)>>,
}

impl Known {
    pub(super) fn new(raw: &[RawService], notes: &mut Notes, problems: &mut Problems) -> Self {
        let (mut ids, mut names) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for service in raw {
            let Some(kind) = kind_of(service, notes, problems) else {
                continue;
            };
            let known = (service.id.clone(), kind);
            let other = service.other_id.iter();
            for id in other.chain([&service.id]) {
                ids.insert(id.clone(), known.clone());
            }
            names.entry(service.name.clone()).or_default().push(known);
        }
        Known { ids, names }
    }

    /// The id of the service that `text` means, which must provide `role`.
    pub(super) fn resolve(&self, text: &str, role: &str) -> Result<String, String> {
        let found = match (self.ids.get(text), self.names.get(text).map(Vec::as_slice)) {
            (Some(found), _) | (None, Some([found])) => found,
            (None, Some(_)) => {
                return Err(format!(
                    "the name '{text}' is not unique; write the service's id"
                ));
            }
            (None, None) => {
                return Err(format!(
                    "there is no controller service '{text}' in this flow; write the name or id \
                     of a {role}"
                ));
            }
        };
        let (id, kind) = found;
        if kind.provides != role {
            return Err(format!("'{text}' is a {} and no {role}", kind.name));
        }
        Ok(id.clone())
    }

    /// Replaces what properties call their services by the services' ids.
    pub(super) fn name(
        &self,
        kinds: &[PropertyKind],
        properties: &mut [(String, String)],
        path: &str,
        problems: &mut Problems,
    ) {
        for (name, value) in properties {
            let kind = kinds.iter().find(|kind| kind.name == *name);
            let Some(Shape::Service(role)) = kind.map(|kind| kind.shape) else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            match self.resolve(value, role) {
                Ok(id) => *value = id,
                Err(message) => problems.add(&format!("{path} / Properties / {name}"), message),
            }
        }
    }
}

/// Checks services, and that none needs itself.
pub(super) fn check(
    raw: Vec<RawService>,
    known: &Known,
    resolver: &Resolver<'_>,
    notes: &mut Notes,
    problems: &mut Problems,
) -> Vec<ServiceDefinition> {
    let mut all = Vec::new();
    for service in raw {
        let Some((id, kind)) = known.ids.get(&service.id) else {
            continue;
        };
        let mut definition = ServiceDefinition {
            id: id.clone(),
            name: service.name,
            path: service.path,
            group_id: service.group_id,
            kind,
            properties: service.properties,
        };
        resolver.resolve(
            kind.properties,
            &mut definition.properties,
            (&definition.group_id, &definition.path),
            problems,
        );
        super::check::check_properties(
            (kind.name, kind.properties, kind.dynamic),
            &definition.properties,
            &definition.path,
            notes,
            problems,
        );
        known.name(
            kind.properties,
            &mut definition.properties,
            &definition.path,
            problems,
        );
        all.push(definition);
    }
    if let Err(stuck) = services::order(&all) {
        problems.add(&stuck.path, "needs itself, by way of other services");
    }
    all
}

fn kind_of(
    raw: &RawService,
    notes: &mut Notes,
    problems: &mut Problems,
) -> Option<&'static ServiceKind> {
    let class = raw.class.rsplit('.').next().unwrap_or_default();
    let kind = services::find(class);
    if kind.is_none() && !class.is_empty() && !notes.takes_service(class, &raw.path) {
        let known: Vec<&str> = services::SERVICES.iter().map(|kind| kind.name).collect();
        problems.add(
            &raw.path,
            format!(
                "there is no controller service '{class}'; there are: {}",
                known.join(", ")
            ),
        );
    }
    kind
}
