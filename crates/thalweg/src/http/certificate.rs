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

/// What a connection's certificate is to the fleet, if one was shown.
pub(super) fn certificate_of(
    peer: &rest::Peer,
    facts: Option<CertificateFacts>,
    naming: PrincipalName,
) -> Option<Certificate> {
    let principal = peer.certificate.as_ref()?;
    let certificate = match naming {
        PrincipalName::Subject => Certificate::of_subject(principal.name()),
        PrincipalName::CommonName => Certificate::of_common_name(principal.name()),
    };
    Some(match facts {
        Some(facts) => certificate.with_facts(facts.mark, facts.not_after),
        None => certificate,
    })
}

async fn add_certificate(
    State(naming): State<PrincipalName>,
    mut request: Request,
    next: Next,
) -> Response {
    let extensions = request.extensions();
    let facts = extensions.get::<CertificateFacts>().copied();
    let peer = extensions.get::<rest::Peer>();
    let certificate = peer.and_then(|peer| certificate_of(peer, facts, naming));
    if let Some(certificate) = certificate {
        request.extensions_mut().insert(certificate);
    }
    next.run(request).await
}
