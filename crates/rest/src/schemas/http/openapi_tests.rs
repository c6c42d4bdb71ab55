//! The OpenAPI document of the registry's port against its routes.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::{DOCUMENT, paths};
use crate::RestConfig;
use crate::tests::Proxy;

/// The methods of every path, by the path.
type Routes = BTreeMap<String, BTreeSet<String>>;

#[tokio::test]
async fn the_openapi_document_names_every_route() {
    let proxy = Proxy::open(RestConfig::default());
    let mut routes = Routes::new();
    for (path, _) in paths() {
        let request = Request::builder().method("BREW");
        let request = request.uri(path.replace(['{', '}'], ""));
        let request = request.body(Body::empty()).unwrap();
        let response = proxy.schemas.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        let allowed = response.headers()["allow"].to_str().unwrap().split(',');
        let methods = allowed.map(str::trim).filter(|method| *method != "HEAD");
        routes.insert(path.to_owned(), methods.map(str::to_owned).collect());
    }
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let documented = document["paths"].as_object().unwrap().iter();
    let documented = documented.map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys();
        (path.clone(), methods.map(|m| m.to_uppercase()).collect())
    });
    assert_eq!(documented.collect::<Routes>(), routes);
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let proxy = Proxy::open(RestConfig::default());
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let response = proxy.schemas.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, DOCUMENT);
}
