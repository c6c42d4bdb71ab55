//! The tables of tenants and their profiles.

use base::{TenantId, UnixMillis};
use sql::{Conflict, Insert, Row, Statement, Value};

use crate::error::ImportsError;
use crate::job::TenantUse;
use crate::limits;
use crate::profile::Profile;
use crate::registry::{Registry, profile_of, profile_text, shown, unsigned};

impl Registry {
    /// What each tenant has imported, by name after `after`.
    pub async fn tenants(&self, after: &str, count: u32) -> Result<Vec<TenantUse>, ImportsError> {
        let what = "list tenants";
        let select = Statement::new(
            "SELECT tenant, weight, records_done, records_rejected, bytes_done, updated_ms,
             (SELECT count(*) FROM import_jobs j WHERE j.tenant = t.tenant) AS jobs,
             (SELECT count(*) FROM import_jobs j WHERE j.tenant = t.tenant
                 AND j.state IN ('uploading', 'running')) AS jobs_active
             FROM import_tenants t WHERE tenant > ? ORDER BY tenant LIMIT ?",
        )
        .bind(after)
        .bind(i64::from(count));
        let tenant = |row: &Row| -> Result<TenantUse, sqlx::Error> {
            Ok(TenantUse {
                tenant: row.text("tenant")?,
                weight: u32::try_from(row.number("weight")?).unwrap_or(1),
                jobs: unsigned(row.number("jobs")?),
                jobs_active: unsigned(row.number("jobs_active")?),
                records_done: unsigned(row.number("records_done")?),
                records_rejected: unsigned(row.number("records_rejected")?),
                bytes_done: unsigned(row.number("bytes_done")?),
                updated_ms: row.number("updated_ms")?,
            })
        };
        let rows = self.database.rows(what, &select).await?;
        rows.iter()
            .map(|row| tenant(row).map_err(|e| self.error(what, e).into()))
            .collect()
    }

    /// Every tenant's weight that is not one.
    pub async fn weights(&self) -> Result<Vec<(TenantId, u32)>, ImportsError> {
        let what = "read weights";
        let select = Statement::new("SELECT tenant, weight FROM import_tenants WHERE weight <> 1");
        let mut weights = Vec::new();
        for row in self.database.rows(what, &select).await? {
            let read = || Ok((row.text("tenant")?, row.number("weight")?));
            let (tenant, weight): (String, i64) = read().map_err(|e| self.error(what, e))?;
            if let Ok(tenant) = tenant.parse() {
                weights.push((tenant, u32::try_from(weight).unwrap_or(1)));
            }
        }
        Ok(weights)
    }

    pub async fn set_weight(
        &self,
        tenant: &TenantId,
        weight: u32,
        now: UnixMillis,
    ) -> Result<(), ImportsError> {
        let what = "set a tenant's weight";
        let mut tx = self.database.begin().await?;
        let row = tenant_row(tenant, weight, now);
        let insert = Insert {
            conflict: Conflict::Replace {
                key: &["tenant"],
                columns: &["weight", "updated_ms"],
            },
            ..INSERT_TENANT
        };
        tx.insert(what, &insert, vec![row]).await?;
        Ok(tx.commit(what).await?)
    }

    pub async fn set_profile(
        &self,
        tenant: &TenantId,
        name: &str,
        profile: &Profile,
        now: UnixMillis,
    ) -> Result<(), ImportsError> {
        let what = "keep a profile";
        let mut tx = self.database.begin().await?;
        let row = vec![
            Value::from(tenant.as_str()),
            name.into(),
            profile_text(profile).into(),
            now.0.into(),
        ];
        tx.insert(what, &INSERT_PROFILE, vec![row]).await?;
        Ok(tx.commit(what).await?)
    }

    /// A tenant's profiles, by name after `after`.
    pub async fn profiles(
        &self,
        tenant: &TenantId,
        after: &str,
        count: u32,
    ) -> Result<Vec<(String, Profile)>, ImportsError> {
        let what = "read profiles";
        let select = Statement::new(
            "SELECT name, profile FROM import_profiles WHERE tenant = ? AND name > ?
             ORDER BY name LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(after)
        .bind(i64::from(count.min(limits::LISTED_PROFILES_MAX)));
        let mut profiles = Vec::new();
        for row in self.database.rows(what, &select).await? {
            let read = || Ok((row.text("name")?, row.text("profile")?));
            let (name, text): (String, String) = read().map_err(|e| self.error(what, e))?;
            profiles.push((name, profile_of(&text).map_err(|e| self.error(what, e))?));
        }
        Ok(profiles)
    }

    pub async fn profile(&self, tenant: &TenantId, name: &str) -> Result<Profile, ImportsError> {
        let what = "read a profile";
        let select =
            Statement::new("SELECT profile FROM import_profiles WHERE tenant = ? AND name = ?")
                .bind(tenant.as_str())
                .bind(name);
        let Some(row) = self.database.row(what, &select).await? else {
            return Err(ImportsError::NoProfile(shown(name)));
        };
        let text = row.text("profile").map_err(|e| self.error(what, e))?;
        Ok(profile_of(&text).map_err(|e| self.error(what, e))?)
    }

    /// Removes a profile; jobs keep their copies. False when there is none of that name.
    pub async fn remove_profile(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<bool, ImportsError> {
        let remove = Statement::new("DELETE FROM import_profiles WHERE tenant = ? AND name = ?")
            .bind(tenant.as_str())
            .bind(name);
        Ok(self.database.run("remove a profile", &remove).await? > 0)
    }
}

/// A tenant that has imported nothing yet.
pub(crate) fn tenant_row(tenant: &TenantId, weight: u32, now: UnixMillis) -> Vec<Value> {
    vec![
        Value::from(tenant.as_str()),
        i64::from(weight).into(),
        0.into(),
        0.into(),
        0.into(),
        0.into(),
        now.0.into(),
    ]
}

/// A tenant that is there stays as it is.
pub(crate) const INSERT_TENANT: Insert = Insert {
    table: "import_tenants",
    columns: &[
        "tenant",
        "weight",
        "slices",
        "records_done",
        "records_rejected",
        "bytes_done",
        "updated_ms",
    ],
    conflict: Conflict::Keep { key: &["tenant"] },
};

const INSERT_PROFILE: Insert = Insert {
    table: "import_profiles",
    columns: &["tenant", "name", "profile", "updated_ms"],
    conflict: Conflict::Replace {
        key: &["tenant", "name"],
        columns: &["profile", "updated_ms"],
    },
};
