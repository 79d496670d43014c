//! `docs/explanation/performance.md` and its plots.

mod plots;

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Result;

use crate::{
    managers::Manager,
    results::Measurement,
    statistics::{Group, Summary},
    suite,
};

/// The text of the report about a case, and which of its values are shown.
struct About {
    case: &'static str,
    title: &'static str,
    text: &'static str,
    /// The values in the table, and the titles of their columns.
    columns: &'static [(&'static str, &'static str)],
    plot: Option<&'static str>,
}

const ABOUT: &[About] = &[
    About {
        case: "initialize",
        title: "Nodes that wait when the manager starts",
        text: "All Nodes are there, tainted as uninitialised, when the process is started. Time runs from there to the \
               last change of the last Node: its addresses, provider ID, zone, region and type are written and the \
               taint is gone. The floor is a client that lists once and writes the same two patches a Node, without \
               watching or deciding anything, with as many connections: first the one of all Nodes, then the other. The \
               CPU of API server and etcd is that of the whole time and of two seconds more. Nobody else writes the Nodes meanwhile; a \
               heartbeat in that moment costs the daemon another request.",
        columns: &[
            ("seconds", "time"),
            ("cpu_seconds", "CPU"),
            ("cluster_cpu_seconds", "CPU of API server and etcd"),
            ("peak_bytes", "peak memory"),
        ],
        plot: Some("initialize"),
    },
    About {
        case: "vsphere",
        title: "Nodes that are machines of a vCenter",
        text: "The same on vcsim, govmomi's simulator, with one CPI configuration file for both. Round trips are SOAP \
               and REST calls, login, tags and watch included; vcsim puts 100 objects into each answer of the watch, which \
               takes eleven of them here. Only `cloud-node-controller` runs.",
        columns: &[
            ("seconds", "time"),
            ("round_trips", "round trips"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
        ],
        plot: None,
    },
    About {
        case: "vsphere-change",
        title: "A machine of a vCenter changes",
        text: "From the change in vcsim to what the Node shows of it. A deletion here waits on purpose until it is \
               confirmed (docs/reference/deletion.md); that the machine is gone is noticed when \
               `/debug/state` says so, which it does after all Nodes were asked about once more.",
        columns: &[("seconds", "time")],
        plot: None,
    },
    About {
        case: "join",
        title: "One Node joins a settled cluster",
        text: "From the POST of the Node to the moment at which a watch sees it complete, one Node after the other.",
        columns: &[("median_seconds", "median"), ("p99_seconds", "99 %"), ("max_seconds", "slowest")],
        plot: None,
    },
    About {
        case: "settled",
        title: "A settled cluster",
        text: "Nothing happens but kubelets' heartbeats: each renews its Lease every 10 s and writes its Node's status \
               every 5 minutes. Nodes are Ready. The floor is a client that receives what the watch says of that, and \
               reads nothing of it.",
        columns: &[
            ("cpu_seconds", "CPU"),
            ("writes", "writes"),
            ("memory_bytes", "memory"),
            ("grown_bytes", "grown by"),
        ],
        plot: None,
    },
    About {
        case: "restart",
        title: "Start in a large cluster",
        text: "All Nodes but one are initialised. From the start of the process to the patch of that one.",
        columns: &[("seconds", "time"), ("cpu_seconds", "CPU"), ("peak_bytes", "peak memory")],
        plot: None,
    },
    About {
        case: "hand-over",
        title: "The leader ends",
        text: "Two replicas with the default leader election. From the signal to the leader to the next Node that the \
               other one has initialised.",
        columns: &[("seconds", "time")],
        plot: None,
    },
    About {
        case: "services",
        title: "Services that wait when the manager starts",
        text: "Services of type `LoadBalancer` are there when the process is started, with ten Nodes. Time runs until every \
               Service has an address. Calls of the cloud and writes of Services are for each Service until then; the last \
               two columns are all that came in the five seconds after. Only the service controller runs.",
        columns: &[
            ("seconds", "time"),
            ("calls", "calls a Service"),
            ("writes", "writes a Service"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
            ("more_calls", "calls after"),
            ("more_writes", "writes after"),
        ],
        plot: None,
    },
    About {
        case: "service-nodes",
        title: "Nodes that come and go beside Services",
        text: "All Services have their load balancers. Nodes are added, then each gets a label that no load balancer depends \
               on, then they are deleted. Time and calls do not count the labels; calls while they were written have a column \
               of their own. Time includes two pauses of five seconds without a call.",
        columns: &[
            ("seconds", "time"),
            ("calls", "calls a Service"),
            ("idle_calls", "calls for labels"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
        ],
        plot: None,
    },
    About {
        case: "routes",
        title: "Nodes that wait for routes when the manager starts",
        text: "Each Node has a pod CIDR. Time runs from the start of the process until every Node's condition \
               `NetworkUnavailable` is `False`. Only the route controller runs.",
        columns: &[
            ("seconds", "time"),
            ("calls", "calls a Node"),
            ("writes", "writes a Node"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
        ],
        plot: None,
    },
    About {
        case: "machines",
        title: "Libvirt machines that wait when the manager starts",
        text: "LibvirtMachines, each with its Machine and its bootstrap data, and a base volume on each of five hypervisors: five \
               libvirtds with libvirt's test driver, over their sockets. Time runs from the start of the process until \
               every machine is provisioned; then all are deleted at once. Writes are those of the LibvirtMachine and its status. \
               Calls are calls to libvirt on all hypervisors, those that follow its events and those that look for leases included: \
               the test driver has no list of leases, so each domain is asked with two calls. The test driver refuses uploads, which is \
               overlooked: seeds are made and described as on any hypervisor, but their bytes are not sent. Only the machine \
               controller runs.",
        columns: &[
            ("seconds", "time"),
            ("writes", "writes a machine"),
            ("events", "events a machine"),
            ("calls", "calls a machine"),
            ("calls_of_one", "calls of one hypervisor"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
            ("gone_seconds", "deletion"),
            ("gone_writes", "writes a machine"),
            ("gone_calls", "calls a machine"),
        ],
        plot: None,
    },
    About {
        case: "vsphere-machines",
        title: "Machines of a vCenter that wait when the manager starts",
        text: "VSphereMachines, each with its Machine and its bootstrap data, under Cluster API's own core manager, beside \
               Cluster API Provider vSphere (CAPV) 1.14.0, on vcsim whose guests report an address when they are powered on. Time \
               runs from the start of the process until the core says that every Machine has its infrastructure; then all \
               Machines are deleted at once. Calls and writes are for each machine: calls by SOAP, the watch included, and by \
               REST; then the calls of both without those that follow objects and tasks; writes of the manager's account in the API server's audit log, those for the cluster and of events included. CAPV at its best \
               flags has no client throttle.",
        columns: &[
            ("seconds", "time"),
            ("soap_calls", "SOAP calls"),
            ("rest_calls", "REST calls"),
            ("other_calls", "without the watch"),
            ("writes", "writes"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
            ("gone_seconds", "deletion"),
            ("gone_soap_calls", "SOAP calls"),
            ("gone_other_calls", "without the watch"),
            ("gone_writes", "writes"),
        ],
        plot: None,
    },
    About {
        case: "vsphere-lost",
        title: "A machine of a vCenter is destroyed by hand",
        text: "The same, 90 s after all machines were made. From the power-off and destruction in vcsim until the objects tell of it. \
               CAPV tells it on the VSphereVM alone, with its resync of 10 minutes, unless something else makes it look.",
        columns: &[
            ("vm_seconds", "VSphereVM"),
            ("machine_seconds", "VSphereMachine"),
            ("core_seconds", "Machine"),
        ],
        plot: None,
    },
    About {
        case: "lifecycle",
        title: "Machines of a MachineDeployment",
        text: "One MachineDeployment on Cluster API's in-memory provider, whose machines and workload API server are there at once, beside \
               Cluster API 1.14: its core and its kubeadm bootstrap manager together, for which the daemon stands alone. Its best flags \
               have no client throttle and 50 workers. The control plane is one Machine without a control plane object. Time runs from \
               the creation of the MachineDeployment until all of its machines are available; then it is deleted, until its Machines are \
               gone. Writes are for each machine: MachineDeployment, MachineSet, Machine, KubeadmConfig, Secret, templates and owner \
               references, those that are refused included. CPU is that of the creation.",
        columns: &[
            ("seconds", "time"),
            ("writes", "writes"),
            ("cpu_seconds", "CPU"),
            ("peak_bytes", "peak memory"),
            ("gone_seconds", "deletion"),
            ("gone_writes", "writes"),
            ("gone_cpu_seconds", "CPU"),
            ("rest_writes", "writes at rest"),
        ],
        plot: None,
    },
    About {
        case: "startup",
        title: "The program",
        text: "Both with their ideal cloud and nothing else built in.",
        columns: &[
            ("binary_bytes", "binary"),
            ("version_seconds", "`--version`"),
            ("healthy_seconds", "start to `/healthz`"),
        ],
        plot: None,
    },
];

/// The variants in the order of the suite, and the managers of each in the order of the report, whatever was
/// measured first.
fn grouped<'a>(measurements: &'a [Measurement], case: &str) -> Vec<(&'a str, Vec<(&'a str, Group)>)> {
    let mut variants: Vec<(&str, Vec<(&str, Group)>)> = Vec::new();
    for measurement in measurements.iter().filter(|one| one.case == case) {
        let variant = position_or_push(&mut variants, &measurement.variant);
        let group = position_or_push(variant, &measurement.manager);
        for (name, value) in &measurement.values {
            group.entry(name.clone()).or_default().push(*value);
        }
    }
    let order = suite::variants(case);
    variants.sort_by_key(|(variant, _)| order.iter().position(|name| name == variant).unwrap_or(order.len()));
    for (_, managers) in &mut variants {
        managers.sort_by_key(|(name, _)| Manager::ALL.iter().position(|manager| manager.name() == *name));
    }
    variants
}

fn position_or_push<'a, 'b, T: Default>(list: &'b mut Vec<(&'a str, T)>, key: &'a str) -> &'b mut T {
    let index = list.iter().position(|(name, _)| *name == key).unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[index].1
}

/// Writes `performance.md` and its plots into the folder.
pub(crate) fn write(measurements: &[Measurement], folder: &Path, remark: &str) -> Result<()> {
    let plots = folder.join("performance");
    fs::create_dir_all(&plots)?;
    let mut text = introduction()?;
    if !remark.is_empty() {
        write!(text, "\n{}\n", wrapped(remark))?;
    }
    for about in ABOUT {
        let variants = grouped(measurements, about.case);
        if variants.is_empty() {
            continue;
        }
        write!(text, "\n## {}\n\n{}\n\n", about.title, wrapped(about.text))?;
        table(&mut text, about, &variants)?;
        if about.plot == Some("initialize") {
            plots::times(&variants, &plots.join("initialize.svg"))?;
            plots::scaling(&variants, &plots.join("scaling.svg"))?;
            text.push_str("\n![Time by manager](performance/initialize.svg)\n");
            text.push_str("\n![Time and peak memory by number of Nodes](performance/scaling.svg)\n");
            memory_per_object(&mut text, &variants, "Node")?;
        }
        if about.case == "machines" {
            memory_per_object(&mut text, &variants, "machine")?;
        }
    }
    fs::write(folder.join("performance.md"), text)?;
    Ok(())
}

fn introduction() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kilobytes: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    Ok(format!(
        "<!-- Written by `make bench`; do not edit. -->\n\n# Performance\n\n\
         Measured by `make bench` on one machine with {cores} cores and {} GiB of memory, on which API server and etcd\n\
         run too. Managers take turns, where nothing else is said; each cell is the median, with minimum and maximum\n\
         where there are several runs.\n\
         Times depend on the machine: what can be compared are the ratios to `{}` in the same table.\n\n\
         \"Go\" is the Kubernetes 1.37 framework, `k8s.io/cloud-provider`, with a cloud in memory that answers at once;\n\
         its best flags are `--concurrent-node-syncs=64`, `--concurrent-service-syncs=64`,\n\
         `--concurrent-node-lifecycle-syncs=64` and no client throttle.\n\
         `{}` has the same cloud.\n\
         \"CPI\" is vSphere's own manager 1.36, made with the framework of that version.\n\
         Nodes are of real size, with 50 images, where nothing else is said.\n",
        kilobytes / (1024 * 1024),
        Manager::Ours.name(),
        Manager::Ours.name(),
    ))
}

fn table(text: &mut String, about: &About, variants: &[(&str, Vec<(&str, Group)>)]) -> Result<()> {
    let has_variants = variants.iter().any(|(variant, _)| !variant.is_empty());
    let mut head = vec!["", "runs"];
    if has_variants {
        head.insert(0, "");
    }
    for (_, title) in about.columns {
        head.extend([*title, "ratio"]);
    }
    writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()))?;
    for (variant, managers) in variants {
        let ours = managers.iter().find(|(name, _)| *name == Manager::Ours.name()).map(|(_, group)| group);
        for (manager, group) in managers {
            let runs = group.values().map(Vec::len).max().unwrap_or_default().to_string();
            let mut cells = vec![(*manager).to_owned(), runs];
            if has_variants {
                cells.insert(0, (*variant).to_owned());
            }
            for (name, _) in about.columns {
                let summary = |group: &Group| group.get(*name).and_then(|values| Summary::of(values));
                let (of_this, of_ours) = (summary(group), ours.and_then(summary));
                cells.push(of_this.map_or_else(String::new, |summary| cell(name, &summary)));
                cells.push(match (of_this, of_ours) {
                    (Some(this), Some(ours)) if *manager != Manager::Ours.name() && ours.median > 0.0 => {
                        ratio(this.median / ours.median)
                    }
                    _ => String::new(),
                });
            }
            writeln!(text, "| {} |", cells.join(" | "))?;
        }
    }
    Ok(())
}

/// What each Node or machine adds to the peak memory, between the smallest and the largest number of them.
fn memory_per_object(text: &mut String, variants: &[(&str, Vec<(&str, Group)>)], object: &str) -> Result<()> {
    for manager in [Manager::Ours, Manager::GoBest] {
        let points = plots::points(variants, manager.name(), "peak_bytes");
        if let (Some((few, low)), Some((many, high))) = (points.first(), points.last())
            && many > few
        {
            let bytes = (high - low) / (many - few);
            writeln!(
                text,
                "\nFrom {few:.0} to {many:.0} {object}s, each {object} adds {bytes:.0} bytes to the peak memory of `{}`.",
                manager.name()
            )?;
        }
    }
    Ok(())
}

fn cell(name: &str, summary: &Summary) -> String {
    let median = value(name, summary.median);
    if summary.count == 1 {
        return median;
    }
    format!("{median} ({} to {})", value(name, summary.minimum), value(name, summary.maximum))
}

fn value(name: &str, value: f64) -> String {
    if name.ends_with("seconds") {
        if value < 1.0 { format!("{:.1} ms", value * 1000.0) } else { format!("{value:.2} s") }
    } else if name.ends_with("bytes") {
        format!("{:.1} MiB", value / (1024.0 * 1024.0))
    } else if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

fn ratio(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}x") } else { format!("{ratio:.2}x") }
}

/// Lines of 120 characters at most.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > 120 {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(manager: &str, variant: &str, seconds: f64) -> Measurement {
        Measurement {
            case: "initialize".to_owned(),
            variant: variant.to_owned(),
            manager: manager.to_owned(),
            values: [("seconds", seconds), ("nodes", 100.0), ("peak_bytes", 1_048_576.0)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
        }
    }

    #[test]
    fn medians_ranges_ratios_and_plots() {
        let folder = tempfile::tempdir().expect("a folder");
        let measured = [1.0, 3.0, 2.0].map(|seconds| measurement("ours", "100 Nodes", seconds));
        let mut measured = measured.to_vec();
        measured.push(measurement("Go, best flags", "100 Nodes", 30.0));
        write(&measured, folder.path(), "One after the other.").expect("written");
        let text = fs::read_to_string(folder.path().join("performance.md")).expect("a report");
        assert!(text.contains("\nOne after the other.\n"), "{text}");
        assert!(text.contains("| 100 Nodes | ours | 3 | 2.00 s (1.00 s to 3.00 s) |  |"), "{text}");
        assert!(text.contains("| 100 Nodes | Go, best flags | 1 | 30.00 s | 15x |"), "{text}");
        let plot = fs::read_to_string(folder.path().join("performance/initialize.svg")).expect("a plot");
        assert!(plot.contains("<svg") && plot.contains("Go, best flags"));
    }
}
