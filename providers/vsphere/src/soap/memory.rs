//! The memory for 10,000 machines, of which 200 are Nodes: while the listing is read, and afterwards.
//!
//! The test measures the resident memory of a separate process that reads pages as vCenter sends them, from
//! text to inventory, as the provider does: `VmRSS` and `VmHWM` of `/proc/self/status`, less their values at
//! the start. With pages of the provider's size, that is the peak of the listing. With small pages almost
//! only the inventory is left, and that divided by the number of machines is the size of each.

#![allow(clippy::print_stdout, reason = "a measurement is for a person")]

use std::{fmt::Write as _, process::Command};

use super::parse;
use crate::{
    follow::PAGE,
    inventory::{Inventory, machine_paths},
    vim::property_collector::read_listing,
};

const MACHINES: usize = 10_000;
const NODES: usize = 200;
const SMALL_PAGE: usize = 20;
/// Set in the measuring process, to the size of pages.
const MEASURES: &str = "CCM_TEST_MEASURES_MEMORY";

/// The limit for the listing, in KiB: the daemon is to use less than 60 MiB altogether.
const AT_MOST: u64 = 20 << 10;
/// The limit for each machine afterwards, in bytes.
const EACH: u64 = 1_000;

#[test]
fn ten_thousand_machines() {
    if let Some(page) = std::env::var(MEASURES).ok().and_then(|page| page.parse().ok()) {
        measure(page);
        return;
    }
    let (kept, _) = measured(SMALL_PAGE);
    let (_, most) = measured(usize::try_from(PAGE).expect("a size"));
    let each = kept * 1024 / MACHINES as u64;
    println!("{MACHINES} machines: {each} bytes each; {} MiB while they are listed", most >> 10);
    assert!(each <= EACH, "{each} bytes for each machine");
    assert!(most <= AT_MOST, "{most} KiB while they are listed");
}

/// The memory afterwards and its peak, in KiB, measured in a separate process.
fn measured(page: usize) -> (u64, u64) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "soap::memory::ten_thousand_machines", "--nocapture"])
        .env(MEASURES, page.to_string())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("MEASURED ")).expect("a line").1;
    let (kept, most) = line.split_once(' ').expect("two numbers");
    (kept.parse().expect("a number"), most.parse().expect("a number"))
}

fn measure(page: usize) {
    // Run the code once before measuring, so that its pages are loaded from the file.
    take(&mut Inventory::default(), 0..1);
    let before = status("VmRSS");
    let mut inventory = Inventory::default();
    for first in (0..MACHINES).step_by(page) {
        take(&mut inventory, first..(first + page).min(MACHINES));
    }
    let after = status("VmRSS");
    assert_eq!(inventory.machines().len(), MACHINES);
    println!("MEASURED {} {}", after.saturating_sub(before), status("VmHWM").saturating_sub(before));
}

fn take(inventory: &mut Inventory, numbers: std::ops::Range<usize>) {
    let text = listing(numbers);
    let answer = parse::read("RetrievePropertiesEx", 200, text.as_bytes()).expect("an answer");
    drop(text);
    let page = read_listing("RetrievePropertiesEx", &answer).expect("a page");
    inventory.apply(&page.objects);
}

/// A line of `/proc/self/status`, in KiB.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the line");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// A page as vCenter sends it.
fn listing(numbers: std::ops::Range<usize>) -> String {
    let mut text = String::from(
        r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><RetrievePropertiesExResponse xmlns="urn:vim25"><returnval>"#,
    );
    for number in numbers {
        machine(&mut text, number).expect("a text");
    }
    text + "</returnval></RetrievePropertiesExResponse></soapenv:Body></soapenv:Envelope>"
}

fn machine(text: &mut String, number: usize) -> std::fmt::Result {
    write!(text, r#"<objects><obj type="VirtualMachine">vm-{number}</obj>"#)?;
    for path in machine_paths(false) {
        let value = match path {
            "name" => word("string", &format!("production-cluster-worker-{number}")),
            "parent" => reference("Folder", "group-v1042"),
            "resourcePool" => reference("ResourcePool", "resgroup-1009"),
            "runtime.host" => reference("HostSystem", &format!("host-{}", 1000 + number % 64)),
            "runtime.powerState" => word("VirtualMachinePowerState", "poweredOn"),
            "runtime.connectionState" => word("VirtualMachineConnectionState", "connected"),
            "config.uuid" | "summary.config.uuid" => {
                word("string", &format!("4206e1d2-0000-4000-8000-{number:012x}"))
            }
            "config.instanceUuid" | "summary.config.instanceUuid" => {
                word("string", &format!("5006a1b2-0000-4000-8000-{number:012x}"))
            }
            "config.template" => word("boolean", "false"),
            "config.guestId" | "summary.config.guestId" => word("string", "ubuntu64Guest"),
            "config.hardware.numCPU" | "summary.config.numCpu" => word("int", "8"),
            "config.hardware.memoryMB" | "summary.config.memorySizeMB" => word("int", "32768"),
            "guest.hostName" => word("string", &format!("production-cluster-worker-{number}.example.org")),
            "guest.net" => nics(number),
            "guest.toolsRunningStatus" => word("string", "guestToolsRunning"),
            "guest.toolsVersionStatus2" => word("string", "guestToolsUnmanaged"),
            // unset, as parentVApp is
            _ => continue,
        };
        write!(text, "<propSet><name>{path}</name>{value}</propSet>")?;
    }
    text.push_str("</objects>");
    Ok(())
}

fn word(kind: &str, value: &str) -> String {
    format!(r#"<val xsi:type="xsd:{kind}">{value}</val>"#)
}

fn reference(kind: &str, value: &str) -> String {
    format!(r#"<val type="{kind}" xsi:type="ManagedObjectReference">{value}</val>"#)
}

fn address(number: usize, nic: usize) -> String {
    format!("10.{}.{}.{}", 16 + nic, number >> 8, number & 255)
}

/// One interface of the machine. A Node also has those of its pods.
fn nics(number: usize) -> String {
    let interfaces = if number < NODES { 12 } else { 1 };
    let mut text = String::from(r#"<val xsi:type="ArrayOfGuestNicInfo">"#);
    for nic in 0..interfaces {
        let network = if nic == 0 { "<network>VM Network 1042 production</network>" } else { "" };
        let device = if nic == 0 { 4000 } else { -1 };
        let (v4, v6) = (address(number, nic), format!("fe80::250:56ff:fe{nic:02x}:{number:x}"));
        let ip = |ip: &str, bits: u8| {
            format!(
                "<ipAddress><ipAddress>{ip}</ipAddress><prefixLength>{bits}</prefixLength><state>preferred</state></ipAddress>"
            )
        };
        write!(
            text,
            "<GuestNicInfo>{network}<ipAddress>{v4}</ipAddress><ipAddress>{v6}</ipAddress>\
             <macAddress>00:50:56:{nic:02x}:{:02x}:{:02x}</macAddress><connected>true</connected>\
             <deviceConfigId>{device}</deviceConfigId><ipConfig>{}{}</ipConfig></GuestNicInfo>",
            number >> 8,
            number & 255,
            ip(&v4, 16),
            ip(&v6, 64),
        )
        .expect("a text");
    }
    text + "</val>"
}
