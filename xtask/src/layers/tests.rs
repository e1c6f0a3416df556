use super::*;

fn edge(from: &str, to: &str) -> Edge {
    Edge { from: from.to_owned(), to: to.to_owned() }
}

#[test]
fn downward_edges_pass_and_others_are_named() {
    assert!(complaints(&[edge("mds", "rpc"), edge("base", "")]).is_empty());
    assert_eq!(complaints(&[edge("rpc", "mds")]).len(), 1);
    assert_eq!(complaints(&[edge("rpc", "ldlm")]).len(), 1, "the same layer is not below");
}

#[test]
fn an_unknown_crate_is_named_once() {
    assert_eq!(complaints(&[edge("novelty", "")]).len(), 1);
    assert_eq!(complaints(&[edge("sheen", "novelty")]).len(), 1);
}
