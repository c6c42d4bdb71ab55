//! Tells the fleet whose certificate a connection shows, so that an agent speaks for itself only.

use access::{CertificateFacts, PrincipalName};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use fleet::http::Certificate;

/// Has every request to `routes` carry its connection's certificate, if one was shown.
pub fn with_certificates(routes: Router, naming: PrincipalName) -> Router {
    routes.layer(middleware::from_fn_with_state(naming, add_certificate))
}

async fn add_certificate(
    State(naming): State<PrincipalName>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<rest::Peer>();
    let principal = peer.and_then(|peer| peer.certificate.as_ref());
    let certificate = principal.map(|principal| match naming {
        PrincipalName::Subject => Certificate::of_subject(principal.name()),
        PrincipalName::CommonName => Certificate::of_common_name(principal.name()),
    });
    let facts = request.extensions().get::<CertificateFacts>().copied();
    let certificate = match (certificate, facts) {
        (Some(known), Some(facts)) => Some(known.with_facts(facts.mark, facts.not_after)),
        (known, _) => known,
    };
    if let Some(certificate) = certificate {
        request.extensions_mut().insert(certificate);
    }
    next.run(request).await
}
