//! Checks that ranks agree before their nodes share caches, and names the differences if they do not.

use super::meeting::CacheMessage;
use base::error::{Error, Result};
use std::collections::HashMap;

/// Refuses ranks whose datasets, settings or tiers do not match, and nodes that share a directory. `own` is the rank of
/// this process. `nodes` lists the ranks of each node, and `messages` has one message for each rank.
///
/// # Errors
/// [`Error::Config`] for `peers`, which names two ranks and their differences.
pub(super) fn check(own: u32, nodes: &[Vec<u32>], messages: &[CacheMessage]) -> Result<()> {
    same_settings(own, messages)?;
    same_tiers(nodes, messages)?;
    own_directories(nodes, messages)
}

fn refuse(message: String) -> Result<()> {
    Err(Error::config("peers", message))
}

fn same_settings(own: u32, messages: &[CacheMessage]) -> Result<()> {
    let here = &messages[own as usize].settings;
    let Some(rank) = messages.iter().position(|sent| sent.settings != *here) else { return Ok(()) };
    let there = &messages[rank].settings;
    let differing = std::iter::zip(there, here).filter(|(there, here)| there != here);
    let differences: Vec<String> = differing
        .map(|((name, there), (_, here))| format!("{name} is {there} on rank {rank}, {here} on rank {own}"))
        .collect();
    refuse(format!(
        "rank {rank} and rank {own} have different settings: {}. Give all ranks the same settings and the same \
         dataset. If its files or labels have changed, index it again. If ranks have several loaders, start them in \
         the same order on all ranks",
        differences.join("; ")
    ))
}

/// Refuses ranks of one node with different tiers, because they would keep different samples for the node.
fn same_tiers(nodes: &[Vec<u32>], messages: &[CacheMessage]) -> Result<()> {
    for ranks in nodes {
        let first = &messages[ranks[0] as usize].tiers;
        let Some(rank) = ranks.iter().find(|&&rank| messages[rank as usize].tiers != *first) else {
            continue;
        };
        return refuse(format!(
            "rank {rank} has {} for its cache, but rank {} of the same node has {}: give all ranks of a node the same \
             directory and sizes, because they share the cache",
            messages[*rank as usize].tiers.join(", "),
            ranks[0],
            first.join(", ")
        ));
    }
    Ok(())
}

/// Refuses nodes that share a directory, because each node would treat the directory as its own.
fn own_directories(nodes: &[Vec<u32>], messages: &[CacheMessage]) -> Result<()> {
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for (node, ranks) in nodes.iter().enumerate() {
        for directory in ranks.iter().flat_map(|&rank| &messages[rank as usize].directories) {
            let owner = *owners.entry(directory).or_insert(node);
            if owner != node {
                return refuse(format!(
                    "rank {} and rank {} have the same cache directory, but separate networks, like pods on one \
                     machine: give each node its own directory",
                    nodes[owner][0], ranks[0]
                ));
            }
        }
    }
    Ok(())
}
