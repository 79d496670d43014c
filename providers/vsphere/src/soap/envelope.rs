//! Writes requests.

use std::fmt::Write;

use quick_xml::escape::escape;

use crate::vim::{Call, Field, Value};

const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
<Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\" \
xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\">";
const END: &str = "</Body></Envelope>";

/// The names of most methods.
pub(super) const VIM: &str = "urn:vim25";

/// The names of the methods of storage policies.
pub(super) const POLICIES: &str = "urn:pbm";

/// The request for a call of a method with a name in `namespace`. A `session` is sent where it does not go as a cookie.
pub(super) fn write(call: &Call, namespace: &str, session: Option<&str>) -> String {
    let mut out = String::with_capacity(1024);
    out.push_str(BEGIN);
    // writing to a String cannot fail
    if let Some(session) = session {
        let session = escape(session);
        let _ = write!(out, "<Header><vcSessionCookie>{session}</vcSessionCookie></Header>");
    }
    let _ = write!(out, "<Body><{} xmlns=\"{namespace}\">", call.method);
    let _ = write!(out, "<_this type=\"{}\">{}</_this>", escape(call.this.kind()), escape(call.this.id()));
    write_fields(&mut out, &call.arguments);
    let _ = write!(out, "</{}>", call.method);
    out.push_str(END);
    out
}

fn write_fields(out: &mut String, fields: &[Field]) {
    for (name, value) in fields {
        let _ = match value {
            Value::Text(text) | Value::Secret(text) => write!(out, "<{name}>{}</{name}>", escape(text)),
            Value::AnyString(text) | Value::AnySecret(text) => {
                write!(out, "<{name} xsi:type=\"xsd:string\">{}</{name}>", escape(text))
            }
            Value::Ref(object) => {
                write!(out, "<{name} type=\"{}\">{}</{name}>", escape(object.kind()), escape(object.id()))
            }
            Value::Object(kind, fields) => {
                let _ = match kind {
                    Some(kind) => write!(out, "<{name} xsi:type=\"{kind}\">"),
                    None => write!(out, "<{name}>"),
                };
                write_fields(out, fields);
                write!(out, "</{name}>")
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        moref::MoRef,
        vim::{
            objects::{
                Login, ObjectSpec, PropertyFilterSpec, PropertySpec, RetrieveOptions, RetrievePropertiesEx,
                TraversalSpec,
            },
            policies::{RetrievePolicyServices, policy_service},
        },
    };

    #[test]
    fn a_read_of_a_view_as_a_real_vcenter_wants_it() {
        let call = RetrievePropertiesEx {
            spec_set: vec![PropertyFilterSpec {
                prop_set: vec![PropertySpec {
                    kind: "VirtualMachine",
                    all: None,
                    path_set: vec!["name", "guest.net"],
                }],
                object_set: vec![ObjectSpec {
                    obj: MoRef::new("ContainerView", "session[1]2"),
                    skip: Some(true),
                    select_set: vec![TraversalSpec {
                        name: Some("v"),
                        kind: "ContainerView",
                        path: "view",
                        skip: Some(false),
                        select_set: Vec::new(),
                    }],
                }],
                report_missing_objects_in_results: None,
            }],
            options: RetrieveOptions { max_objects: Some(500) },
        }
        .of(&MoRef::new("PropertyCollector", "propertyCollector"));
        assert_eq!(
            write(&call, VIM, None),
            format!(
                "{BEGIN}<Body><RetrievePropertiesEx xmlns=\"urn:vim25\">\
                 <_this type=\"PropertyCollector\">propertyCollector</_this>\
                 <specSet><propSet><type>VirtualMachine</type><pathSet>name</pathSet><pathSet>guest.net</pathSet></propSet>\
                 <objectSet><obj type=\"ContainerView\">session[1]2</obj><skip>true</skip>\
                 <selectSet xsi:type=\"TraversalSpec\"><name>v</name><type>ContainerView</type><path>view</path>\
                 <skip>false</skip></selectSet></objectSet></specSet>\
                 <options><maxObjects>500</maxObjects></options></RetrievePropertiesEx>{END}"
            )
        );
    }

    #[test]
    fn a_call_about_policies_has_its_session_in_the_header() {
        let call = RetrievePolicyServices {}.of(&policy_service());
        assert_eq!(
            write(&call, POLICIES, Some("a&b")),
            format!(
                "{BEGIN}<Header><vcSessionCookie>a&amp;b</vcSessionCookie></Header><Body>\
                 <PbmRetrieveServiceContent xmlns=\"urn:pbm\"><_this type=\"PbmServiceInstance\">ServiceInstance</_this>\
                 </PbmRetrieveServiceContent>{END}"
            )
        );
    }

    #[test]
    fn what_people_type_is_escaped() {
        let call = Login {
            user_name: "a&b<c>@d".to_owned(),
            password: Value::Secret("\"p'<&>".to_owned()),
            locale: None,
        }
        .of(&MoRef::new("SessionManager", "SessionManager"));
        let text = write(&call, VIM, None);
        assert!(text.contains("<userName>a&amp;b&lt;c&gt;@d</userName>"), "{text}");
        assert!(text.contains("<password>&quot;p&apos;&lt;&amp;&gt;</password>"), "{text}");
    }
}
