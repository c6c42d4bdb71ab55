//! Classes, under `/api/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::http::management::aside;
use crate::http::{Failure, body, json};
use crate::rights::Rights;
use crate::views::ClassView;

/// The routes of classes themselves.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let path = "/api/v1/classes/{name}";
    Router::new()
        .route("/api/v1/classes", get(classes))
        .route(path, get(class).put(describe).delete(remove))
        .with_state(fleet)
}

#[derive(Serialize)]
struct Classes {
    classes: Vec<ClassView>,
}

/// What an operator says of a class.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    description: String,
}

async fn classes(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut classes = aside(move || fleet.classes()).await?;
    classes.retain(|class| rights.sees(Some(&class.name)));
    json(StatusCode::OK, &Classes { classes })
}

async fn class(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &aside(move || fleet.class(&name)).await??)
}

/// Makes a class, or describes one that is there.
async fn describe(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Failure> {
    let wanted: Wanted = body::take(request).await?.json()?;
    let is_new = fleet.describe_class(&name, &wanted.description).await?;
    let status = match is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    json(status, &aside(move || fleet.class(&name)).await??)
}

async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    fleet.remove_class(&name).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}
