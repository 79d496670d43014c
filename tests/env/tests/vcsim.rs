//! The vCenter simulator counts calls, makes changes and injects faults as requested.

use std::error::Error;
use std::io::Write;
use std::process::Command;

use serde_json::json;
use test_env::{StartError, Vcsim, VcsimOptions};

#[test]
fn a_vcenter_to_count_change_and_break() -> Result<(), Box<dyn Error>> {
    match play() {
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            writeln!(std::io::stderr(), "SKIPPED: {reason}")?;
            Ok(())
        }
        outcome => Ok(outcome?),
    }
}

fn play() -> Result<(), StartError> {
    let mut vcsim = Vcsim::start(&VcsimOptions::default())?;
    let content = "<RetrieveServiceContent xmlns='urn:vim25'><_this type='ServiceInstance'>ServiceInstance</_this></RetrieveServiceContent>";
    assert!(call(&vcsim, content).contains("<rootFolder type=\"Folder\">"));
    let login = format!(
        "<Login xmlns='urn:vim25'><_this type='SessionManager'>SessionManager</_this><userName>{}</userName>\
         <password>{}</password></Login>",
        vcsim.user(),
        vcsim.password()
    );
    let answer = call(&vcsim, &login);
    assert!(
        answer.contains("set-cookie: vmware_soap_session=\"")
            || answer.contains("Set-Cookie: vmware_soap_session=\""),
        "{answer}"
    );
    assert_eq!(vcsim.sessions()?, (1, 1, 0));
    vcsim.expire_sessions()?;
    assert_eq!(vcsim.sessions()?, (0, 1, 0));
    assert_eq!(vcsim.counts()?["soap:Login"], 1);

    vcsim.set_rules(&json!([{"methods": ["soap:*"], "fault": "NotAuthenticated", "times": 1}]))?;
    assert!(call(&vcsim, content).contains("xsi:type=\"NotAuthenticated\""));
    assert!(call(&vcsim, content).contains("rootFolder"));
    vcsim.set_credentials("other", "words")?;
    assert!(call(&vcsim, &login).contains("InvalidLogin"));

    let machine = "DC0_C0_RP0_VM1";
    vcsim
        .set_guest(machine, json!({"hostName": "abc", "nics": [{"network": "n", "ips": ["fd00::1/64"]}]}))?;
    vcsim.act(machine, "power-off", "")?;
    vcsim.act(machine, "move", "DC0_C0_H1")?;
    vcsim.attach_tag("k8s-zone", "z1", "HostSystem", "DC0_C0_H1")?;
    let found = vcsim.inventory()?;
    assert_eq!((found.len(), &found[1]["hostName"]), (4, &json!("abc")));
    assert_eq!(found[1]["power"], "poweredOff");
    vcsim.act(machine, "destroy", "")?;
    assert_eq!(vcsim.inventory()?.len(), 3);

    vcsim.kill()?;
    vcsim.restart()?;
    assert_eq!(vcsim.inventory()?.len(), 4);
    assert_eq!(vcsim.thumbprint("sha256")?.len(), 95);
    Ok(())
}

/// The vCenter's response, including status and headers.
fn call(vcsim: &Vcsim, body: &str) -> String {
    let envelope =
        format!("<Envelope xmlns='http://schemas.xmlsoap.org/soap/envelope/'><Body>{body}</Body></Envelope>");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--noproxy", "*", "--max-time", "10", "--cacert"])
        .arg(vcsim.ca_file())
        .args(["--data", &envelope, &vcsim.url()])
        .output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
