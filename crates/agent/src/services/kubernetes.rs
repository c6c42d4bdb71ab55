//! KubernetesControllerService: the containers of the node that the agent runs on.
//!
//! MiNiFi C++ asks the cluster's API server for all pods. What TailFile wants of them stands in the
//! names of the folders in which the kubelet keeps their logs, `NAMESPACE_POD_UID/CONTAINER`: it is
//! read from there, with no account at the API server, and for this node's pods alone, whose logs are
//! the only ones here. A name of Kubernetes' has no underscore in it.
//!
//! Leaves out what only the API server knows: labels, and the metrics of CollectKubernetesPodMetrics.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regex::Regex;

use super::ServiceKind;
use crate::flowfile::Attributes;
use crate::limits::TAIL_FILES_MAX;
use crate::patterns;
use crate::processors::{Dynamic, PropertyKind, Settings};

/// What properties that want attributes ask for; its type is [`Containers`].
pub(crate) const ATTRIBUTE_PROVIDER: &str = "AttributeProviderService";

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "KubernetesControllerService",
    provides: ATTRIBUTE_PROVIDER,
    description: "The containers whose logs this node of a Kubernetes cluster has, by the \
                  attributes namespace, pod, uid and container. The kubelet's folders tell them; \
                  the API server is not asked.",
    properties: &[
        PropertyKind::new(
            NAMESPACE_FILTER,
            "A regular expression; only pods of namespaces whose whole name it matches.",
        )
        .default("default"),
        PropertyKind::new(POD_FILTER, "The same for the names of pods."),
        PropertyKind::new(CONTAINER_FILTER, "The same for the names of containers."),
        PropertyKind::new(
            "Pod Log Directory",
            "Where the kubelet's folder of pods is, as the agent sees it.",
        )
        .default("/var/log/pods"),
    ],
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(Containers::new(settings)?)),
};

/// The containers of this node that pass the filters.
pub(crate) struct Containers {
    folder: PathBuf,
    namespaces: Option<Regex>,
    pods: Option<Regex>,
    containers: Option<Regex>,
}

/// What is there now.
#[derive(Default)]
pub(crate) struct Found {
    /// Each container's attributes.
    pub(crate) containers: Vec<Attributes>,
    /// Folders in which new ones appear.
    pub(crate) folders: Vec<PathBuf>,
}

impl Containers {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let filter = |name: &str| {
            let pattern = settings.text(name)?;
            let pattern = pattern.map(|text| patterns::whole_text(&text)).transpose();
            pattern.map_err(|error| format!("{name}: {error}"))
        };
        Ok(Containers {
            folder: settings.needed("Pod Log Directory")?.into(),
            namespaces: filter(NAMESPACE_FILTER)?,
            pods: filter(POD_FILTER)?,
            containers: filter(CONTAINER_FILTER)?,
        })
    }

    /// What attributes of FlowFiles begin with.
    pub(crate) fn prefix(&self) -> &'static str {
        "kubernetes."
    }

    /// Looks for containers; what goes meanwhile is left out.
    pub(crate) fn find(&self) -> io::Result<Found> {
        let mut found = Found::default();
        found.folders.push(self.folder.clone());
        for pod_folder in folders(&self.folder)? {
            let parts: Vec<&str> = pod_folder.split('_').collect();
            let [namespace, pod, uid] = parts[..] else {
                continue;
            };
            if !passes(&self.namespaces, namespace) || !passes(&self.pods, pod) {
                continue;
            }
            let path = self.folder.join(&pod_folder);
            let containers = match folders(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                containers => containers?,
            };
            found.folders.push(path);
            for container in containers {
                if found.containers.len() < TAIL_FILES_MAX && passes(&self.containers, &container) {
                    found.containers.push(Attributes::new([
                        ("namespace", namespace),
                        ("pod", pod),
                        ("uid", uid),
                        ("container", container.as_str()),
                    ]));
                }
            }
        }
        Ok(found)
    }
}

/// Names of the folders in a folder, in their order.
fn folders(within: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(within)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn passes(filter: &Option<Regex>, name: &str) -> bool {
    filter.as_ref().is_none_or(|filter| filter.is_match(name))
}

const NAMESPACE_FILTER: &str = "Namespace Filter";
const POD_FILTER: &str = "Pod Name Filter";
const CONTAINER_FILTER: &str = "Container Name Filter";
