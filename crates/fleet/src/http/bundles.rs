//! Debug bundles: agents send them as forms, operators list and fetch them.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, Multipart, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::files::Upload;
use crate::fleet::Fleet;
use crate::http::c2_routes::RELATIVE_TO;
use crate::http::files::{self, Outgoing};
use crate::http::management::asked;
use crate::http::{Certificate, Failure, json};
use crate::rights::Rights;
use crate::views::BundleView;

/// The routes of debug bundles.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let mut router = Router::new()
        .route("/api/v1/bundles", get(bundles))
        .route("/api/v1/bundles/{id}", get(bundle).delete(remove))
        .route("/api/v1/bundles/{id}/content", get(content));
    for prefix in RELATIVE_TO {
        let path = format!("{prefix}/bundles/{{id}}");
        // Its bytes are counted as they are written.
        let receive = post(receive).layer(DefaultBodyLimit::disable());
        router = router.route(&path, receive);
    }
    router.with_state(fleet)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BundlesQuery {
    agent: Option<String>,
}

#[derive(Serialize)]
struct Bundles {
    bundles: Vec<BundleView>,
}

async fn receive(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    certificate: Option<Extension<Certificate>>,
    mut form: Multipart,
) -> Result<Response, Failure> {
    let owner = fleet.bundle_owner(&id).await?;
    if let Some(Extension(certificate)) = certificate {
        certificate.check(fleet.config().certificate_binding, &owner, None)?;
    }
    let broken =
        |error: axum::extract::multipart::MultipartError| FleetError::Broken(error.body_text());
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            continue;
        }
        let name = field.file_name().unwrap_or("debug.tar.gz").to_owned();
        let mut upload = fleet.begin_bundle(&id).await?;
        let received: Result<(), FleetError> = async {
            let upload: &mut Upload<'_> = &mut upload;
            while let Some(bytes) = field.chunk().await.map_err(broken)? {
                upload.take(bytes).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = received {
            upload.give_up().await;
            return Err(error.into());
        }
        let bundle = fleet.finish_bundle(&id, &owner, &name, upload).await?;
        return json(StatusCode::OK, &bundle);
    }
    let message = "the form has no field 'file'";
    Err(Failure::new(StatusCode::BAD_REQUEST, message))
}

async fn bundles(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<BundlesQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    let mut bundles = fleet.bundles(query.agent.as_deref()).await?;
    fleet.keep_seen(&rights, &mut bundles);
    json(StatusCode::OK, &Bundles { bundles })
}

async fn bundle(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.bundle(&id).await?)
}

async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    fleet.remove_bundle(&id).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}

async fn content(
    State(fleet): State<Arc<Fleet>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let found = fleet.bundle(&id).await?;
    let file = Outgoing {
        id: &found.id,
        name: &found.name,
        bytes: found.bytes,
        sha512: &found.sha512,
    };
    files::send(&fleet, &headers, file).await
}
