// Search while one types, and the keys. Without this the page works by its links and forms.
"use strict";
(() => {
  const ask = document.querySelector(".ask input"), results = document.getElementById("results");
  const keys = document.getElementById("keys");
  const form = document.querySelector(".ask");

  // ------------------------------------------------------------------ search while one types
  const WAIT = 140;
  let timer = 0, asked = null;
  async function search() {
    if (asked) asked.abort();
    asked = new AbortController();
    const fields = new URLSearchParams(new FormData(form));
    if (!fields.get("c")) fields.delete("c");
    try {
      const reply = await fetch("/results?" + fields, { signal: asked.signal });
      const text = await reply.text();
      // Made by our own server, which escapes all that comes from documents.
      results.innerHTML = text;
      history.replaceState(null, "", fields.get("q") ? "/?" + fields : "/");
      document.title = (fields.get("q") || "Search") + " · kb";
    } catch (error) {
      if (error.name !== "AbortError") {
        const said = document.createElement("p");
        said.className = "notice"; said.textContent = "The server does not answer.";
        results.replaceChildren(said);
      }
    }
  }
  if (results) {
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, WAIT); });
    form.addEventListener("submit", (event) => {
      event.preventDefault(); clearTimeout(timer);
      search().then(() => { const first = results.querySelector(".result"); if (first) first.focus(); });
    });
    ask.setSelectionRange(ask.value.length, ask.value.length);
  }

  // ------------------------------------------------------------------ keys
  const places = () => [...document.querySelectorAll(".result")];
  function step(by) {
    const all = places(), here = all.indexOf(document.activeElement);
    if (!all.length) return false;
    if (here < 0 && by < 0) return false;
    if (here === 0 && by < 0) { ask.focus(); return true; }
    (all[here + by] || all[here]).focus();
    document.activeElement.scrollIntoView({ block: "nearest" });
    return true;
  }
  function heading(by) {
    const all = [...document.querySelectorAll(".line.h1, .line.h2, .line.h3, .line.h4,"
      + ".rendered h1, .rendered h2, .rendered h3, .rendered h4")];
    const top = document.querySelector("header").offsetHeight + 24;
    const next = by > 0 ? all.find((line) => line.getBoundingClientRect().top > top + 4)
      : all.reverse().find((line) => line.getBoundingClientRect().top < top - 12);
    if (next) next.scrollIntoView();
    return !!next;
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const field = event.target.closest("input, select, textarea"), key = event.key;
    const inSearch = event.target === ask;
    let done = false;
    if (inSearch && key === "ArrowDown") done = step(1);
    else if (inSearch && key === "Escape") { ask.blur(); done = true; }
    else if (field || event.target.closest("canvas, .graph")) return;
    else if (key === "/") { ask.focus(); ask.select(); done = true; }
    else if (key === "j" || key === "ArrowDown") done = step(1);
    else if (key === "k" || key === "ArrowUp") done = step(-1);
    else if (key === "n") done = heading(1);
    else if (key === "p") done = heading(-1);
    else if (key === "?") { keys.showModal(); done = true; }
    else if (key === "Escape" && !keys.open && document.querySelector(".reading")) {
      history.back(); done = true;
    } else {
      const link = document.querySelector("a[data-key='" + CSS.escape(key) + "']");
      if (link && !keys.open) { link.click(); done = true; }
    }
    if (done) event.preventDefault();
  });

  // ------------------------------------------------------------------ a document
  const passage = document.querySelector(".passage");
  if (passage) passage.scrollIntoView({ block: "center" });
  const outline = [...document.querySelectorAll(".outline a")];
  if (outline.length) {
    const lines = outline.map((link) => document.getElementById(link.hash.slice(1)));
    const mark = () => {
      let here = -1;
      lines.forEach((line, i) => { if (line && line.getBoundingClientRect().top < 140) here = i; });
      outline.forEach((link, i) => link.classList.toggle("here", i === here));
    };
    let waits = false;
    addEventListener("scroll", () => {
      if (!waits) { waits = true; requestAnimationFrame(() => { waits = false; mark(); }); }
    }, { passive: true });
    mark();
  }
})();
