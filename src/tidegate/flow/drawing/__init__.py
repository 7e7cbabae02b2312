"""Pictures of flows and automata: tables, Mermaid, Graphviz and SVG."""
