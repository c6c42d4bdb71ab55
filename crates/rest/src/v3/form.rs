//! The form of version 3's objects: what each is, where it lies, what it points to.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use crate::answer;

/// Where an object lies: its URL, and its name as a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    url: String,
    resource: String,
}

/// What every object says of itself.
#[derive(Serialize)]
pub(super) struct Metadata {
    #[serde(rename = "self")]
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_name: String,
}

/// A pointer to another object.
#[derive(Serialize)]
pub(super) struct Related {
    related: String,
}

/// An object with its kind.
#[derive(Serialize)]
pub(super) struct Object<T> {
    kind: &'static str,
    metadata: Metadata,
    #[serde(flatten)]
    pub fields: T,
}

#[derive(Serialize)]
struct List<T> {
    kind: String,
    metadata: ListMetadata,
    data: Vec<T>,
}

#[derive(Serialize)]
struct ListMetadata {
    #[serde(rename = "self")]
    url: String,
    /// Where the list goes on; most come whole.
    next: Option<String>,
}

impl Related {
    /// The URL that it points to.
    pub fn url(self) -> String {
        self.related
    }
}

impl Place {
    /// The cluster's, under the proxy's own URL.
    pub fn of_cluster(root: &str, id: &str) -> Place {
        Place {
            url: format!("{root}/v3/clusters/{}", answer::segment(id)),
            resource: format!("crn:///kafka={}", answer::segment(id)),
        }
    }

    /// That of an object of the kind `resource`, in the collection at `path`.
    pub fn under(&self, path: &str, resource: &str, name: impl ToString) -> Place {
        let name = answer::segment(&name.to_string());
        Place {
            url: format!("{}/{path}/{name}", self.url),
            resource: format!("{}/{resource}={name}", self.resource),
        }
    }

    /// That of the one object at `path` under it.
    pub fn singleton(&self, path: &str) -> Place {
        Place {
            url: format!("{}/{path}", self.url),
            resource: format!("{}/{path}", self.resource),
        }
    }

    /// That of an object which has a URL and no name as a resource.
    pub fn elsewhere(&self, url: String) -> Place {
        Place {
            url,
            resource: String::new(),
        }
    }

    /// The URL of the collection that it is in.
    pub fn parent_url(&self) -> String {
        let parent = self.url.rsplit_once('/');
        parent.map_or(&*self.url, |(parent, _)| parent).to_owned()
    }

    /// A pointer to it.
    pub fn related(&self) -> Related {
        Related {
            related: self.url.clone(),
        }
    }

    /// A pointer to what lies under it.
    pub fn related_under(&self, path: &str) -> Related {
        Related {
            related: format!("{}/{path}", self.url),
        }
    }

    /// The object that lies here.
    pub fn object<T>(&self, kind: &'static str, fields: T) -> Object<T> {
        Object {
            kind,
            metadata: Metadata {
                url: self.url.clone(),
                resource_name: self.resource.clone(),
            },
            fields,
        }
    }

    /// The answer that is a list of objects of `kind`, which lies under this place at `path`.
    pub fn list<T: Serialize>(&self, path: &str, kind: &str, data: Vec<T>) -> Response {
        list_at(format!("{}/{path}", self.url), kind, data)
    }
}

/// The answer that is a list of objects of `kind` with this URL.
pub(super) fn list_at<T: Serialize>(url: String, kind: &str, data: Vec<T>) -> Response {
    list(ListMetadata { url, next: None }, kind, data)
}

/// The same of a list that goes on at `next`.
pub(super) fn list_with_next<T: Serialize>(
    url: String,
    kind: &str,
    data: Vec<T>,
    next: String,
) -> Response {
    let next = Some(next);
    list(ListMetadata { url, next }, kind, data)
}

fn list<T: Serialize>(metadata: ListMetadata, kind: &str, data: Vec<T>) -> Response {
    let list = List {
        kind: format!("{kind}List"),
        metadata,
        data,
    };
    json(StatusCode::OK, &list)
}

/// An answer of plain JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    answer::json(status, JSON, body)
}

/// The media type of everything here but streams of records, which have it too.
pub(super) const JSON: &str = "application/json";
