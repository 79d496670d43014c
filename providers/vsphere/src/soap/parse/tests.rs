use proptest::prelude::*;

use super::*;
use crate::{
    moref::MoRef,
    vim::property_collector::{UpdateKind, read_listing, read_updates},
};

/// An envelope as a real vCenter writes it: with all prefixes declared at the top.
fn of_vcenter(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n{body}\n</soapenv:Body>\n</soapenv:Envelope>"
    )
}

fn good(body: &str) -> Element {
    read("M", 200, of_vcenter(body).as_bytes()).expect("good")
}

#[test]
fn both_prefixes_of_types_are_read() {
    let simulated = "<R xmlns=\"urn:vim25\"><returnval><token>T</token><objects>\
        <obj type=\"VirtualMachine\">vm-78</obj><propSet><name>runtime.host</name>\
        <val xmlns:_XMLSchema-instance=\"http://www.w3.org/2001/XMLSchema-instance\" type=\"HostSystem\" \
        _XMLSchema-instance:type=\"ManagedObjectReference\">host-24</val></propSet></objects></returnval></R>";
    let real = "<R xmlns=\"urn:vim25\"><returnval><token>T</token><objects><obj type=\"VirtualMachine\">vm-78</obj>\
        <propSet><name>runtime.host</name><val type=\"HostSystem\" xsi:type=\"ManagedObjectReference\">host-24</val>\
        </propSet></objects></returnval></R>";
    for text in [simulated, real] {
        let result = good(text);
        let page = read_listing("M", &result).expect("good");
        assert_eq!(page.token.as_deref(), Some("T"));
        let [object] = &page.objects[..] else { panic!("{page:?}") };
        assert_eq!(object.object, MoRef::new("VirtualMachine", "vm-78"));
        let (name, value) = object.properties[0];
        assert_eq!(
            (name, value.and_then(Element::moref)),
            ("runtime.host", Some(MoRef::new("HostSystem", "host-24")))
        );
        assert_eq!(value.and_then(|v| v.kind.as_deref()), Some("ManagedObjectReference"));
    }
}

#[test]
fn an_empty_answer_is_no_error() {
    for body in ["<R xmlns=\"urn:vim25\"></R>", "<R xmlns=\"urn:vim25\"/>"] {
        assert!(good(body).is_empty());
    }
}

#[test]
fn several_results_are_a_list() {
    let result = good(
        "<R xmlns=\"urn:vim25\"><returnval type=\"VirtualMachine\">vm-1</returnval>\
         <returnval type=\"VirtualMachine\">vm-2</returnval></R>",
    );
    assert_eq!(result.all("returnval").count(), 2);
}

#[test]
fn faults_go_by_type_and_not_by_text() {
    let body = of_vcenter(
        "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>The object 'vim.VirtualMachine:vm-1' has \
         already been deleted</faultstring><detail><ManagedObjectNotFoundFault xmlns=\"urn:vim25\" \
         xsi:type=\"ManagedObjectNotFound\"><obj type=\"VirtualMachine\">vm-1</obj></ManagedObjectNotFoundFault></detail>\
         </soapenv:Fault>",
    );
    let error = read("M", 500, body.as_bytes()).expect_err("a fault");
    assert!(error.is_fault("ManagedObjectNotFound"), "{error}");
    // without xsi:type, as in some old responses, and without any detail
    let body = of_vcenter(
        "<soapenv:Fault><faultstring>x</faultstring><detail><InvalidLoginFault/></detail></soapenv:Fault>",
    );
    assert!(read("M", 500, body.as_bytes()).expect_err("a fault").is_fault("InvalidLogin"));
    let body = of_vcenter(
        "<soapenv:Fault><faultcode>Client</faultcode><faultstring>x</faultstring></soapenv:Fault>",
    );
    assert!(read("M", 500, body.as_bytes()).expect_err("a fault").is_fault("Client"));
}

#[test]
fn an_expired_session_hides_in_the_missing_set() {
    let result = good(
        "<R xmlns=\"urn:vim25\"><returnval><objects><obj type=\"VirtualMachine\">vm-1</obj><missingSet><path>name</path>\
         <fault><fault xsi:type=\"NotAuthenticated\"><object type=\"Folder\">group-d1</object></fault>\
         <localizedMessage>The session is not authenticated.</localizedMessage></fault></missingSet></objects></returnval></R>",
    );
    assert!(read_listing("M", &result).expect_err("expired").is_session_lost());
    let denied = good(
        "<R xmlns=\"urn:vim25\"><returnval><objects><obj type=\"VirtualMachine\">vm-1</obj><missingSet><path>name</path>\
         <fault><fault xsi:type=\"NoPermission\"/></fault></missingSet></objects></returnval></R>",
    );
    assert_eq!(read_listing("M", &denied).expect("one property is missing").objects.len(), 1);
}

#[test]
fn updates() {
    let result = good(
        "<R xmlns=\"urn:vim25\"><returnval><version>7</version><filterSet><filter type=\"PropertyFilter\">f</filter>\
         <objectSet><kind>modify</kind><obj type=\"VirtualMachine\">vm-1</obj>\
         <changeSet><name>guest.hostName</name><op>assign</op><val xsi:type=\"xsd:string\">a &amp; b&#33;</val></changeSet>\
         <changeSet><name>guest.ipAddress</name><op>assign</op></changeSet>\
         <changeSet><name>name</name><op>remove</op><val xsi:type=\"xsd:string\">x</val></changeSet></objectSet>\
         <objectSet><kind>leave</kind><obj type=\"VirtualMachine\">vm-2</obj></objectSet></filterSet>\
         <truncated>true</truncated><unknown><deep>1</deep></unknown></returnval></R>",
    );
    let page = read_updates("M", &result).expect("good");
    assert_eq!((page.version.as_deref(), page.is_truncated), (Some("7"), true));
    assert_eq!(page.objects[0].kind, UpdateKind::Modify);
    assert_eq!(page.objects[0].properties[0].1.map(|v| &*v.text), Some("a & b!"));
    assert_eq!(page.objects[0].properties[1], ("guest.ipAddress", None));
    assert_eq!(page.objects[0].properties[2], ("name", None));
    assert_eq!(page.objects[1].kind, UpdateKind::Leave);
}

#[test]
fn what_is_no_soap() {
    for (status, body) in
        [(503, "<html><body>busy</body></html>"), (502, ""), (500, "no XML"), (404, "<Envelope/>")]
    {
        let error = read("M", status, body.as_bytes()).expect_err("no SOAP");
        assert_eq!(error, CallError::Status { method: "M", status }, "{body}");
    }
    for body in
        ["", "<Envelope", "<Envelope><Body/></Envelope>", "<a/>", "<!DOCTYPE x []><Envelope/>", "\u{1}"]
    {
        let error = read("M", 200, body.as_bytes()).expect_err("no SOAP");
        assert!(matches!(error, CallError::Malformed { .. }), "{body}: {error}");
    }
    let deep = "<a>".repeat(100_000);
    assert!(matches!(read("M", 200, deep.as_bytes()), Err(CallError::Malformed { .. })));
    assert!(read("M", 200, &[0xff, 0xfe]).is_err());
}

proptest! {
    #[test]
    fn nothing_panics(body in "(<[a-z:/ =\"]{0,12}>|[a-z&;#0-9]{0,5}|<!\\[CDATA\\[x\\]\\]>){0,30}", status in 200u16..600) {
        let _ = read("M", status, body.as_bytes());
        let _ = read("M", status, of_vcenter(&body).as_bytes());
    }
}
