//! Tenants between the roles: imports take their weights and classes from them and go with their
//! purge, and what the store holds of each is told to its quota.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, TenantBound, TenantClass};
use base::TenantId;
use streams::EventStore;
use tokio_util::sync::CancellationToken;

/// Keeps imports and quotas told until `shutdown`.
pub async fn keep(
    access: Arc<Access>,
    store: Option<Arc<dyn EventStore>>,
    imports: Option<Arc<imports::Imports>>,
    shutdown: CancellationToken,
) {
    // Apart: to count what a large store holds takes its time.
    let told = async {
        tokio::join!(
            async {
                if let Some(imports) = &imports {
                    keep_imports_told(&access, imports).await;
                }
            },
            async {
                if let Some(store) = &store {
                    keep_quotas_told(&access, &**store).await;
                }
            }
        )
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        _ = told => {}
    }
}

async fn keep_imports_told(access: &Access, imports: &imports::Imports) {
    let (mut weights, mut classes) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = access.revision();
    loop {
        tell_classes(access, imports, &mut classes);
        let is_told = tell_weights(access, imports, &mut weights).await;
        tokio::select! {
            now = access.changed_since(seen) => seen = now,
            () = tokio::time::sleep(LOOK), if !is_told => {}
        }
    }
}

async fn keep_quotas_told(access: &Access, store: &dyn EventStore) {
    let mut seen = access.revision();
    loop {
        // Without a bound on what is kept nobody needs to look.
        let is_bounded = bounds_stored(access);
        tokio::select! {
            now = access.changed_since(seen) => seen = now,
            () = tokio::time::sleep(LOOK), if is_bounded => tell_stored(access, store).await,
        }
    }
}

/// Tells whose an import job is.
pub fn owner_of_job(imports: Arc<imports::Imports>) -> rest::OwnerOfJob {
    Arc::new(move |id| {
        let imports = Arc::clone(&imports);
        Box::pin(async move {
            imports
                .job(&id)
                .await
                .ok()
                .map(|job| job.tenant.to_string())
        })
    })
}

/// Takes away what a tenant has imported.
pub fn purge_imports(imports: Arc<imports::Imports>) -> rest::PurgeImports {
    Arc::new(move |tenant, before| {
        let imports = Arc::clone(&imports);
        Box::pin(async move {
            match imports.purge(&tenant, before).await {
                Ok(purged) => Ok(serde_json::json!(purged)),
                Err(error) => Err(base::report(&error)),
            }
        })
    })
}

/// False where the database did not take all of them; it is tried again.
async fn tell_weights(
    access: &Access,
    imports: &imports::Imports,
    told: &mut BTreeMap<TenantId, u32>,
) -> bool {
    let mut is_told = true;
    let snapshot = access.snapshot();
    let kept = snapshot.tenants().iter();
    let mut wanted: BTreeMap<TenantId, u32> = kept
        .map(|(name, tenant)| (name.clone(), tenant.weight))
        .collect();
    // Who is not kept any more is like everybody.
    for gone in told
        .keys()
        .filter(|name| !snapshot.tenants().contains_key(*name))
    {
        wanted.insert(gone.clone(), 1);
    }
    for (name, weight) in wanted {
        if told.get(&name) == Some(&weight) {
            continue;
        }
        match imports.set_weight(&name, weight).await {
            Ok(()) => drop(told.insert(name, weight)),
            Err(error) => {
                is_told = false;
                tracing::warn!(tenant = %name, error = base::report(&error), "imports cannot keep a weight");
            }
        }
    }
    is_told
}

fn tell_classes(
    access: &Access,
    imports: &imports::Imports,
    told: &mut BTreeMap<TenantId, imports::Class>,
) {
    let snapshot = access.snapshot();
    for name in told.keys() {
        if !snapshot.tenants().contains_key(name) {
            imports.set_class(name, imports::Class::default());
        }
    }
    told.retain(|name, _| snapshot.tenants().contains_key(name));
    for (name, tenant) in snapshot.tenants() {
        let class = match tenant.class {
            TenantClass::Foreground | TenantClass::Interactive => imports::Class::Interactive,
            TenantClass::Bulk => imports::Class::Bulk,
        };
        if told.insert(name.clone(), class) != Some(class) {
            imports.set_class(name, class);
        }
    }
}

fn bounds_stored(access: &Access) -> bool {
    let snapshot = access.snapshot();
    let mut tenants = snapshot.tenants().values();
    tenants.any(|tenant| tenant.quotas.contains_key(&TenantBound::StoredBytes))
}

async fn tell_stored(access: &Access, store: &dyn EventStore) {
    let snapshot = access.snapshot();
    match streams::stored_bytes(store, &snapshot).await {
        Ok(stored) => {
            for name in snapshot.tenants().keys() {
                let bytes = stored.get(name).copied().unwrap_or(0);
                access.tenants().of(name).note_stored(bytes);
            }
        }
        Err(error) => {
            tracing::debug!(
                error = base::report(&error),
                "the store does not tell what it holds"
            );
        }
    }
}

/// How often it is looked what the store holds, where a quota bounds that.
const LOOK: Duration = Duration::from_secs(1);
