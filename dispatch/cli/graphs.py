"""`graphs`: what a store holds, and what of it belongs to the repository one stands in."""

from __future__ import annotations

from dispatch.cli.options import GraphRepository, Json, StoreUrl


def graphs(repo: GraphRepository = None, store: StoreUrl = "", json: Json = False) -> None:
    """List the graphs of a store. With each: whether it belongs here, its slices by state, who runs it."""
    from dispatch.cli.choice import Choice
    from dispatch.cli.output import output, print_document
    from dispatch.offline import StoredGraph
    from dispatch.view.graphs import Entry, graphs_document, graphs_lines

    choice = Choice.at(store, repo)
    found = [StoredGraph.read(choice.store, name) for name in choice.store.graphs()]
    entries = [Entry(graph, choice.branch(graph.machine.graph_id)) for graph in found]
    if json:
        print_document(graphs_document(entries, choice.store.url, choice.repository))
    else:
        out = output()
        out.write(graphs_lines(entries, choice.store.url, choice.repository, out.width))
