//! Resources in the database: uploaded, assigned to classes, removed.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use metrics::counter;
use uuid::Uuid;

use super::{NewResource, Resource, ResourceSet};
use crate::error::FleetError;
use crate::files::{self, Upload};
use crate::fleet::{Fleet, unknown_class};
use crate::limits;
use crate::registry::{Registry, ResourceState};
use crate::tables::{Found, Statement, Tables};
use crate::views::{ClassResourcesView, ResourceView};

/// All resources, and which class has which.
pub struct Shelf {
    resources: HashMap<Arc<str>, Arc<Resource>>,
    sets: HashMap<Arc<str>, Arc<ResourceSet>>,
}

/// Reads all resources and which class has which.
pub async fn read(tables: &Tables) -> Result<Shelf, FleetError> {
    let select = (RESOURCES, vec![]);
    let mut resources = HashMap::new();
    for row in tables.rows("read the resources", select).await? {
        let resource = resource(&row)?;
        resources.insert(resource.id.clone(), Arc::new(resource));
    }
    let usual = limits::FETCHES_AT_ONCE_DEFAULT;
    let mut of_class: HashMap<String, (Vec<Arc<Resource>>, u32)> = HashMap::new();
    let select = ("SELECT class, at_once FROM resource_sets", vec![]);
    for row in tables.rows("read the classes' resources", select).await? {
        // Nodes of former versions say nothing of it.
        let at_once = u32::try_from(row.number("at_once")?).unwrap_or(usual);
        of_class.insert(row.text("class")?, (Vec::new(), at_once));
    }
    let select = ("SELECT class, resource_id FROM class_resources", vec![]);
    for row in tables.rows("read the classes' resources", select).await? {
        if let Some(resource) = resources.get(row.text("resource_id")?.as_str()) {
            let set = of_class.entry(row.text("class")?);
            let (items, _) = set.or_insert_with(|| (Vec::new(), usual));
            items.push(Arc::clone(resource));
        }
    }
    let sets = of_class.into_iter().map(|(class, (items, at_once))| {
        let set = ResourceSet::of(items, at_once);
        (Arc::from(class), Arc::new(set))
    });
    Ok(Shelf {
        resources,
        sets: sets.collect(),
    })
}

impl Shelf {
    /// Makes it what the registry goes by.
    pub fn put(self, registry: &mut Registry) {
        registry.resources = self.resources;
        registry.resource_sets = self.sets;
    }
}

impl Fleet {
    /// Begins the upload of a resource; gives it its id.
    ///
    /// # Errors
    /// What is wrong with its names; [`FleetError::Full`], [`FleetError::Busy`].
    pub(crate) async fn begin_resource(
        &self,
        new: &NewResource,
    ) -> Result<(Arc<str>, Upload<'_>), FleetError> {
        new.check()?;
        let inner = &self.inner;
        if inner.registry.lock().resources.len() >= limits::RESOURCES_MAX {
            return Err(FleetError::Full {
                what: "resource",
                max: limits::RESOURCES_MAX,
            });
        }
        let id: Arc<str> = Arc::from(Uuid::new_v4().to_string());
        let bytes_max = inner.config.resource_bytes_max.0;
        let upload = inner.files.begin(&id, bytes_max, inner.clock.now()).await?;
        Ok((id, upload))
    }

    /// Ends an upload: the resource is durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn finish_resource(
        &self,
        id: Arc<str>,
        new: NewResource,
        upload: Upload<'_>,
    ) -> Result<ResourceView, FleetError> {
        let stored = upload.finish().await?;
        let resource = Arc::new(Resource {
            id,
            name: new.name,
            kind: new.kind,
            path: new.path,
            notes: new.notes,
            bytes: stored.bytes,
            sha512: stored.sha512,
            created: self.inner.clock.now(),
        });
        let values = vec![
            (&*resource.id).into(),
            resource.name.as_str().into(),
            resource.kind.as_str().into(),
            resource.path.as_str().into(),
            resource.notes.as_str().into(),
            resource.bytes.into(),
            resource.sha512.as_str().into(),
            resource.created.0.into(),
        ];
        let insert =
            "INSERT INTO resources (id, name, type, path, notes, bytes, sha512, created_ms)
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let tables = &self.inner.tables;
        // Not while other nodes' changes are read, or it is forgotten again for a second.
        let _one = self.inner.publishing.lock().await;
        tables
            .write("write a resource", vec![(insert, values)])
            .await?;
        let mut registry = self.inner.registry.lock();
        registry
            .resources
            .insert(resource.id.clone(), resource.clone());
        tracing::info!(
            resource = &*resource.id,
            name = resource.name,
            bytes = resource.bytes,
            "a resource was uploaded"
        );
        counter!("thalweg_fleet_resources_uploaded_total").increment(1);
        Ok(ResourceView {
            resource,
            classes: Vec::new(),
        })
    }

    /// All resources, by name.
    pub(crate) fn resources(&self) -> Vec<ResourceView> {
        let (all, sets) = {
            let registry = self.inner.registry.lock();
            let all: Vec<Arc<Resource>> = registry.resources.values().cloned().collect();
            (all, registry.resource_sets.clone())
        };
        let mut classes: HashMap<&str, Vec<String>> = HashMap::new();
        for (class, set) in &sets {
            for item in &set.items {
                classes
                    .entry(&*item.id)
                    .or_default()
                    .push(class.to_string());
            }
        }
        let view = |resource: Arc<Resource>| {
            let mut classes = classes.remove(&*resource.id).unwrap_or_default();
            classes.sort();
            ResourceView { resource, classes }
        };
        let mut views: Vec<ResourceView> = all.into_iter().map(view).collect();
        views.sort_by(|a, b| {
            let key = |view: &ResourceView| (view.resource.name.clone(), view.resource.created.0);
            key(a).cmp(&key(b))
        });
        views
    }

    /// One resource.
    ///
    /// # Errors
    /// [`FleetError::Unknown`].
    pub(crate) fn resource(&self, id: &str) -> Result<ResourceView, FleetError> {
        let registry = self.inner.registry.lock();
        let resource = registry.resources.get(id);
        let resource = resource.ok_or_else(|| unknown_resource(id))?;
        Ok(shown(&registry, resource))
    }

    /// Removes a resource that no class has.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::InUse`].
    pub(crate) async fn remove_resource(&self, id: &str) -> Result<(), FleetError> {
        let _one = self.inner.publishing.lock().await;
        let found = self.resource(id)?;
        if !found.classes.is_empty() {
            return Err(FleetError::InUse {
                what: "resource",
                name: id.to_owned(),
                reason: format!("the classes {} have it", found.classes.join(", ")),
            });
        }
        let row = ("DELETE FROM resources WHERE id = ?", vec![id.into()]);
        let statements = vec![row, files::remove(id)];
        self.inner
            .tables
            .write("remove a resource", statements)
            .await?;
        self.inner.registry.lock().resources.remove(id);
        Ok(())
    }

    /// Gives a class resources and takes some from it; durable when this returns, and what agents are
    /// told from their next heartbeat on. One that takes the place of another, in the same folder
    /// under the same name, replaces it. `at_once` says how many agents may fetch them at the same time,
    /// 0 that all may; none leaves that as it is.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::BadField`], [`FleetError::Full`].
    pub(crate) async fn assign_resources(
        &self,
        class: &str,
        assign: &[String],
        unassign: &[String],
        at_once: Option<u32>,
    ) -> Result<ClassResourcesView, FleetError> {
        let inner = &self.inner;
        let _one = inner.publishing.lock().await;
        let now = inner.clock.now();
        let set = {
            let mut registry = inner.registry.lock();
            registry.class_or_new(class, now)?;
            let known = registry.resource_sets.get(class).map(|set| set.at_once);
            let at_once = at_once.or(known).unwrap_or(limits::FETCHES_AT_ONCE_DEFAULT);
            ResourceSet::of(changed(&registry, class, assign, unassign)?, at_once)
        };
        inner.signals.change();
        let statements = statements(class, &set, now);
        inner.tables.write("assign resources", statements).await?;
        tracing::info!(
            class,
            digest = &*set.digest,
            resources = set.items.len(),
            "a class's resources changed"
        );
        let (class_name, set) = (Arc::from(class), Arc::new(set));
        inner.registry.lock().resource_sets.insert(class_name, set);
        self.class_resources(class)
    }

    /// A class's resources and how far its agents are.
    ///
    /// # Errors
    /// [`FleetError::Unknown`].
    pub(crate) fn class_resources(&self, class: &str) -> Result<ClassResourcesView, FleetError> {
        let set = {
            let registry = self.inner.registry.lock();
            if !registry.classes.contains_key(class) {
                return Err(unknown_class(class));
            }
            registry.resource_sets.get(class).cloned()
        };
        let mut view = ClassResourcesView {
            digest: set.as_ref().map(|set| set.digest.clone()),
            at_once: set.as_ref().map(|set| set.at_once),
            resources: set.map(|set| set.items.clone()).unwrap_or_default(),
            agents_synced: 0,
            agents_pending: 0,
            agents_failed: 0,
        };
        self.inner.each_agent_of(class, |registry, agent| {
            match registry.resource_state(agent) {
                ResourceState::None => {}
                ResourceState::Synced => view.agents_synced += 1,
                ResourceState::Pending => view.agents_pending += 1,
                ResourceState::Failed => view.agents_failed += 1,
            }
        });
        Ok(view)
    }
}

/// What a class will have.
fn changed(
    registry: &Registry,
    class: &str,
    assign: &[String],
    unassign: &[String],
) -> Result<Vec<Arc<Resource>>, FleetError> {
    let set = registry.resource_sets.get(class);
    let mut items = set.map(|set| set.items.clone()).unwrap_or_default();
    for id in unassign {
        if !registry.resources.contains_key(id.as_str()) {
            return Err(unknown_resource(id));
        }
        items.retain(|item| *item.id != **id);
    }
    for id in assign {
        let new = registry.resources.get(id.as_str());
        let new = new.ok_or_else(|| unknown_resource(id))?;
        if unassign.contains(id) {
            return Err(FleetError::BadField {
                field: "unassign".to_owned(),
                reason: format!("'{id}' is under assign too"),
            });
        }
        let place = |item: &Resource| (item.kind.as_str(), item.path.clone(), item.name.clone());
        items.retain(|item| place(item) != place(new));
        items.push(new.clone());
    }
    if items.len() > limits::CLASS_RESOURCES_MAX {
        return Err(FleetError::Full {
            what: "resource of a class",
            max: limits::CLASS_RESOURCES_MAX,
        });
    }
    Ok(items)
}

fn statements(class: &str, set: &ResourceSet, now: UnixMillis) -> Vec<Statement> {
    let remove = |text| (text, vec![class.into()]);
    let mut statements = vec![
        remove("DELETE FROM class_resources WHERE class = ?"),
        remove("DELETE FROM resource_sets WHERE class = ?"),
        (
            "INSERT INTO resource_sets (class, digest, at_once, changed_ms) VALUES (?, ?, ?, ?)",
            vec![
                class.into(),
                (&*set.digest).into(),
                i64::from(set.at_once).into(),
                now.0.into(),
            ],
        ),
    ];
    for item in &set.items {
        statements.push((
            "INSERT INTO class_resources (class, resource_id) VALUES (?, ?)",
            vec![class.into(), (&*item.id).into()],
        ));
    }
    statements
}

fn shown(registry: &Registry, resource: &Arc<Resource>) -> ResourceView {
    let has = |set: &ResourceSet| set.items.iter().any(|item| item.id == resource.id);
    let sets = registry.resource_sets.iter().filter(|(_, set)| has(set));
    let mut classes: Vec<String> = sets.map(|(class, _)| class.to_string()).collect();
    classes.sort();
    ResourceView {
        resource: resource.clone(),
        classes,
    }
}

fn resource(row: &Found<'_>) -> Result<Resource, FleetError> {
    let kind = row.text("type")?;
    Ok(Resource {
        id: Arc::from(row.text("id")?),
        name: row.text("name")?,
        kind: kind.parse().map_err(|()| FleetError::BadRow {
            what: "resource",
            value: kind,
        })?,
        path: row.text("path")?,
        notes: row.text("notes")?,
        bytes: row.number("bytes")?,
        sha512: row.text("sha512")?,
        created: UnixMillis(row.number("created_ms")?),
    })
}

fn unknown_resource(id: &str) -> FleetError {
    FleetError::Unknown {
        what: "resource",
        name: id.to_owned(),
        list: "/api/v1/resources",
    }
}

const RESOURCES: &str =
    "SELECT id, name, type, path, notes, bytes, sha512, created_ms FROM resources";
