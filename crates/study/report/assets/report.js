// Hover values, legend toggles, and the table. Everything is readable without this script.
(() => {
  "use strict";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const shown = (point) => !point.closest(".off");

  // The browser's own hover text would stand beside ours: keep the words, drop the elements.
  const kept = new WeakMap();
  for (const point of all(".pt")) {
    const title = point.querySelector("title");
    kept.set(point, title.textContent);
    title.remove();
  }
  for (const title of all("svg.plot > title")) {
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.parentNode.setAttribute("aria-describedby", title.nextElementSibling.id);
    title.parentNode.removeAttribute("aria-labelledby");
    title.remove();
  }
  const words = (point) => kept.get(point);

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  let marked = null;

  function unmark() {
    if (marked) marked.classList.remove("on");
    marked = null;
    tip.hidden = true;
  }

  function mark(point, aloud) {
    if (point === marked) return;
    unmark();
    marked = point;
    point.classList.add("on");
    tip.textContent = words(point);
    tip.hidden = false;
    const box = point.getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const left = Math.max(8, Math.min(room, box.left + Math.min(box.width, 160) / 2 - tip.offsetWidth / 2));
    const above = box.top > tip.offsetHeight + 12;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above ? box.top - tip.offsetHeight - 8 : box.bottom + 8) + scrollY}px`;
    if (aloud) point.closest("section").querySelector(".readout").textContent = words(point);
  }

  function nearest(plot, x, y) {
    let best = null;
    let distance = 40;
    for (const point of all(".pt", plot).filter(shown)) {
      const box = point.getBoundingClientRect();
      const dx = Math.max(box.left - x, 0, x - box.right);
      const dy = Math.max(box.top - y, 0, y - box.bottom);
      const middle = Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y);
      const d = Math.hypot(dx, dy) + middle / 1e4;
      if (d < distance) [best, distance] = [point, d];
    }
    return best;
  }

  // The next point in the direction of an arrow key: along the series, or to another one.
  function step(plot, key) {
    const points = all(".pt", plot).filter(shown);
    if (points.length === 0) return null;
    const here = marked && plot.contains(marked) ? marked : null;
    if (!here) return points[0];
    if (key === "Home") return points[0];
    if (key === "End") return points.at(-1);
    const bars = plot.classList.contains("bars");
    const back = key === "ArrowLeft" || key === "ArrowUp";
    if (bars || key === "ArrowLeft" || key === "ArrowRight") {
      return points[points.indexOf(here) + (back ? -1 : 1)] ?? here;
    }
    const series = all(".series:not(.off)", plot);
    const other = series[series.indexOf(here.parentNode) + (back ? -1 : 1)];
    if (!other) return here;
    const away = (p) => Math.abs(Math.log(p.dataset.x / here.dataset.x));
    return all(".pt", other).reduce((a, b) => (away(b) < away(a) ? b : a));
  }

  for (const plot of all("svg.plot")) {
    const at = (event) => {
      const point = nearest(plot, event.clientX, event.clientY);
      if (point) mark(point, event.type === "pointerdown");
      else unmark();
    };
    plot.addEventListener("pointermove", at);
    plot.addEventListener("pointerdown", at);
    plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && unmark());
    plot.addEventListener("blur", unmark);
    plot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return unmark();
      if (!/^(Arrow|Home$|End$)/.test(event.key)) return;
      event.preventDefault();
      const point = step(plot, event.key);
      if (point) mark(point, true);
    });
  }

  for (const button of all(".legend button")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const part of all("[data-series]", button.closest("section"))) {
        if (part !== button && part.dataset.series === button.dataset.series) part.classList.toggle("off", !on);
      }
      unmark();
    });
  }

  // Each section can be linked to.
  for (const heading of all("section[id] > h2, section[id] > h3")) {
    const anchor = document.createElement("a");
    anchor.className = "anchor";
    anchor.href = `#${heading.parentNode.id}`;
    anchor.textContent = "#";
    anchor.setAttribute("aria-label", "Link to this section");
    heading.append(" ", anchor);
  }

  // Each figure can be saved: its plots as one SVG file in the style of the page, its points as CSV.
  const caption = (plot) => plot.closest("figure")?.querySelector("figcaption")?.textContent ?? "";

  function picture(figure) {
    const plots = all("svg.plot", figure);
    const make = (name, attributes, ...children) => {
      const element = document.createElementNS(plots[0].namespaceURI, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      element.append(...children);
      return element;
    };
    const [width, head] = [470, 26];
    const tops = [0, 0];
    const drawings = plots.map((plot, index) => {
      const column = index % 2;
      const height = plot.viewBox.baseVal.height;
      const top = tops[column] + head;
      tops[column] = top + height + 14;
      const left = 14 + column * width;
      const title = make("text", { class: "name", x: 0, y: -8 }, caption(plot));
      const parts = [...plot.cloneNode(true).childNodes];
      return make("g", { class: "plot", transform: `translate(${left},${top})` }, title, ...parts);
    });
    const size = { width: plots.length > 1 ? 2 * width : width, height: Math.max(...tops) };
    const paper = make("rect", { ...size, style: "fill: var(--paper)" });
    const style = make("style", {}, document.querySelector("style").textContent);
    const whole = make("svg", { viewBox: `0 0 ${size.width} ${size.height}`, ...size }, style, paper, ...drawings);
    return new XMLSerializer().serializeToString(whole);
  }

  function values(figure) {
    const quoted = (text) => `"${String(text ?? "").replaceAll('"', '""')}"`;
    const rows = all("svg.plot .pt", figure).map((point) => {
      const series = point.closest(".series")?.dataset.series;
      return [caption(point.closest("svg")), series, point.dataset.x, point.dataset.y, words(point)];
    });
    return [["panel", "series", "x", "y", "in words"], ...rows].map((row) => `${row.map(quoted).join(",")}\n`).join("");
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  for (const figure of all("section.figure").filter((section) => section.querySelector("svg.plot"))) {
    const bar = document.createElement("p");
    bar.className = "save";
    const offer = (kind, type, make) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Save ${kind.toUpperCase()}`;
      button.addEventListener("click", () => save(`${figure.id}.${kind}`, type, make(figure)));
      bar.append(button, " ");
    };
    offer("svg", "image/svg+xml", picture);
    offer("csv", "text/csv", values);
    figure.append(bar);
  }

  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  for (const body of all(".scroll tbody").filter((body) => body.parentElement.querySelector("th button"))) {
    const heads = all("th", body.parentElement);
    // A failed row has one wide field in place of its figures.
    const value = (row, column) => {
      const wide = [...row.cells].findIndex((cell) => cell.classList.contains("why"));
      const behind = column === heads.length - 1 && row.cells.length > wide + 1 ? row.lastElementChild : null;
      const field = wide < 0 || column < wide ? row.cells[column] : behind;
      return field ? (field.dataset.v ?? field.textContent) : "";
    };
    heads.forEach((head, column) => {
      head.firstElementChild.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [value(row, column), row]);
        // Missing figures stay last in both directions.
        rows.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b) : up ? compare(a, b) : compare(b, a)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  document.getElementById("filter")?.addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = all("#cells tbody tr");
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      count += !row.hidden;
    }
    document.getElementById("shown").textContent = `${count} of ${rows.length} cells`;
  });

  // For those who check a report by machine: how many points stand inside their plot, of how many.
  let drawn = 0;
  let expected = 0;
  for (const plot of all("svg.plot")) {
    const frame = plot.getBoundingClientRect();
    expected += Number(plot.dataset.points);
    drawn += all(".pt", plot).filter((point) => {
      const box = point.getBoundingClientRect();
      const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      return inside && box.width > 0 && box.height > 0;
    }).length;
  }
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  document.documentElement.dataset.reportReady = `${drawn} of ${expected} points in ${all("svg.plot").length} plots`;
  document.documentElement.dataset.reportFits = wide ? "no" : "yes";
})();
