// Arrowheads of sequence diagrams have the color of their lines, also on a dark page.
if (typeof mermaid !== "undefined") {
  const initialize = mermaid.initialize;
  const heads = "marker path, marker circle { fill: var(--md-mermaid-edge-color) !important; stroke: var(--md-mermaid-edge-color) !important }";
  mermaid.initialize = (config) => initialize({ ...config, themeCSS: (config.themeCSS || "") + heads });
}
