//! Controller services, as data in one ordered table: what each is, and the function that makes
//! it. Processors share them: a TLS identity, a proxy, a record reader.
//!
//! # How a service is added
//!
//! 1. A file with a `KIND` of type [`ServiceKind`], named in [`SERVICES`]. Its properties are
//!    [`PropertyKind`]s like a processor's, with the same checks.
//! 2. `provides` is the role that properties ask for; several kinds may provide one role
//!    (`JsonTreeReader` and `CSVReader` both provide `RecordReader`).
//! 3. `make` gives a [`Service`]: an `Arc` of **one Rust type for each role**. Where a role has
//!    several kinds, that type holds a boxed trait object or an enum.
//!
//! # How a processor uses one
//!
//! Its property has the shape [`Shape::Service`]`("SSLContextService")`; flows write the
//! service's name or its id. At load it is checked that the service is there and provides the
//! role. When the processor is made, `settings.service::<SslContext>("SSL Context Service")?`
//! gives an `Option<Arc<SslContext>>`.
//!
//! # Life
//!
//! Services are made before the processors of their flow, those that others name first, and are
//! dropped when the flow ends; `Drop` is where one lets go of what it holds outside. One that
//! cannot be made keeps the whole flow from starting.

mod aws_credentials;
pub(crate) mod azure_credentials;
#[cfg(feature = "sql")]
mod database;
mod gcp_credentials;
mod kubernetes;
mod proxy_configuration;
mod ssl_context;
mod state_storage;
mod update_policy;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base::UnixMillis;

use crate::AgentError;
use crate::definition::ServiceDefinition;
use crate::processors::{Dynamic, PropertyKind, Settings, Shape};
use crate::record_sets;

pub(crate) use aws_credentials::aws_source;
#[cfg(feature = "sql")]
pub(crate) use database::ROLE as DATABASE_ROLE;
pub(crate) use kubernetes::{ATTRIBUTE_PROVIDER, Containers};
pub use proxy_configuration::{ProxyConfiguration, ProxyType};
pub use ssl_context::{ClientAuthentication, SslContext, SslFiles};
pub(crate) use update_policy::UpdatePolicy;

/// What a controller service is.
pub struct ServiceKind {
    /// As flows write it.
    pub name: &'static str,
    /// The role that properties ask for; the name, where nothing else provides it.
    pub provides: &'static str,
    /// What it does, for people.
    pub description: &'static str,
    /// Its properties, in the order in which people should read them.
    pub properties: &'static [PropertyKind],
    /// What further properties mean.
    pub dynamic: Dynamic,
    /// Makes one from checked settings; the error says what is wrong with them.
    pub make: fn(&Settings<'_>) -> Result<Service, String>,
}

/// A service at work; its type is the one of its kind's role.
pub type Service = Arc<dyn Any + Send + Sync>;

/// Every controller service, in the order in which they are listed.
pub const SERVICES: &[&ServiceKind] = &[
    &ssl_context::KIND,
    &proxy_configuration::KIND,
    &aws_credentials::KIND,
    &azure_credentials::KIND,
    &gcp_credentials::KIND,
    #[cfg(feature = "sql")]
    &database::ODBC,
    &kubernetes::KIND,
    &update_policy::KIND,
    &state_storage::PERSISTENT,
    &state_storage::ROCKS_DB,
    &state_storage::VOLATILE,
    &record_sets::JSON_READER,
    &record_sets::JSON_WRITER,
    &record_sets::CSV_READER,
    &record_sets::CSV_WRITER,
    &record_sets::XML_READER,
    &record_sets::XML_WRITER,
    &record_sets::AVRO_READER,
    &record_sets::AVRO_WRITER,
];

/// The services of a running flow, by id.
#[derive(Clone, Default)]
pub struct Services {
    made: HashMap<String, Service>,
}

/// The service kind of this name.
pub fn find(name: &str) -> Option<&'static ServiceKind> {
    SERVICES.iter().copied().find(|kind| kind.name == name)
}

impl Services {
    /// Makes the services of a flow, those that others name first.
    ///
    /// Errors: `Start`, when a service's settings do not fit together.
    pub fn make(now: UnixMillis, definitions: &[ServiceDefinition]) -> Result<Self, AgentError> {
        let mut services = Services::default();
        for index in order(definitions).map_err(|definition| AgentError::Start {
            processor: definition.name.clone(),
            reason: "it needs itself, by way of other services".to_owned(),
        })? {
            let definition = &definitions[index];
            let settings = Settings::of_service(now, definition).with_services(&services);
            let service = (definition.kind.make)(&settings);
            let service = service.map_err(|reason| AgentError::Start {
                processor: definition.name.clone(),
                reason,
            })?;
            services.made.insert(definition.id.clone(), service);
        }
        Ok(services)
    }

    /// The service of this id, as its role's type.
    pub fn find<T: Any + Send + Sync>(&self, id: &str) -> Option<Arc<T>> {
        Arc::clone(self.made.get(id)?).downcast().ok()
    }
}

/// Indexes of `definitions`, each after all that it names; the error is one that needs itself.
pub(crate) fn order(definitions: &[ServiceDefinition]) -> Result<Vec<usize>, &ServiceDefinition> {
    let mut ordered: Vec<usize> = Vec::with_capacity(definitions.len());
    let mut is_placed = vec![false; definitions.len()];
    while ordered.len() < definitions.len() {
        let before = ordered.len();
        for (index, definition) in definitions.iter().enumerate() {
            let is_missing = |id: &str| {
                let named = definitions.iter().position(|other| other.id == id);
                named.is_some_and(|named| !is_placed[named])
            };
            if !is_placed[index] && !named_services(definition).any(is_missing) {
                is_placed[index] = true;
                ordered.push(index);
            }
        }
        if ordered.len() == before {
            let stuck = is_placed.iter().position(|placed| !placed);
            return Err(&definitions[stuck.unwrap_or_default()]);
        }
    }
    Ok(ordered)
}

/// Ids of the services that a service's properties name.
fn named_services(definition: &ServiceDefinition) -> impl Iterator<Item = &str> {
    definition.properties.iter().filter_map(|(name, value)| {
        let mut kinds = definition.kind.properties.iter();
        let kind = kinds.find(|kind| kind.name == name)?;
        matches!(kind.shape, Shape::Service(_)).then_some(value.as_str())
    })
}

impl PartialEq for ServiceKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.made.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::PROCESSORS;

    #[test]
    fn the_table_is_sound_and_every_role_that_is_asked_for_is_provided() {
        let mut names: Vec<&str> = SERVICES.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SERVICES.len(), "a name is used twice");
        let of_services = SERVICES.iter().map(|kind| (kind.name, kind.properties));
        let of_processors = PROCESSORS.iter().map(|kind| (kind.name, kind.properties));
        for (kind, properties) in of_services.chain(of_processors) {
            for property in properties {
                let place = format!("{kind} / {}", property.name);
                if let Some(default) = property.default {
                    let checked = property.check(default);
                    checked.unwrap_or_else(|error| panic!("{place}: {error}"));
                }
                if let Shape::Service(role) = property.shape {
                    assert!(
                        SERVICES.iter().any(|kind| kind.provides == role),
                        "{place}: nothing provides {role}"
                    );
                }
            }
        }
    }

    static KIND: ServiceKind = ServiceKind {
        name: "Link",
        provides: "Link",
        description: "",
        properties: &[PropertyKind::new("Next", "").shape(Shape::Service("Link"))],
        dynamic: Dynamic::None,
        make: |settings| {
            let next = settings.service::<usize>("Next")?;
            Ok(Arc::new(next.map_or(0usize, |next| *next + 1)))
        },
    };

    fn link(id: &str, next: Option<&str>) -> ServiceDefinition {
        ServiceDefinition {
            id: id.to_owned(),
            name: id.to_owned(),
            path: String::new(),
            group_id: String::new(),
            kind: &KIND,
            properties: next
                .map(|next| ("Next".to_owned(), next.to_owned()))
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn services_are_made_after_those_that_they_name() {
        let chain = [link("a", Some("b")), link("b", Some("c")), link("c", None)];
        let services = Services::make(UnixMillis(0), &chain).unwrap();
        assert_eq!(services.find::<usize>("a").as_deref(), Some(&2));
        assert_eq!(services.find::<String>("a"), None, "another type");
        let ring = [link("a", Some("b")), link("b", Some("a"))];
        let error = Services::make(UnixMillis(0), &ring).unwrap_err();
        assert!(error.to_string().contains("needs itself"), "{error}");
    }
}
