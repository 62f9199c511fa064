//! The plan of which node reads from which other node in each round. No I/O.

/// The distances of the rounds among `nodes` nodes. In a round of distance d, node i reads from node i + d, modulo the
/// number of nodes. So all nodes read at once, and each node serves one other node. There are at most `most` rounds,
/// spread evenly over all distances.
pub(super) fn distances(nodes: usize, most: usize) -> Vec<usize> {
    let all = nodes.saturating_sub(1);
    let rounds = all.min(most);
    (0..rounds).map(|round| 1 + round * all / rounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_all_meet_and_of_many_each_meets_as_many_others() {
        assert_eq!(distances(4, 16), [1, 2, 3]);
        assert!(distances(1, 16).is_empty());
        for nodes in [2, 3, 16, 17, 18, 100, 1000] {
            let rounds = distances(nodes, 16);
            assert_eq!(rounds.len(), 16.min(nodes - 1));
            assert!(rounds.windows(2).all(|pair| pair[0] < pair[1]), "{rounds:?}");
            assert!(rounds.iter().all(|distance| (1..nodes).contains(distance)), "{rounds:?}");
            // Distant nodes of a large cluster are also measured.
            assert!(nodes - rounds[rounds.len() - 1] <= nodes.div_ceil(16), "{rounds:?}");
        }
    }
}
