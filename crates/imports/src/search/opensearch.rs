//! The search index in OpenSearch (or Elasticsearch 7, of whose API this is the part that they share),
//! by its HTTP API: one index for all tenants, a document a record.
//!
//! A document's id is a hash of tenant and record id, so that taking a record in twice changes
//! nothing. Marks (accents) are taken off the letters here, in documents and queries alike, since
//! records may have them as characters of their own, which the server's analyzers do not fold. What
//! it does not take now (no answer, 429, 5xx) stays in the queue and is tried again.

use base::TenantId;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::query::Term;
use super::{Document, Found, Hit, Page};
use crate::error::ImportsError;
use crate::fetch;
use crate::limits;

/// The index on a server.
pub(super) struct OpenSearch {
    client: Client,
    /// The index's own address.
    index: Url,
    user: Option<(String, String)>,
}

impl OpenSearch {
    /// The index that an address names, such as `https://user:password@search.example.org:9200/books`;
    /// without a path it is `thalweg-records`.
    ///
    /// # Errors
    /// When it is no address of HTTP; the operator's fault.
    pub fn at(address: &str) -> Result<OpenSearch, ImportsError> {
        let parsed = Url::parse(address).ok().filter(|url| url.has_host());
        let url = parsed.filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut index = url.ok_or_else(|| {
            let text =
                "imports.opensearch is no address; write it as https://user:password@host:9200";
            ImportsError::Invalid(text.to_owned())
        })?;
        let user = (!index.username().is_empty()).then(|| {
            let decoded = |text: &str| percent_decoded(text);
            (
                decoded(index.username()),
                decoded(index.password().unwrap_or_default()),
            )
        });
        // Both cannot fail of an address that has a host.
        let _ = index.set_username("");
        let _ = index.set_password(None);
        index.set_query(None);
        if index.path() == "/" {
            index.set_path(INDEX);
        }
        let client = fetch::client()?;
        Ok(OpenSearch {
            client,
            index,
            user,
        })
    }

    /// Makes the index where it is missing.
    pub async fn make(&self) -> Result<(), ImportsError> {
        let (status, _) = self.call(self.request(Method::HEAD, "")).await?;
        if status == StatusCode::NOT_FOUND {
            let request = self.request(Method::PUT, "").json(&mapping());
            let (status, told) = self.call(request).await?;
            // Another process may have been faster.
            let is_there = told["error"]["type"] == "resource_already_exists_exception";
            return if is_there {
                Ok(())
            } else {
                self.good(status, &told).map(|_| ())
            };
        }
        self.good(status, &Value::Null).map(|_| ())
    }

    /// Whether nothing is in it.
    pub async fn is_empty(&self) -> Result<bool, ImportsError> {
        let (status, told) = self.call(self.request(Method::GET, "_count")).await?;
        Ok(self.good(status, &told)?["count"] == 0)
    }

    /// Takes records of a tenant in, in the place of what the index had of them.
    pub async fn put(&self, tenant: &str, documents: &[Document]) -> Result<(), ImportsError> {
        let mut body = String::new();
        for document in documents {
            let action = json!({"index": {"_id": id_of(tenant, &document.id)}});
            let source = json!({
                "tenant": tenant,
                "id": document.id,
                "shown": document.title,
                "title": document.title.as_deref().map(without_marks),
                "text": without_marks(&document.text),
            });
            let lines = format!("{action}\n{source}\n");
            if !body.is_empty() && body.len() + lines.len() > limits::BULK_BYTES_MAX {
                self.bulk(std::mem::take(&mut body)).await?;
            }
            body.push_str(&lines);
        }
        if body.is_empty() {
            return Ok(());
        }
        self.bulk(body).await
    }

    async fn bulk(&self, body: String) -> Result<(), ImportsError> {
        let request = self.request(Method::POST, "_bulk");
        let request = request
            .header("content-type", "application/x-ndjson")
            .body(body);
        let (status, told) = self.call(request).await?;
        let told = self.good(status, &told)?;
        if told["errors"] != true {
            return Ok(());
        }
        let items = told["items"].as_array().into_iter().flatten();
        let refused = items.map(|item| &item["index"]);
        let refused = refused.filter(|item| item["status"].as_u64() >= Some(300));
        for item in refused {
            let reason = item["error"]["reason"].as_str().unwrap_or("no reason");
            let status = item["status"].as_u64().unwrap_or(0);
            if status == 429 || status >= 500 {
                return Err(self.away(format!("it took some records only ({status}: {reason})")));
            }
            // It never will: the others must not wait for it.
            tracing::warn!(reason, "OpenSearch refused a record; it will not be found");
        }
        Ok(())
    }

    /// Forgets some records of a tenant; false when it had none.
    pub async fn forget_some(&self, tenant: &TenantId) -> Result<bool, ImportsError> {
        // What was taken in a moment ago is found after this.
        let (status, told) = self.call(self.request(Method::POST, "_refresh")).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        self.good(status, &told)?;
        let query = json!({
            "max_docs": limits::FORGOTTEN_AT_ONCE,
            "conflicts": "proceed",
            "query": {"term": {"tenant": tenant.as_str()}},
        });
        let request = self.request(Method::POST, "_delete_by_query").json(&query);
        let (status, told) = self.call(request).await?;
        Ok(self.good(status, &told)?["deleted"].as_u64() > Some(0))
    }

    /// Forgets everything.
    pub async fn clear(&self) -> Result<(), ImportsError> {
        let (status, told) = self.call(self.request(Method::DELETE, "")).await?;
        if status != StatusCode::NOT_FOUND {
            self.good(status, &told)?;
        }
        self.make().await
    }

    /// The tenant's records that have all terms, best first.
    pub async fn find(
        &self,
        tenant: &TenantId,
        terms: &[Term<'_>],
        page: Page,
    ) -> Result<Found, ImportsError> {
        let wanted = terms.iter().map(|term| {
            let kind = if term.is_prefix {
                "phrase_prefix"
            } else {
                "phrase"
            };
            json!({"multi_match": {
                "query": without_marks(term.text),
                "fields": ["title", "text"],
                "type": kind,
            }})
        });
        let query = json!({
            "from": page.offset,
            "size": page.count,
            "track_total_hits": true,
            "_source": ["id", "shown"],
            "sort": [{"_score": "desc"}, {"id": "asc"}],
            "query": {"bool": {
                "filter": [{"term": {"tenant": tenant.as_str()}}],
                "must": wanted.collect::<Vec<_>>(),
            }},
        });
        let request = self.request(Method::POST, "_search").json(&query);
        let (status, told) = self.call(request).await?;
        if status == StatusCode::NOT_FOUND {
            // Nothing was indexed yet.
            return Ok(Found {
                total: 0,
                records: Vec::new(),
            });
        }
        let hits = &self.good(status, &told)?["hits"];
        let records = hits["hits"].as_array().into_iter().flatten();
        let records = records.map(|hit| Hit {
            id: hit["_source"]["id"].as_str().unwrap_or_default().to_owned(),
            title: hit["_source"]["shown"].as_str().map(str::to_owned),
        });
        Ok(Found {
            total: hits["total"]["value"].as_u64().unwrap_or(0),
            records: records.collect(),
        })
    }

    fn request(&self, method: Method, step: &str) -> RequestBuilder {
        let mut url = self.index.clone();
        if !step.is_empty() {
            url.set_path(&format!("{}/{step}", url.path().trim_end_matches('/')));
        }
        let request = self.client.request(method, url);
        let request = request.timeout(limits::SEARCH_WAIT);
        match &self.user {
            Some((name, password)) => request.basic_auth(name, Some(password)),
            None => request,
        }
    }

    /// Sends a request and reads its answer, as much of it as is bounded.
    async fn call(&self, request: RequestBuilder) -> Result<(StatusCode, Value), ImportsError> {
        let failed = |error: reqwest::Error| self.away(base::report(&error.without_url()));
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limits::SEARCH_ANSWER_BYTES_MAX {
                return Err(self.away("its answer is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    fn good<'a>(&self, status: StatusCode, told: &'a Value) -> Result<&'a Value, ImportsError> {
        if status.is_success() {
            return Ok(told);
        }
        let reason = told["error"]["reason"].as_str().unwrap_or("no reason");
        Err(self.away(format!("it answered {status}: {reason}")))
    }

    fn away(&self, reason: String) -> ImportsError {
        ImportsError::SearchAway {
            place: self.index.to_string(),
            reason,
        }
    }
}

/// A document's id: any record's id as a short word of few characters.
fn id_of(tenant: &str, id: &str) -> String {
    let digest = Sha256::new()
        .chain_update(tenant)
        .chain_update([0])
        .chain_update(id)
        .finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text whose letters have no marks of their own any more (U+0300 to U+036F, U+FE20 to U+FE2F);
/// letters that have theirs in them are folded by the server.
fn without_marks(text: &str) -> String {
    let is_mark = |one: &char| matches!(one, '\u{300}'..='\u{36f}' | '\u{fe20}'..='\u{fe2f}');
    text.chars().filter(|one| !is_mark(one)).collect()
}

/// What stands in an address for characters that cannot.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How records are indexed: names as they are, texts as words without regard to case.
fn mapping() -> Value {
    let words = json!({"type": "text", "analyzer": "words"});
    json!({
        "settings": {
            "index": {"refresh_interval": "1s"},
            "analysis": {"analyzer": {"words": {
                "type": "custom", "tokenizer": "standard", "filter": ["lowercase", "asciifolding"],
            }}},
        },
        "mappings": {"dynamic": "strict", "properties": {
            "tenant": {"type": "keyword"},
            "id": {"type": "keyword"},
            "shown": {"type": "text", "index": false},
            "title": words,
            "text": words,
        }},
    })
}

/// The index, where the address names none.
const INDEX: &str = "/thalweg-records";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_index_and_user_and_shows_neither_password() {
        let server = OpenSearch::at("https://ann:s%40cret@search.example.org:9200/books").unwrap();
        assert_eq!(
            server.index.as_str(),
            "https://search.example.org:9200/books"
        );
        assert_eq!(server.user, Some(("ann".to_owned(), "s@cret".to_owned())));
        let shown = server.away("gone".to_owned()).to_string();
        assert!(!shown.contains("cret"), "{shown}");
        let server = OpenSearch::at("http://127.0.0.1:9200").unwrap();
        assert_eq!(server.index.path(), INDEX);
        assert!(OpenSearch::at("search.example.org").is_err());
    }

    #[test]
    fn ids_of_two_tenants_never_meet() {
        assert_ne!(id_of("a", "b"), id_of("ab", ""));
        assert_eq!(id_of("a", &"x".repeat(1_024)).len(), 64);
    }

    #[test]
    fn marks_are_taken_off_letters() {
        assert_eq!(
            without_marks("litte\u{301}rature caf\u{e9}"),
            "litterature caf\u{e9}"
        );
    }
}
