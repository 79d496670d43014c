//! The leader cannot reach the API server any more, and is killed while it still leads.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use test_env::PATIENCE;

use super::{
    announced::Daemons,
    lan::{INTERFACE, Lan, NodeHost},
};
use crate::lag;

/// How often both interfaces are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// When the leader is killed. The last renewal of its Lease is up to two seconds older, so the Lease has four to six seconds
/// left. The kernel would keep an address for nine.
const KILLED_AFTER: Duration = Duration::from_secs(9);

/// How much later the leader still leads.
const LATE: Duration = Duration::from_millis(800);

/// The first Node leads, and the second one stands by. Never do both have an address.
pub(super) async fn leader_is_cut_off(
    lan: &Lan,
    daemons: &mut Daemons,
    addresses: &[String],
    api_server: u16,
) -> anyhow::Result<()> {
    let [leader, standby] = [&lan.nodes[0], &lan.nodes[1]];
    let begin = Instant::now();
    cut_off(leader, api_server)?;
    loop {
        let holders = look(leader, standby, addresses).await?;
        if begin.elapsed() >= KILLED_AFTER {
            break;
        }
        ensure!(holders == Holders { leader: addresses.len(), standby: 0 }, "{holders:?} while it leads");
    }
    daemons.take(0)?.kill()?;
    let killed = begin.elapsed();
    if killed > KILLED_AFTER + LATE {
        lag::not_judged(format!(
            "a leader that is cut off was killed after {killed:?}, when its term may have ended"
        ));
    }
    let mut gone = None;
    let taken = loop {
        let (now, holders) = (begin.elapsed(), look(leader, standby, addresses).await?);
        ensure!(
            holders.leader == 0 || holders.standby == 0,
            "{holders:?} {now:?} after the cut; the leader was killed after {killed:?}"
        );
        if holders.leader == 0 {
            gone.get_or_insert(now);
        }
        if holders.standby == addresses.len() {
            break now;
        }
        ensure!(now < killed + PATIENCE, "nobody takes over: {holders:?}");
    };
    let gone = gone.context("the leader's addresses are gone first")?;
    println!(
        "cut off, killed after {killed:?}: the addresses are gone after {gone:?}, and taken over after {taken:?}"
    );
    reconnect(leader)
}

/// How many of the addresses a Node has.
#[derive(Debug, PartialEq, Eq)]
struct Holders {
    leader: usize,
    standby: usize,
}

async fn look(leader: &NodeHost, standby: &NodeHost, addresses: &[String]) -> anyhow::Result<Holders> {
    tokio::time::sleep(LOOK_INTERVAL).await;
    let count = |node: &NodeHost| {
        let shown = node.netns.ip(&format!("-oneline address show dev {INTERFACE}"))?;
        let words: Vec<&str> = shown.split([' ', '/']).collect();
        anyhow::Ok(addresses.iter().filter(|address| words.contains(&address.as_str())).count())
    };
    // Where the leader has an address that the standby had before, both have it.
    let standby = count(standby)?;
    Ok(Holders { leader: count(leader)?, standby })
}

/// Drops all that is sent to the API server from here on, open connections included.
fn cut_off(node: &NodeHost, api_server: u16) -> anyhow::Result<()> {
    let rules = format!(
        "add table inet cut_off; add chain inet cut_off output {{ type filter hook output priority 0; }}; \
         add rule inet cut_off output tcp dport {api_server} drop"
    );
    nft(node, &rules)
}

fn reconnect(node: &NodeHost) -> anyhow::Result<()> {
    nft(node, "delete table inet cut_off")
}

fn nft(node: &NodeHost, commands: &str) -> anyhow::Result<()> {
    let output = node.netns.command("nft").arg(commands).output()?;
    ensure!(output.status.success(), "nft {commands}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
