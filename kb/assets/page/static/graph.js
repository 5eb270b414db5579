// Draws the citation graph that stands in the page as JSON. Layout by d3-force; no text of a
// document ever becomes markup here: everything is set as textContent.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("graph-data").textContent);
  const view = document.querySelector(".graph"), canvas = view.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const about = view.querySelector(".about"), hits = view.querySelector(".hits");
  const find = view.querySelector("input[type=search]"), legend = view.querySelector(".legend div");
  const PALETTE = ["#3b6fd4", "#2f9e6a", "#c2761b", "#8f5bc9", "#c94f7c", "#1d97a6", "#7f8b2a",
    "#a65d3f", "#5a6b8c", "#b8479f", "#4b9c2e", "#6f62d9"];
  const MOST_GROUPS = PALETTE.length, MOST_HITS = 40, LINES_OF_A_PATH = 100, PLENTY = 300, STILL_MILLISECONDS = 250, WEB = "The web", FILES = "Files";

  // ------------------------------------------------------------------ what there is
  const nodes = data.nodes.map((node) => ({ ...node, edges: [], hidden: false }));
  const edges = data.edges.map((edge) => ({ ...edge, source: nodes[edge.from],
    target: nodes[edge.to] }));
  for (const edge of edges) { edge.source.edges.push(edge); edge.target.edges.push(edge); }
  const sizes = new Map();
  for (const node of nodes) if (node.kind === "document") {
    sizes.set(node.group, (sizes.get(node.group) || 0) + 1);
  }
  const groups = [...sizes].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([name, size], i) => ({ name, size, shown: true,
      colour: i < MOST_GROUPS ? PALETTE[i] : "#8a8f9c" }));
  const groupOf = new Map(groups.map((group) => [group.name, group]));
  const kinds = { missing: true, external: false, file: false };
  let untouched = true; // the whole picture is shown until somebody moves it
  let chosen = null, over = null, held = null, zoom = 1, panX = 0, panY = 0, path = new Set();

  function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name); }
  const colours = {};
  function readColours() {
    for (const name of ["page", "text", "faint", "edge", "bad", "link", "line"]) {
      colours[name] = style("--" + name).trim();
    }
  }
  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours(); draw();
  });
  const radius = (node) => 3.5 + Math.min(12, 1.3 * Math.sqrt(node.edges.length));
  const colour = (node) => node.kind === "document" ? groupOf.get(node.group).colour
    : node.kind === "missing" ? colours.bad : colours.faint;
  const plain = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

  // ------------------------------------------------------------------ where it lies
  const centres = new Map();
  let simulation = null, visible = [], shownEdges = [];
  function place() {
    // Groups stand on a spiral, the largest in the middle, each with room for its documents.
    let covered = 0;
    groups.forEach((group, i) => {
      const room = 46 * Math.sqrt(group.size) + 40;
      const distance = i ? Math.sqrt(covered) * 0.95 + room * 0.6 : 0, angle = i * 2.39996;
      centres.set(group.name, [distance * Math.cos(angle), distance * Math.sin(angle)]);
      covered += room * room * 1.1;
    });
  }
  function centre(node) {
    const own = node.kind === "document" ? node : (node.edges[0] || {}).source || node;
    return centres.get(own.group) || [0, 0];
  }
  // A document whose links all lead to what is hidden is hidden too, until it is looked for.
  const lookedFor = new Set();
  const counts = (edge) => edge.target.kind === "document" || kinds[edge.target.kind];
  function layout(first) {
    visible = nodes.filter((node) => lookedFor.has(node)
      || (node.kind === "document" ? groupOf.get(node.group).shown && node.edges.some(counts)
        : kinds[node.kind] && node.edges.some((edge) => groupOf.get(edge.source.group)?.shown)));
    const set = new Set(visible);
    shownEdges = edges.filter((edge) => set.has(edge.source) && set.has(edge.target));
    for (const node of visible) if (node.x === undefined) {
      const [x, y] = centre(node), i = node.seat = (centres.get(node.group + "#") || 0) + 1;
      centres.set(node.group + "#", i);
      node.x = x + 9 * Math.sqrt(i) * Math.cos(i * 2.39996);
      node.y = y + 9 * Math.sqrt(i) * Math.sin(i * 2.39996);
    }
    if (simulation) simulation.stop();
    clearTimeout(waiting);
    simulation = d3.forceSimulation(visible)
      .force("link", d3.forceLink(shownEdges).distance((edge) =>
        edge.source.group === edge.target.group ? 34 : 80)
        .strength((edge) => (edge.source.group === edge.target.group ? 0.5 : 0.04)
          / Math.sqrt(Math.min(edge.source.edges.length, edge.target.edges.length))))
      .force("charge", d3.forceManyBody().strength(visible.length < 150 ? -150 : -46).distanceMax(260).theta(1))
      .force("x", d3.forceX((node) => centre(node)[0]).strength(0.075))
      .force("y", d3.forceY((node) => centre(node)[1]).strength(0.075))
      .force("room", d3.forceCollide((node) => radius(node) + 2.5).iterations(1))
      .alphaDecay(0.035).stop();
    // Some of the way at once: nobody wants to watch a tangle come loose, or wait for a second.
    const until = performance.now() + (first ? 300 : 120);
    while (simulation.alpha() > 0.03 && performance.now() < until) simulation.tick();
    simulation.on("tick", () => { if (untouched && !held) fit(); else draw(); });
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      while (simulation.alpha() > 0.01) simulation.tick();
      simulation.stop();
    } else { simulation.restart(); }
  }
  // A step of the layout takes several times as long as a picture of it, so nothing settles while
  // somebody moves the picture.
  let waiting = 0;
  function keepStill() {
    untouched = false;
    simulation.stop();
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (simulation.alpha() > simulation.alphaMin()) simulation.restart();
    }, STILL_MILLISECONDS);
  }
  function fit() {
    if (!visible.length) return;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const node of visible) {
      left = Math.min(left, node.x); right = Math.max(right, node.x);
      top = Math.min(top, node.y); bottom = Math.max(bottom, node.y);
    }
    const wide = view.clientWidth > 640;
    const side = wide ? Math.min(352, view.clientWidth * 0.45) + 12 : 0;
    const key = wide ? view.querySelector(".legend").offsetWidth + 12 : 0;
    const width = view.clientWidth - side - key;
    zoom = Math.min(2.2, 0.94 * Math.min(width / (right - left + 60),
      view.clientHeight / (bottom - top + 60)));
    panX = -zoom * (left + right) / 2 + (key - side) / 2; panY = -zoom * (top + bottom) / 2;
    draw();
  }
  function showAll() { untouched = true; fit(); }
  function goTo(node) {
    untouched = false;
    if (node.kind === "document" && !groupOf.get(node.group).shown) {
      groupOf.get(node.group).shown = true; fillLegend(); layout();
    } else if (node.kind !== "document" && !kinds[node.kind]) {
      kinds[node.kind] = true; fillLegend(); layout();
    }
    if (!visible.includes(node)) { lookedFor.add(node); layout(); }
    const side = view.clientWidth > 640 ? 180 : 0;
    zoom = Math.max(zoom, 1.3); panX = -node.x * zoom - side; panY = -node.y * zoom;
    choose(node);
  }

  // ------------------------------------------------------------------ the picture
  let asked = false;
  function draw() { if (!asked) { asked = true; requestAnimationFrame(paint); } }
  function paint() {
    asked = false;
    const scale = devicePixelRatio || 1, width = view.clientWidth, height = view.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.setTransform(scale * zoom, 0, 0, scale * zoom, scale * (width / 2 + panX),
      scale * (height / 2 + panY));
    const focus = chosen || over;
    near = new Set(focus ? focus.edges.flatMap((edge) => [edge.source, edge.target]) : []);
    paintEdges(focus);
    paintNodes(focus);
    paintNames(focus);
  }
  let near = new Set();
  function paintEdges(focus) {
    for (const [own, weak] of [[false, false], [false, true], [true, false], [true, true]]) {
      pen.setLineDash(weak ? [4 / zoom, 3 / zoom] : []);
      pen.globalAlpha = own ? 1 : focus ? 0.16 : shownEdges.length > 1500 ? 0.32 : 0.55;
      pen.strokeStyle = own ? colours.link : colours.edge;
      pen.lineWidth = (own ? 1.6 : 1) / zoom;
      pen.beginPath();
      let lines = 0;
      for (const edge of shownEdges) {
        const isOwn = edge.source === focus || edge.target === focus;
        if (isOwn !== own || (edge.confidence < 1) !== weak) continue;
        pen.moveTo(edge.source.x, edge.source.y); pen.lineTo(edge.target.x, edge.target.y);
        if (own) arrow(edge);
        // A path of thousands of lines takes longer to stroke than its parts do.
        if (++lines % LINES_OF_A_PATH === 0) { pen.stroke(); pen.beginPath(); }
      }
      pen.stroke();
    }
    pen.setLineDash([]); pen.globalAlpha = 1;
  }
  function arrow({ source, target }) {
    const angle = Math.atan2(target.y - source.y, target.x - source.x), reach = radius(target) + 1;
    const x = target.x - Math.cos(angle) * reach, y = target.y - Math.sin(angle) * reach;
    for (const turn of [2.7, -2.7]) {
      pen.moveTo(x, y);
      pen.lineTo(x + 7 / zoom * Math.cos(angle + turn), y + 7 / zoom * Math.sin(angle + turn));
    }
  }
  // Most documents are circles of a few colours: one path each costs a third of one each.
  function paintNodes(focus) {
    const circles = new Map(), others = [];
    for (const node of visible) {
      const isSimple = node.kind === "document" && node !== chosen && !path.has(node)
        && (!focus || !(near.has(node) || node === focus));
      if (!isSimple) { others.push(node); continue; }
      const own = colour(node);
      if (!circles.has(own)) circles.set(own, []);
      circles.get(own).push(node);
    }
    pen.globalAlpha = focus ? 0.28 : 1;
    for (const [own, found] of circles) {
      pen.fillStyle = own; pen.beginPath();
      for (const node of found) {
        const r = radius(node);
        pen.moveTo(node.x + r, node.y); pen.arc(node.x, node.y, r, 0, 7);
      }
      pen.fill();
    }
    for (const node of others) paintNode(node, focus);
    pen.globalAlpha = 1;
  }
  function paintNode(node, focus) {
    pen.globalAlpha = !focus || near.has(node) || node === focus ? 1 : 0.28;
    pen.beginPath();
    const r = radius(node);
    if (node.kind === "external" || node.kind === "file") {
      pen.rect(node.x - r * 0.8, node.y - r * 0.8, r * 1.6, r * 1.6);
    } else { pen.arc(node.x, node.y, r, 0, 7); }
    if (node.kind === "missing") {
      pen.fillStyle = colours.page; pen.fill();
      pen.strokeStyle = colours.bad; pen.lineWidth = 2; pen.stroke();
    } else { pen.fillStyle = colour(node); pen.fill(); }
    if (node === chosen || path.has(node)) {
      pen.strokeStyle = colours.text; pen.lineWidth = 2 / Math.min(1, zoom); pen.stroke();
    }
    pen.globalAlpha = 1;
  }
  function paintNames(focus) {
    pen.textAlign = "center"; pen.lineJoin = "round";
    pen.strokeStyle = colours.page;
    const named = new Set();
    // A name covers no document, where there are few enough to look.
    const taken = visible.length > 400 ? [] : visible.map((node) => {
      const r = radius(node) * 0.8;
      return [node.x - r, node.y - r, node.x + r, node.y + r];
    });
    function name(node, most) {
      const size = 12 / zoom, text = plain(node.label, most), y = node.y + radius(node) + size;
      const wide = text.length * size * 0.28;
      const box = [node.x - wide, y - size, node.x + wide, y + size * 0.3];
      if (node !== focus && taken.some((other) => box[0] < other[2] && box[2] > other[0]
        && box[1] < other[3] && box[3] > other[1])) return;
      taken.push(box);
      pen.font = (node === chosen ? "600 " : "") + size + "px system-ui, sans-serif";
      pen.lineWidth = 3 / zoom; pen.strokeText(text, node.x, y);
      pen.fillStyle = colours.text; pen.fillText(text, node.x, y);
    }
    if (focus) { named.add(focus); name(focus, 60); }
    if (over && over !== focus) { named.add(over); name(over, 60); }
    for (const node of near) if (!named.has(node) && visible.includes(node)) {
      named.add(node); name(node, 32);
    }
    if (focus) return;
    paintGroups();
    // As many names as there is room for, those of well-linked documents first.
    const inView = visible.filter((node) => visible.length < 80 || zoom > 1.4
      || node.edges.length * zoom > 5)
      .sort((a, b) => b.edges.length - a.edges.length).slice(0, 160);
    for (const node of inView) name(node, 30);
  }
  function paintGroups() {
    if (groups.length < 2 || zoom > 1.6) return;
    const sums = new Map();
    for (const node of visible) if (node.kind === "document") {
      const sum = sums.get(node.group) || [0, Infinity, 0];
      sums.set(node.group, [sum[0] + node.x, Math.min(sum[1], node.y), sum[2] + 1]);
    }
    for (const group of groups.slice(0, MOST_GROUPS)) {
      const sum = sums.get(group.name);
      if (!sum || sum[2] < 3) continue;
      pen.font = "600 " + 15 / zoom + "px system-ui, sans-serif";
      pen.globalAlpha = 0.9; pen.lineWidth = 4 / zoom;
      const text = plain(group.name, 34), x = sum[0] / sum[2], y = sum[1] - 16 / zoom;
      pen.strokeText(text, x, y); pen.fillStyle = group.colour; pen.fillText(text, x, y);
      pen.globalAlpha = 1;
    }
  }

  // ------------------------------------------------------------------ what is said of it
  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function nodeButton(node) {
    const button = element("button", node.label, "node");
    button.type = "button";
    const from = node.kind === "document" ? node.id
      : node.edges.length ? "in " + node.edges[0].source.label : "";
    if (from !== node.label) button.append(element("small", from));
    button.addEventListener("click", () => goTo(node));
    return button;
  }
  function list(title, found, end) {
    if (!found.length) return;
    about.append(element("h3", title + " (" + found.length + ")"));
    const items = element("ul");
    for (const edge of found.slice(0, PLENTY)) {
      const item = element("li");
      item.append(nodeButton(edge[end]));
      for (const said of edge.said || []) {
        const place = "line " + said.line;
        const quote = said.text ? element("q", said.text) : element("small", "in " + place);
        quote.title = place;
        item.append(quote);
      }
      items.append(item);
    }
    about.append(items);
  }
  function choose(node) {
    chosen = node; path = new Set();
    about.replaceChildren();
    about.hidden = !node && view.clientWidth <= 640;
    if (!node) {
      const documents = nodes.filter((one) => one.kind === "document").length;
      const missing = nodes.filter((one) => one.kind === "missing");
      about.append(element("p", documents + " documents, "
        + edges.filter((edge) => edge.target.kind === "document").length + " links between them. "
        + "Click one to see who cites it, and with what words."));
      if (missing.length) {
        about.append(element("h3", "Links that lead nowhere (" + missing.length + ")"));
        const items = element("ul");
        for (const one of missing.slice(0, PLENTY)) {
          const item = element("li"); item.append(nodeButton(one)); items.append(item);
        }
        about.append(items);
      }
    } else {
      about.append(element("h2", node.label));
      if (node.kind === "document") about.append(element("p", node.id));
      if (node.kind === "missing") about.append(element("p", "This link leads nowhere."));
      if (node.href) {
        const link = element("a", node.kind === "document" ? "Open the document" : "Open");
        link.href = node.href; link.rel = "noopener noreferrer";
        about.append(link);
      }
      list("Cites", node.edges.filter((edge) => edge.source === node), "target");
      list("Cited by", node.edges.filter((edge) => edge.target === node), "source");
    }
    draw();
  }
  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits.replaceChildren();
    path = new Set();
    if (!words.length) { draw(); return []; }
    const found = nodes.filter((node) => {
      const text = (node.label + " " + node.id).toLowerCase();
      return words.every((word) => text.includes(word));
    }).sort((a, b) => rank(a, words) - rank(b, words) || b.edges.length - a.edges.length);
    for (const node of found.slice(0, MOST_HITS)) {
      const item = element("li"); item.append(nodeButton(node)); hits.append(item);
    }
    if (found.length > MOST_HITS) {
      hits.append(element("li", "and " + (found.length - MOST_HITS) + " more"));
    }
    if (!found.length) hits.append(element("li", "nothing of that name"));
    path = new Set(found); draw();
    return found;
  }
  const rank = (node, words) => (node.kind === "document" ? 0 : 2)
    + (node.label.toLowerCase().startsWith(words[0]) ? 0 : 1);

  function swatch(entry, label, count, shown, change, className) {
    const row = element("label"), box = element("input");
    box.type = "checkbox"; box.checked = shown;
    box.addEventListener("change", () => { change(box.checked); layout(); choose(null); });
    const dot = element("i", undefined, className);
    if (entry) dot.style.background = entry;
    const text = element("span", label); text.title = label;
    row.append(box, dot, text, element("em", String(count)));
    legend.append(row);
  }
  function fillLegend() {
    legend.replaceChildren();
    for (const group of groups) {
      swatch(group.colour, group.name, group.size, group.shown, (on) => { group.shown = on; });
    }
    const count = (kind) => nodes.filter((node) => node.kind === kind).length;
    for (const [kind, label, entry, className] of [
      ["missing", "Links that lead nowhere", "", "missing"],
      ["external", WEB, colours.faint, "square"], ["file", FILES, colours.faint, "square"]]) {
      if (count(kind)) {
        swatch(entry, label, count(kind), kinds[kind], (on) => { kinds[kind] = on; }, className);
      }
    }
    if (edges.some((edge) => edge.confidence < 1)) {
      legend.append(element("em", "Dashed: similar texts, no link"));
    }
  }

  // ------------------------------------------------------------------ hands
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left - view.clientWidth / 2 - panX) / zoom;
    const y = (event.clientY - box.top - view.clientHeight / 2 - panY) / zoom;
    let best = null, least = Infinity;
    for (const node of visible) {
      const far = Math.hypot(node.x - x, node.y - y) - radius(node);
      if (far < 6 / zoom && far < least) { best = node; least = far; }
    }
    return { x, y, node: best };
  }
  function zoomBy(factor, x = 0, y = 0) {
    keepStill();
    const next = Math.min(6, Math.max(0.04, zoom * factor));
    panX = x - (x - panX) * next / zoom; panY = y - (y - panY) * next / zoom;
    zoom = next; draw();
  }
  canvas.addEventListener("pointerdown", (event) => {
    const start = at(event); let moved = 0;
    held = start.node;
    canvas.setPointerCapture(event.pointerId);
    const move = (now) => {
      moved += Math.abs(now.movementX) + Math.abs(now.movementY);
      if (held && moved > 3) {
        const spot = at(now);
        held.fx = spot.x; held.fy = spot.y; simulation.alphaTarget(0.12).restart();
      } else if (!held) { keepStill(); panX += now.movementX; panY += now.movementY; draw(); }
    };
    const up = () => {
      canvas.removeEventListener("pointermove", move);
      if (held) { held.fx = held.fy = null; simulation.alphaTarget(0); }
      if (moved <= 3) choose(held);
      held = null;
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up, { once: true });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) return;
    const found = at(event).node;
    if (found !== over) { over = found; canvas.classList.toggle("over", !!found); draw(); }
  });
  canvas.addEventListener("pointerleave", () => { over = null; draw(); });
  canvas.addEventListener("dblclick", (event) => {
    const { node } = at(event);
    if (node && node.href) location.assign(node.href);
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoomBy(Math.exp(-event.deltaY / 400), event.clientX - box.left - view.clientWidth / 2,
      event.clientY - box.top - view.clientHeight / 2);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (steps[event.key]) { keepStill(); panX += steps[event.key][0]; panY += steps[event.key][1]; draw(); }
    else if (event.key === "+" || event.key === "=") zoomBy(1.25);
    else if (event.key === "-") zoomBy(0.8);
    else if (event.key === "0") showAll();
    else if (event.key === "Enter" && chosen && chosen.href) location.assign(chosen.href);
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
  });
  for (const button of view.querySelectorAll(".zoom button")) {
    button.addEventListener("click", () => button.value === "0" ? showAll() : zoomBy(+button.value));
  }
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    const buttons = [...hits.querySelectorAll("button")];
    if (event.key === "Enter") { const [first] = search(); if (first) goTo(first); }
    else if (event.key === "ArrowDown" && buttons.length) buttons[0].focus();
    else if (event.key === "Escape") { find.value = ""; search(); choose(null); canvas.focus(); }
    else return;
    event.preventDefault();
  });
  hits.addEventListener("keydown", (event) => {
    const buttons = [...hits.querySelectorAll("button")];
    const i = buttons.indexOf(document.activeElement);
    if (event.key === "ArrowDown" && buttons[i + 1]) buttons[i + 1].focus();
    else if (event.key === "ArrowUp") (buttons[i - 1] || find).focus();
    else return;
    event.preventDefault();
  });
  addEventListener("resize", draw);

  // On a small screen the panels are folded until somebody opens them or chooses a document.
  legend.parentElement.open = view.clientWidth > 640;
  place(); fillLegend(); layout(true); choose(null); fit();
  const named = decodeURIComponent(location.hash.slice(1));
  const wanted = named && nodes.find((node) => node.id === named);
  if (wanted) goTo(wanted);
  // For scripts that try the page out.
  view.graph = { nodes, edges, shown: () => visible, chosen: () => chosen, goTo,
    onScreen: (node) => ({ x: view.clientWidth / 2 + panX + node.x * zoom,
      y: view.clientHeight / 2 + panY + node.y * zoom }) };
})();
