//! Templates of providers, and the objects that are made of them.
//!
//! A user of a namespace writes the reference to a template, and the template. So both kinds have the label of the contract, the template
//! is in the namespace of what is made, and group and kind of what is made are those of the template without `Template`, whatever stands
//! inside of it: a user who may write templates creates no other kinds by them.

use std::collections::BTreeMap;

use cluster_api::names::{annotations, labels};
use controller_kit::writes::WriteError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::{
    core::Core,
    engine::{
        control::Failure,
        external::{ExternalKind, GroupKind, NotReadable},
        writer::to_json,
    },
};

/// The suffix of the kinds of templates.
const SUFFIX: &str = "Template";

/// Why there is no template to make anything of.
#[derive(Debug)]
pub(crate) enum NoTemplate {
    /// The reference names none.
    Absent(String),
    /// The API server does not say.
    Unknown(Failure),
}

/// A template.
#[derive(Debug)]
pub(crate) struct Template {
    /// The kind that is made of it.
    pub(crate) makes: ExternalKind,
    of: GroupKind,
    name: String,
    /// `spec.template`
    content: Value,
}

/// What is made of a template.
#[derive(Debug)]
pub(crate) struct Made<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The Cluster, for the label.
    pub(crate) cluster: &'a str,
    /// They go before those of the template.
    pub(crate) labels: BTreeMap<String, String>,
    /// They go before those of the template.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owner: OwnerReference,
}

/// The kind that is made of templates of this kind. `None`: it is no kind of templates.
pub(crate) fn made_of(template: &GroupKind) -> Option<GroupKind> {
    let kind = template.kind.strip_suffix(SUFFIX).filter(|kind| !kind.is_empty())?;
    Some(GroupKind { group: template.group.clone(), kind: kind.to_owned() })
}

/// Name and kind of a template, as the annotations of what is made of it have them.
pub(crate) fn cloned_from(of: &GroupKind, name: &str) -> [(&'static str, String); 2] {
    [
        (annotations::CLONED_FROM_NAME, name.to_owned()),
        (annotations::CLONED_FROM_GROUP_KIND, format!("{}.{}", of.kind, of.group)),
    ]
}

impl Template {
    /// Reads it.
    pub(crate) async fn read(
        core: &Core,
        namespace: &str,
        of: GroupKind,
        name: &str,
    ) -> Result<Self, NoTemplate> {
        let makes =
            made_of(&of).ok_or_else(|| NoTemplate::Absent(format!("its kind does not end with {SUFFIX}")))?;
        let kind = core.externals.of(&of).await?;
        let makes = core.externals.of(&makes).await?;
        let mut template: Value = match core.writer.read_at(&kind.place(namespace, name)).await {
            Ok(template) => template,
            Err(WriteError::Gone) => return Err(NoTemplate::Absent("it does not exist".to_owned())),
            Err(error) => return Err(NoTemplate::Unknown(error.into())),
        };
        let content = template["spec"]["template"].take();
        Ok(Self { makes, of, name: name.to_owned(), content })
    }

    /// The object that is made of it.
    pub(crate) fn object(&self, made: Made<'_>) -> Result<Value, WriteError> {
        let Made { namespace, name, cluster, labels: own_labels, annotations: own_annotations, owner } = made;
        let mut labels = self.texts("labels");
        labels.extend(own_labels);
        labels.insert(labels::CLUSTER_NAME.to_owned(), cluster.to_owned());
        let mut annotations = self.texts("annotations");
        annotations.extend(own_annotations);
        annotations.extend(cloned_from(&self.of, &self.name).map(|(key, value)| (key.to_owned(), value)));
        let mut object = json!({
            "apiVersion": self.makes.api_version(),
            "kind": self.makes.of.kind,
            "metadata": {
                "namespace": namespace, "name": name, "labels": labels, "annotations": annotations,
                "ownerReferences": [to_json(&owner)?],
            },
        });
        if let Some(spec) = self.content.get("spec") {
            object["spec"] = spec.clone();
        }
        Ok(object)
    }

    /// A map of the metadata.
    fn texts(&self, field: &str) -> BTreeMap<String, String> {
        let entries = self.content["metadata"][field].as_object().into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }
}

impl From<NotReadable> for NoTemplate {
    fn from(error: NotReadable) -> Self {
        match error {
            NotReadable::NoDefinition(why) | NotReadable::NoContract(why) => Self::Absent(why),
            NotReadable::Unknown(why) => Self::Unknown(Failure::Failed(why)),
        }
    }
}
