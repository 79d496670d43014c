//! What a hypervisor can run, from libvirt's capabilities.

use quick_xml::de;
use serde::Deserialize;

/// What a hypervisor can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// The host's architecture in libvirt's words, such as `x86_64`.
    pub(crate) arch: String,
    /// Whether guests of this architecture run with KVM.
    pub(crate) has_kvm: bool,
}

impl Capabilities {
    /// Reads libvirt's XML.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(xml: &str) -> Result<Self, String> {
        let read: Root =
            de::from_str(xml).map_err(|error| format!("the capabilities of the host: {error}"))?;
        let arch = read.host.cpu.arch;
        let guests = read.guests.iter().filter(|guest| guest.os_type == "hvm" && guest.arch.name == arch);
        let has_kvm = guests.flat_map(|guest| &guest.arch.domains).any(|domain| domain.kind == "kvm");
        Ok(Self { arch, has_kvm })
    }

    /// Whether it is of the family x86.
    pub(crate) fn is_x86(&self) -> bool {
        matches!(self.arch.as_str(), "x86_64" | "i686")
    }

    /// The architecture in Go's words, if it is one that Kubernetes runs on.
    pub(crate) fn go_arch(&self) -> Option<&'static str> {
        Some(match self.arch.as_str() {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "armv7l" => "arm",
            "ppc64le" => "ppc64le",
            "riscv64" => "riscv64",
            "s390x" => "s390x",
            _ => return None,
        })
    }
}

#[derive(Deserialize)]
struct Root {
    host: Host,
    #[serde(rename = "guest", default)]
    guests: Vec<Guest>,
}

#[derive(Deserialize)]
struct Host {
    cpu: Cpu,
}

#[derive(Deserialize)]
struct Cpu {
    arch: String,
}

#[derive(Deserialize)]
struct Guest {
    os_type: String,
    arch: Arch,
}

#[derive(Deserialize)]
struct Arch {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "domain", default)]
    domains: Vec<DomainType>,
}

#[derive(Deserialize)]
struct DomainType {
    #[serde(rename = "@type")]
    kind: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(domains: &str) -> String {
        format!(
            "<capabilities><host><uuid>x</uuid><cpu><arch>x86_64</arch><model>m</model></cpu></host>
             <guest><os_type>hvm</os_type><arch name='i686'><wordsize>32</wordsize><domain type='kvm'/></arch></guest>
             <guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize>
             <emulator>/usr/bin/qemu-system-x86_64</emulator><machine maxCpus='255'>pc</machine>{domains}</arch>
             <features><acpi default='on'/></features></guest></capabilities>"
        )
    }

    #[test]
    fn kvm_counts_for_the_architecture_of_the_host_only() {
        let with = Capabilities::parse(&xml("<domain type='qemu'/><domain type='kvm'/>")).expect("readable");
        assert_eq!(with, Capabilities { arch: "x86_64".to_owned(), has_kvm: true });
        assert!(!Capabilities::parse(&xml("<domain type='qemu'/>")).expect("readable").has_kvm);
        assert_eq!((with.is_x86(), with.go_arch()), (true, Some("amd64")));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(Capabilities::parse("<capabilities/>").expect_err("no host").contains("capabilities"));
    }
}
